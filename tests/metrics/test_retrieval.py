"""Retrieval against ir-measures, the two views of a question, tokens, and what a question cost."""

import random
from dataclasses import replace

import ir_measures
import pytest

from ragbench.errors import UnknownNameError
from ragbench.metrics import get_metric
from ragbench.metrics.efficiency import spend
from ragbench.metrics.retrieval import ndcg, recall, reciprocal_rank, union
from ragbench.metrics.text import approx_tokens
from ragbench.record import Step
from tests.metrics.records import call, failure, passage, record, search


def test_measures_equal_ir_measures_on_generated_runs() -> None:
    rng, pids = random.Random(3), [f"d{i}" for i in range(30)]
    runs = [[rng.sample(pids, rng.randrange(1, most)) for most in (25, 6)] for _ in range(500)]
    qrels = [ir_measures.Qrel(str(q), pid, 1) for q, (_, gold) in enumerate(runs) for pid in gold]
    run = [
        ir_measures.ScoredDoc(str(q), pid, 100.0 - rank)
        for q, (ranking, _) in enumerate(runs)
        for rank, pid in enumerate(ranking)
    ]
    measures = {
        "R@5": lambda ranking, gold: recall(ranking[:5], gold),
        "R@20": lambda ranking, gold: recall(ranking[:20], gold),
        "RR@3": lambda ranking, gold: reciprocal_rank(ranking[:3], gold),
        "nDCG@2": lambda ranking, gold: ndcg(ranking, gold, k=2),
        "nDCG@10": lambda ranking, gold: ndcg(ranking, gold, k=10),
    }
    parsed = [ir_measures.parse_measure(name) for name in measures]
    checked = 0
    for found in ir_measures.iter_calc(parsed, qrels, run):
        ranking, gold = runs[int(found.query_id)]
        ours = measures[str(found.measure)](ranking, gold)
        assert ours == pytest.approx(found.value, abs=1e-9), (found.measure, ranking, gold)
        checked += 1
    assert checked == 500 * len(measures)


def score(name: str, sample: dict) -> float | None:
    return get_metric(name).score(sample)


TWO_SEARCHES = record(
    pids=("p3", "p1", "p2"),
    searches=[search("red sky", ["p3", "p1"]), search("ann lee", ["p1", "p2"])],
)


def test_union_and_per_search_by_hand() -> None:
    assert union(TWO_SEARCHES) == ["p3", "p1", "p2"]
    assert score("recall", TWO_SEARCHES) == score("all_recall", TWO_SEARCHES) == 1.0
    assert score("recall@2", TWO_SEARCHES) == 0.5
    assert score("all_recall@2", TWO_SEARCHES) == 0.0
    assert score("mrr", TWO_SEARCHES) == 0.5
    assert score("mrr@1", TWO_SEARCHES) == 0.0
    assert score("search_recall", TWO_SEARCHES) == 0.75  # 1/2 and 1
    assert score("search_recall@1", TWO_SEARCHES) == 0.25  # 0 and 1/2
    assert score("hops_to_gold", TWO_SEARCHES) == 2.0
    assert score("hops_to_gold", record(pids=("p1", "p3"))) is None
    assert score("hops_to_gold", record(gold_pids=[])) is None


def test_gold_in_context_if_the_context_is_known_ignores_retrieval() -> None:
    hidden = replace(TWO_SEARCHES, in_context=["p1", "p3"])
    assert (score("gold_in_context", hidden), score("all_recall", hidden)) == (0.0, 1.0)
    printed = record(pids=("p1",), in_context=["p2", "p1"])  # by code, past any search
    assert (score("gold_in_context", printed), score("all_recall", printed)) == (1.0, 0.0)
    assert score("gold_in_context", TWO_SEARCHES) == 1.0  # not known what was shown: what was found
    assert score("gold_in_context", record(gold_pids=[])) is None
    assert score("gold_in_context", replace(failure(), gold_pids=["p1"])) == 0.0


def test_retrieval_efficiency_divides_f1_by_searches() -> None:
    assert score("retrieval_efficiency", TWO_SEARCHES) == 0.5
    assert score("retrieval_efficiency", record(pids=())) is None
    assert score("retrieval_efficiency", failure()) == 0.0


def test_retrieval_metrics_without_gold_or_searches() -> None:
    assert score("recall@5", record(gold_pids=[])) is None
    assert score("recall@5", replace(failure(), gold_pids=[])) is None
    assert score("recall@5", failure()) == 0.0
    assert score("recall@5", record(pids=())) == 0.0  # nothing was searched, nothing was found
    assert score("search_recall@5", record(pids=())) is None


def test_get_metric_with_a_cutoff_parses_any_name() -> None:
    assert get_metric("recall@5").name == "recall@5"
    for bad in ("recall@0", "recall@x", "f1@5"):
        with pytest.raises(UnknownNameError, match=r"recall|f1"):
            get_metric(bad)


def test_retrieved_tokens_if_a_passage_repeats_counts_it_again() -> None:
    sizes = {pid: approx_tokens(passage(pid).text) for pid in ("p1", "p2", "p3")}
    expected = sizes["p3"] + 2 * sizes["p1"] + sizes["p2"]
    assert score("retrieved_tokens", TWO_SEARCHES) == expected > 0
    step = Step("read", notes={"retrieved": ["Oslo is the capital.", "It is old."]})
    sample = replace(TWO_SEARCHES, steps=[step, Step("think")])  # what shows parts counts alone
    assert score("retrieved_tokens", sample) == approx_tokens("Oslo is the capital.\nIt is old.")


def test_token_estimate_by_hand() -> None:
    texts = {"": 0, "Oslo is old.": 4, "internationalisation": 3, "1990": 2, "é": 1}
    assert {text: approx_tokens(text) for text in texts} == texts


def test_spending_counts_cached_calls_and_leaves_the_judge_out() -> None:
    calls = [
        *(call(), call(cached=True), call(kind="judge", cost_usd=None)),
        *(call(kind="embed", cost_usd=0.0), call(kind="rerank", cost_usd=0.0)),
    ]
    path = {"calls": 2, "latency_s": 1.0}
    assert spend(record(ledger={"calls": calls, "path": path})) == {
        "calls": 2, "embedding_and_reranking_calls": 2, "tokens": 220, "retrievals": 1,
        "embedding_and_reranking_tokens": 220,
        "cost_usd": pytest.approx(0.002), "latency_s": 0.6,
        "critical_path_calls": 2, "critical_path_s": 1.0,
    }  # fmt: skip
    unknown = record(ledger={"calls": [call(), call(cost_usd=None)], "path": path})
    assert score("cost_usd", unknown) is None
    broken = {"calls": [call(cost_usd=None, error="LMTimeoutError")], "path": path}
    assert score("cost_usd", record(ledger=broken)) == 0.0
    assert score("calls", failure()) == 1.0
