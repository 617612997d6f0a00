"""A judge of claims is measured on claims whose labels are known, and its scores corrected."""

from collections import Counter
from pathlib import Path

import pytest

from ragbench.experiments.report.scores import notes
from ragbench.experiments.score.annotate.asking import Asking
from ragbench.experiments.score.annotate.calibration import facts_of, labelled_claims
from ragbench.experiments.score.scoring import JudgeRequest, ScoreRequest, score_run
from ragbench.metrics import stands_in
from tests.experiments.scored_runs import answered, make_run
from tests.fakes import Asked, Reply, ScriptedLM

TRIPLES = [["Ann Lee", "place of birth", "Oslo"], ["Ann Lee", "spouse", "Somebody Unnamed"]]


def credulous(asked: Asked) -> Reply:
    """Passes every claim but negated ones."""
    claims = asked.inputs["claims"].split('", "') if "claims" in asked.inputs else []
    return {"verdicts": ["unsupported" if "is not:" in c else "supported" for c in claims]}


def test_half_are_true_and_the_false_ones_are_of_every_kind() -> None:
    made = labelled_claims([], 300)
    kinds = Counter(kind for one in made for kind in one.kinds)
    assert kinds["true"] == 150
    assert set(kinds) == {"true", "reversed", "sibling", "negated", "relation"}
    assert min(kinds.values()) >= 15
    for one in made:
        claims = dict(zip(one.kinds, one.group.claims, strict=True))
        assert stands_in(claims["true"].rpartition(": ")[2], one.group.passages)
        assert len(set(one.group.claims)) == 2
    assert labelled_claims([], 300) == made


def test_facts_come_from_the_runs_own_records_where_their_passage_states_them() -> None:
    record = answered("q1", "Norway", extra={"evidences": TRIPLES})
    found = list(facts_of([record]))
    assert [(fact.subject, fact.answer) for fact in found] == [("Ann Lee", "Oslo")]
    assert list(facts_of([answered("q1", "Norway", extra={"evidences": TRIPLES}, pids=())])) == []


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run", [answered(f"q{n}", "Norway") for n in range(3)])


def test_a_corrected_score_has_its_low_end_below_its_high_one(tmp_path: Path) -> None:
    thought = {"action": "think", "input": "", "observation": "", "pids": [], "notes": {},
               "thought": "Ann Lee was born in Oslo."}  # fmt: skip
    rows = [answered(f"q{n}", "Norway", steps=[thought]) for n in range(8)]
    asking = Asking(ScriptedLM(credulous, name="judge"))
    request = ScoreRequest(judge=JudgeRequest(asking, "grounding", labelled=40))
    found = score_run(make_run(tmp_path / "thinking", rows), request).summary["judges"]
    corrected = found["grounding"]["corrected"]
    assert set(corrected) == {"chain_fidelity_judged", "hallucination_rate_judged"}
    for ends in corrected.values():
        assert ends["low"] <= ends["mean"] <= ends["high"]
        assert ends["low"] < ends["high"]


def test_scores_are_corrected_and_shown(run: Path) -> None:
    asking = Asking(ScriptedLM(credulous, name="judge"))
    scored = score_run(run, ScoreRequest(judge=JudgeRequest(asking, "grounding", labelled=40)))
    found = scored.summary["judges"]["grounding"]
    labelled = found["labelled"]
    assert (labelled["claims"], labelled["unscored"]) == (40, 0)
    assert labelled["errors"]["passed"] == labelled["errors"]["true"] == 20
    assert labelled["false_by_kind"]["reversed"]["right"] == 0
    rate = labelled["false_by_kind"]["negated"]
    assert rate["right"] == rate["n"] == labelled["errors"]["caught"] > 0
    corrected = found["corrected"]["hallucination_rate_judged"]
    assert (corrected["judged"], corrected["mean"], corrected["n"]) == (0.0, 0.0, 3)
    assert corrected["high"] > 0.5  # of three questions, by a judge that misses most
    text = "\n".join(notes(scored))
    assert "on 40 labelled claims it catches" in text
    assert "corrected for these errors, 0.000 as judged, over 3 answered questions" in text


def test_a_judge_no_better_than_chance_corrects_nothing(run: Path) -> None:
    everything = ScriptedLM(
        lambda asked: {"verdicts": ["supported"] * asked.inputs["claims"].count("[")}, name="judge"
    )
    request = JudgeRequest(Asking(everything), "grounding", labelled=40)
    scored = score_run(run, ScoreRequest(judge=request))
    found = scored.summary["judges"]["grounding"]
    assert found["corrected"] == {}
    assert "no better than chance" in "\n".join(notes(scored))
