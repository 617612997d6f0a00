"""Supporting facts, joint scores and evidence: official formulas, and what counts as said."""

from dataclasses import replace

import pytest

from ragbench.metrics import get_metric
from ragbench.metrics.support import (
    musique_support_score,
    predicted_facts,
    predicted_pids,
    set_score,
    support_kind,
)
from tests.metrics.records import failure, record

GOLD = [["Ann Lee", 1], ["Oslo", 0]]


def score(name: str, sample: dict) -> float | None:
    return get_metric(name).score(sample)


def test_joint_multiplies_precision_and_recall_before_f1() -> None:
    # answer: precision 1/2, recall 1; sentences: precision 1, recall 1/2
    sample = record("Norway Europe", citations=[["Oslo", 0]])
    assert score("joint_precision", sample) == pytest.approx(0.5)
    assert score("joint_recall", sample) == pytest.approx(0.5)
    assert score("joint_f1", sample) == pytest.approx(0.5)
    assert score("joint_em", sample) == 0.0
    assert score("joint_em", record(citations=GOLD)) == 1.0
    assert score("joint_f1", record("no", answers=["no way"], citations=GOLD)) == 0.0


def test_support_if_nothing_is_cited_has_no_score() -> None:
    assert score("sp_f1", record()) is None
    assert score("joint_f1", record()) is None
    assert score("sp_f1", failure()) == score("joint_f1", failure()) == 0.0
    assert score("sp_f1", record(citations=GOLD, support=[])) is None
    assert score("sp_f1", replace(failure(), support=[])) is None
    assert score("sp_f1", record(attribution=[])) == 0.0


def test_support_if_nothing_is_cited_uses_the_attribution() -> None:
    sample = record(citations=[1], attribution=GOLD)
    assert support_kind(sample) == "attributed"
    assert predicted_facts(sample) == {("Ann Lee", 1), ("Oslo", 0)}
    assert support_kind(record(citations=GOLD, attribution=[])) == "cited"
    assert support_kind(record()) is None
    passages = record(citations=[1, 2])  # a cited passage names no sentence
    assert predicted_facts(passages) is None
    assert (score("sp_f1", passages), score("support_f1", passages)) == (None, 1.0)


def test_citations_by_number_pid_or_sentence_name_passages() -> None:
    assert predicted_pids(record(citations=[1, 3])) == {"p1", "no passage 3"}
    assert predicted_pids(record(citations=["p2"])) == {"p2"}
    assert predicted_pids(record(attribution=[["Atlantis", 0]])) == {"no passage Atlantis"}
    assert predicted_pids(record()) is None
    assert score("support_precision", record(citations=[1, 3])) == 0.5
    assert score("support_recall", record(citations=[1, 3])) == 0.5


def test_support_of_empty_sets() -> None:
    assert set_score(set(), set()) == (1.0, 0.0, 0.0, 0.0)  # HotpotQA: EM 1, F1 0
    assert musique_support_score(set(), set()) == (1.0, 0.0, 0.0, 1.0)  # MuSiQue mends the F1
    assert musique_support_score(set(), {"x"}).f1 == 0.0


def test_evidence_by_hand() -> None:
    gold = [["Red Sky", "author", "Ann Lee"], ["Ann Lee", "place of birth", "Oslo"]]
    said = [["red sky", "author", "Ann  Lee."], ["Oslo", "country", "Norway"], "not a triple"]
    sample = record(extra={"evidences": gold}, facts=said, citations=GOLD)
    assert score("evidence_precision", sample) == score("evidence_recall", sample) == 0.5
    assert score("evidence_em", sample) == 0.0  # one right and one wrong
    assert score("evidence_em", record(extra={"evidences": gold}, facts=gold)) == 1.0
    assert score("joint_f1", sample) == 0.5
    assert score("joint_em", sample) == 0.0
    assert score("evidence_f1", record(extra={"evidences": gold})) is None
    assert score("evidence_f1", replace(failure(), extra={"evidences": gold})) == 0.0
    assert score("evidence_f1", record(facts=said)) is None


def test_support_if_gold_repeats_a_sentence_counts_it_once() -> None:
    twice = record(support=[["Ann Lee", 1], ["Ann Lee", 1], ["Oslo", 0]], citations=[["Oslo", 0]])
    assert score("sp_recall", twice) == 0.5
    assert score("sp_f1", twice) == pytest.approx(2 / 3)


def test_joint_score_if_the_answer_is_an_alias_counts_it() -> None:
    named = record("the Kingdom", answers=["Norway", "Kingdom", "Norge"], citations=GOLD)
    assert score("joint_em", named) == score("joint_f1", named) == 1.0
    assert score("joint_em", replace(named, answer="Sweden")) == 0.0
