"""Specs: names with settings, nested."""

import copy

import pytest

from ragbench.errors import DataError
from ragbench.retrievers import Corpus, PerQuestion, make_retriever
from ragbench.retrievers.factory import make_spec, parse_spec, split_specs
from tests.retrievers.conftest import make_corpus


def test_nested_specs() -> None:
    spec = "rerank(inner=hybrid(sparse=bm25(k1=1.2,b=0.5),dense_weight=0.3),depth=9)"
    name, settings = parse_spec(spec)
    assert (name, settings["depth"]) == ("rerank", "9")
    assert parse_spec(settings["inner"])[1]["sparse"] == "bm25(k1=1.2,b=0.5)"
    assert make_spec(name, settings) == spec
    retriever = make_retriever(spec, make_corpus(["a"]))
    hybrid = retriever.parts[0]
    assert hybrid.settings.dense_weight == 0.3
    assert hybrid.parts[0].settings.k1 == 1.2


def test_lists_of_specs_split_outside_brackets_and_settings_win() -> None:
    assert split_specs("bm25(k1=1,b=0), dense,,hybrid") == ["bm25(k1=1,b=0)", "dense", "hybrid"]
    assert make_retriever("bm25(k1=1)", make_corpus(["a"]), k1=2).settings.k1 == 2


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


def test_distractor_takes_a_setting_called_inner() -> None:
    corpus = Corpus(make_corpus(["cat", "cat", "dog"]).passages, contexts={"q": (1, 2)})
    settings = {"inner": "bm25", "reranker": "none"}
    retriever = make_retriever("rerank", corpus, setting="distractor", **settings)
    assert [p.pid for p in retriever.for_question("q").search("cat", k=5)] == ["p1"]


def test_only_so_many_questions_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PerQuestion, "_KEPT", 2)
    corpus = Corpus(make_corpus("abc").passages, contexts={q: (0, 1) for q in "xyz"})
    retriever = make_retriever("bm25", corpus, setting="distractor")
    first = retriever.for_question("x")
    retriever.for_question("y")
    retriever.for_question("z")
    assert retriever.for_question("x") is not first
