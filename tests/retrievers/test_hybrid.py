"""Fusion against tables worked by hand; specs: names with settings, nested."""

import copy
from typing import Any

import pytest

from ragbench.errors import DataError
from ragbench.retrievers import RETRIEVERS, Corpus, Passage, Retriever, make_retriever
from ragbench.retrievers.factory import make_spec, parse_spec, split_specs
from tests.retrievers.conftest import make_corpus

#: What the scripted sides answer, and how deep they were asked.
SCRIPTS: dict[str, list[tuple[int, float]]] = {}
ASKED: list[int] = []


class Scripted(Retriever):
    """Gives fixed hits."""

    def search(self, query: str, *, k: int) -> list[Passage]:
        ASKED.append(k)
        return [self.corpus.passages[i].scored(s) for i, s in SCRIPTS[self.name][:k]]


class Left(Scripted):
    name = "left"


class Right(Scripted):
    name = "right"


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    known = RETRIEVERS.get
    kinds = {"left": Left, "right": Right}
    monkeypatch.setattr(RETRIEVERS, "get", lambda name: kinds.get(name) or known(name))
    SCRIPTS.update(left=[(0, 9.0), (1, 5.0), (2, 1.0)], right=[(2, 0.9), (3, 0.6), (0, 0.3)])
    ASKED.clear()


def fused(k: int = 10, **settings: Any) -> list[tuple[str, float]]:
    corpus = make_corpus("abcde")
    retriever = make_retriever("hybrid", corpus, sparse="left", dense="right", **settings)
    return [(p.pid, p.score) for p in retriever.search("x", k=k)]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        # p0 and p2 are first and third of both sides, p1 and p3 second of one; ties by position
        ({}, {"p0": .5 / 61 + .5 / 63, "p2": .5 / 61 + .5 / 63, "p1": .5 / 62, "p3": .5 / 62}),
        ({"dense_weight": .8, "rrf_k": 1, "k": 2}, {"p2": .2 / 4 + .8 / 2, "p0": .2 / 2 + .8 / 4}),
        # left: 1, .5, 0; right: 1, .5, 0
        ({"fusion": "minmax"}, {"p0": 0.5, "p2": 0.5, "p1": 0.25, "p3": 0.25}),
        ({"dense_weight": 0}, {"p0": 1 / 61, "p1": 1 / 62, "p2": 1 / 63}),
        ({"dense_weight": 1}, {"p2": 1 / 61, "p3": 1 / 62, "p0": 1 / 63}),
    ],
)  # fmt: skip
def test_fusion_by_hand(settings: dict[str, Any], expected: dict[str, float]) -> None:
    found = fused(**settings)
    assert [pid for pid, _ in found] == list(expected)
    assert dict(found) == pytest.approx(expected)
    assert {*ASKED} == {2 * settings.get("k", 5)}  # each side for twice as many


# -- specs and the distractor setting


def test_nested_specs() -> None:
    spec = "rerank(inner=hybrid(sparse=bm25(k1=1.2,b=0.5),dense_weight=0.3),depth=9)"
    name, settings = parse_spec(spec)
    assert (name, settings["depth"]) == ("rerank", "9")
    assert parse_spec(settings["inner"])[1]["sparse"] == "bm25(k1=1.2,b=0.5)"
    assert make_spec(name, settings) == spec
    assert split_specs("bm25(k1=1,b=0), dense,,hybrid") == ["bm25(k1=1,b=0)", "dense", "hybrid"]
    assert make_retriever("bm25(k1=1)", make_corpus(["a"]), k1=2).settings.k1 == 2
    retriever = make_retriever(spec, make_corpus(["a"]))
    hybrid = retriever.parts[0]
    assert hybrid.settings.dense_weight == 0.3
    assert hybrid.parts[0].settings.k1 == 1.2


def test_distractor_searches_the_questions_own_passages() -> None:
    corpus = Corpus(make_corpus(["cat", "cat", "dog"]).passages, contexts={"q": (1, 2)})
    retriever = make_retriever("bm25", corpus, setting="distractor")
    own = retriever.for_question("q")
    assert [p.pid for p in own.search("cat", k=5)] == ["p1"]
    assert retriever.for_question("q") is own
    assert copy.deepcopy(retriever) is retriever
    with pytest.raises(DataError, match="for_question"):
        retriever.search("cat", k=1)
    with pytest.raises(DataError, match="--setting pooled"):
        retriever.for_question("another")
