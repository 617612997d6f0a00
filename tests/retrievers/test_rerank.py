"""Reranking by each kind of reranker."""

from typing import Any

import dspy
import pytest

from ragbench.errors import ConfigError
from ragbench.ledger import open_ledger
from ragbench.lms.local import is_installed
from ragbench.retrievers import make_retriever
from ragbench.retrievers.rerank import make_reranker
from tests.fakes import Reply, ScriptedLM
from tests.retrievers.conftest import make_corpus
from tests.retrievers.wire import serving

needs_model = pytest.mark.skipif(
    not is_installed("minilm-int8"), reason="needs `ragbench fetch minilm-int8`"
)
CORPUS = make_corpus(["cat one", "cat two", "cat three", "dog"], title=lambda i: "")


def test_rerank_if_off_equals_the_inner_retriever() -> None:
    with open_ledger() as ledger:
        off = make_retriever("rerank", CORPUS, inner="bm25", reranker="none").search("cat", k=2)
    assert (off, ledger.calls) == (make_retriever("bm25", CORPUS).search("cat", k=2), [])


def scores_by_length(path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    assert path == "/v1/rerank"
    rows = [{"index": i, "relevance_score": len(d)} for i, d in enumerate(body["documents"])]
    return 200, {"results": rows[::-1], "usage": {"total_tokens": 12}}


def test_an_endpoint_reorders_and_is_counted() -> None:
    with serving(scores_by_length) as wire, open_ledger() as ledger:
        settings = {"inner": "bm25", "reranker": wire.address, "model": "r1"}
        retriever = make_retriever("rerank", CORPUS, **settings)
        found = retriever.search("cat", k=2)
        assert retriever.search_many(["cat", "dog"], k=2)[0] == found
    assert [(p.pid, p.score) for p in found] == [("p2", 9.0), ("p0", 7.0)]  # ties by position
    assert wire.requests[0]["model"] == "r1"
    assert [(c.kind, c.prompt_tokens, c.cost_usd) for c in ledger.calls[:1]] == [
        ("rerank", 12, None)
    ]


def test_the_first_search_keeps_its_share() -> None:
    with serving(scores_by_length) as wire:
        settings = {"inner": "bm25", "reranker": wire.address, "weight": 0.25}
        first = make_retriever("bm25", CORPUS).search("cat three", k=20)
        found = make_retriever("rerank", CORPUS, **settings).search("cat three", k=20)
    low, high = first[-1].score, first[0].score
    share = {"p0": 0, "p1": 0, "p2": 0.25}  # of texts of 7, 7 and 9 characters
    expected = [share[p.pid] + 0.75 * (p.score - low) / (high - low) for p in first]
    assert [p.pid for p in found] == [p.pid for p in first]
    assert [p.score for p in found] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ({"ranking": [3, 1, 2]}, ["p2", "p0", "p1"]),
        ({"ranking": [2, 2, 9, 0]}, ["p1", "p0", "p2"]),
        ({"ranking": []}, ["p0", "p1", "p2"]),
        ("no ranking at all", ["p0", "p1", "p2"]),
    ],
)
def test_the_lm_orders_what_it_names_first(reply: Reply, expected: list[str]) -> None:
    retriever = make_retriever("rerank", CORPUS, inner="bm25", reranker="lm")
    with dspy.context(lm=ScriptedLM(lambda asked: reply)), open_ledger() as ledger:
        found = retriever.search("cat", k=3)
    assert [p.pid for p in found] == expected
    assert found[0].score == 1.0
    assert {call.signature for call in ledger.calls} == {"RankPassages"}


def test_make_reranker_if_the_spec_is_unknown_names_valid_specs() -> None:
    with pytest.raises(ConfigError, match="use one of none, maxsim"):
        make_reranker("maxism")


@needs_model
def test_maxsim_ranks_the_matching_passage_first() -> None:
    texts = ["Bananas are yellow.", "Paris is the capital of France.", "It rains in Bergen."]
    corpus = make_corpus(texts, title=lambda i: "")
    retriever = make_retriever("rerank", corpus, inner="dense", reranker="maxsim")
    with open_ledger() as ledger:
        found = retriever.search("What is the French capital?", k=3)
    assert found[0].pid == "p1"
    (rerank,) = [call for call in ledger.calls if call.kind == "rerank"]
    assert rerank.prompt_tokens > 0
