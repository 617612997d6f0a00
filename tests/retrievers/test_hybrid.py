"""Retrievers over others: fusion by hand, specs that nest, misleading passages among the hits."""

import copy
from typing import Any

import pytest

from ragbench.errors import DataError
from ragbench.retrievers import RETRIEVERS, Corpus, Passage, Retriever, make_retriever
from ragbench.retrievers.factory import make_spec, parse_spec, split_specs
from tests.programs.shelf import TEXTS
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
def test_fused_scores_equal_hand_computed_values(
    settings: dict[str, Any], expected: dict[str, float]
) -> None:
    found = fused(**settings)
    assert [pid for pid, _ in found] == list(expected)
    assert dict(found) == pytest.approx(expected)
    assert {*ASKED} == {2 * settings.get("k", 5)}  # each side for twice as many


# -- specs and the distractor setting


def test_parse_spec_of_nested_specs() -> None:
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
    found = own.search("cat", k=5)  # all that it has, also what does not match
    assert [(p.pid, p.score > 0) for p in found] == [("p1", True), ("p2", False)]
    assert len(own.search("horse", k=1)) == 1
    assert retriever.for_question("q") is own
    assert copy.deepcopy(retriever) is retriever
    with pytest.raises(DataError, match="for_question"):
        retriever.search("cat", k=1)
    with pytest.raises(DataError, match="--setting pooled"):
        retriever.for_question("another")


# -- misleading passages: what each kind is, where they are put, and what the draw depends on

CORPUS = Corpus([Passage(title, title, text) for title, text in TEXTS.items()])


def misled(kind: str, query: str, *passages: Passage) -> tuple[Passage | None, list[Passage]]:
    """What one search over `passages` is given beside its hits."""
    corpus = Corpus([*passages, Passage("donor", "Ada Brook", "About a brook.")])
    settings = {"rate": 1, "per_search": 1, "kinds": kind}
    made = make_retriever("distracting", corpus, **settings)
    whole = make_retriever("bm25", corpus).search(query, k=1)
    for number in range(20):  # the made-up passage may be the one that drops out
        found = made.presented(f"{query}{' ' * number}", [*whole, *whole])
        put = [p for p in found if p.pid.startswith("distractor-")]
        if put:
            return put[0], [p for p in found if p not in put]
    return None, whole


@pytest.mark.parametrize(
    ("kind", "text", "title", "begins"),
    [
        ("look_alike", "Harwick is in Dunmoor.", "Harwick", "Harwick is in Ada Brook."),
        ("look_alike", "nothing to change here, harwick", "Harwick", ""),
        ("look_alike", "It has 900 people in Harwick.", "Harwick", "It has 90"),
        ("false_shortcut", "Harwick lies there.", "Harwick", "Where is Harwick: Ada Brook. No"),
        ("split_evidence", "It has a Mayor. It is Harwick.", "", "It is Harwick."),
        ("split_evidence", "One sentence of Harwick.", "", ""),
        ("subjective", "A town. Harwick is in Dunmoor.", "Harwick",
         "As many people see it: Harwick is in Ada Brook. Whoever"),
        ("neutral", "Harwick lies there.", "Ada Brook", "About a brook."),
    ],
)  # fmt: skip
def test_distractor_of_each_kind_changes_the_text(
    kind: str, text: str, title: str, begins: str
) -> None:
    made, kept = misled(kind, "Where is Harwick?", Passage("1", "Harwick", text))
    if not begins:
        assert made is None
        return
    assert made is not None
    assert (made.title, made.text.startswith(begins)) == (title, True), made.text
    assert all(p.pid == "1" for p in kept)  # under its own pid, as gold passages are found
    if kind == "split_evidence":
        assert any(p.text == "It has a Mayor." for p in kept)


def test_the_rate_is_the_share_of_searches_tampered_with() -> None:
    plain = make_retriever("bm25", CORPUS)
    queries = [f"town novel {n}" for n in range(400)]
    before = plain.search_many(queries, k=3)
    for rate, low, high in ((0, 0, 0), (0.25, 0.19, 0.31), (1, 1, 1)):
        tampered = make_retriever("distracting", CORPUS, rate=rate).search_many(queries, k=3)
        changed = sum(a != b for a, b in zip(before, tampered, strict=True)) / len(queries)
        assert low <= changed <= high
        for hits, others in zip(before, tampered, strict=True):
            assert [hit.score for hit in hits] == [hit.score for hit in others]


def test_a_search_depends_on_seed_and_query_alone() -> None:
    def found(seed: int) -> list[list[Passage]]:
        made = make_retriever("distracting", CORPUS, rate=1, seed=seed)
        return made.search_many([f"town novel {n}" for n in range(20)], k=3)

    assert found(1) == found(1)
    assert found(1) != found(2)
    alone = make_retriever("distracting", CORPUS, rate=1, seed=1).search("town novel 7", k=3)
    assert alone == found(1)[7]
