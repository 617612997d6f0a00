"""Fusion against tables worked by hand."""

from typing import Any

import pytest

from ragbench.retrievers import RETRIEVERS, Passage, Retriever, make_retriever
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


def test_reciprocal_ranks_by_hand() -> None:
    # p0: .5/61 + .5/63; p2: .5/63 + .5/61; p1: .5/62; p3: .5/62; ties by position
    assert fused() == [
        ("p0", pytest.approx(0.5 / 61 + 0.5 / 63)),
        ("p2", pytest.approx(0.5 / 61 + 0.5 / 63)),
        ("p1", pytest.approx(0.5 / 62)),
        ("p3", pytest.approx(0.5 / 62)),
    ]


def test_weights_by_hand() -> None:
    assert fused(dense_weight=0.8, rrf_k=1, k=2) == [
        ("p2", pytest.approx(0.2 / 4 + 0.8 / 2)),
        ("p0", pytest.approx(0.2 / 2 + 0.8 / 4)),
    ]


def test_min_max_by_hand() -> None:
    # left: 1, .5, 0; right: 1, .5, 0
    assert fused(fusion="minmax") == [
        ("p0", pytest.approx(0.5)),
        ("p2", pytest.approx(0.5)),
        ("p1", pytest.approx(0.25)),
        ("p3", pytest.approx(0.25)),
    ]


def test_each_side_is_asked_for_twice_as_many() -> None:
    fused(k=3)
    assert ASKED == [6, 6]


@pytest.mark.parametrize(("weight", "expected"), [(0, ["p0", "p1", "p2"]), (1, ["p2", "p3", "p0"])])
def test_a_side_without_weight_adds_nothing(weight: float, expected: list[str]) -> None:
    assert [pid for pid, _ in fused(dense_weight=weight)] == expected
