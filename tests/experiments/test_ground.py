"""Grounding by a judge: every claim labelled once, and the scores corrected for its errors."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ragbench.experiments.report.scores import notes
from ragbench.experiments.score.asking import Asking, read_journal
from ragbench.experiments.score.grounding import MOST_CLAIMS, Group, label_claims, labelled_claims
from ragbench.experiments.score.scoring import JudgeRequest, Scored, ScoreRequest, score_run
from ragbench.metrics import get_metric
from ragbench.record import Record
from tests.cli.test_mistakes import run as command
from tests.experiments.scored_runs import answered, make_run
from tests.fakes import Asked, Reply, ScriptedLM
from tests.metrics.records import PASSAGES, failure, passage


def thoughts(*texts: str) -> list[dict[str, Any]]:
    plain = {"action": "think", "input": "", "observation": "", "pids": [], "notes": {}}
    return [{**plain, "thought": text} for text in texts]


SAID = "Ann Lee wrote Red Sky. She owned a red boat."


def labelling(*unsupported: str) -> ScriptedLM:
    """A judge by which every claim with one of the words is unsupported."""

    def script(asked: Asked) -> Reply:
        assert asked.signature == "LabelClaims"
        bad = [any(word in c for word in unsupported) for c in asked.inputs["claims"].split('", "')]
        return {"verdicts": ["unsupported" if one else "supported" for one in bad]}

    return ScriptedLM(script, name="judge")


def grounded(folder: Path, lm: ScriptedLM, **fields: Any) -> Scored:
    return score_run(folder, ScoreRequest(judge=JudgeRequest(Asking(lm), "grounding", **fields)))


def records() -> list[Record]:
    return [
        answered("q1", "Norway", steps=thoughts(SAID)),
        answered("q2", "Chad"),
        answered("q3", "yes"),
        answered("q4", "Oslo", pids=()),
        replace(failure(), qid="q5"),
    ]


def test_both_metrics_are_filled_marked_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, lm = make_run(tmp_path / "run", records()), labelling("boat", "Chad")
    scored = grounded(folder, lm)
    rows = {r.qid: r.scores for r in scored.records}
    assert rows["q1"] == {"chain_fidelity_judged": 0.5, "hallucination_rate_judged": 0.0}
    assert rows["q2"] == {"chain_fidelity_judged": None, "hallucination_rate_judged": 1.0}
    assert rows["q3"] == {"chain_fidelity_judged": None, "hallucination_rate_judged": None}
    assert rows["q4"]["hallucination_rate_judged"] == 1.0  # nothing was retrieved: not asked
    means = {name: scored.summary["scores"][name]["mean"] for name in rows["q1"]}
    # The failed one has the worst of each.
    assert means == {"chain_fidelity_judged": 0.25, "hallucination_rate_judged": 0.75}
    found = scored.summary["judges"]["grounding"]
    assert (found["claims"], found["supported"], found["unsupported"]) == (5, 2, 3)
    shown = next(asked for asked in lm.asked if "Chad" in asked.prompt)
    assert "In which country" in shown.inputs["claims"]
    again = score_run(folder, ScoreRequest()).summary
    assert again["scores"]["chain_fidelity_judged"]["mean"] == 0.25
    assert grounded(folder, lm).summary["judges"]["grounding"] == found
    assert len(lm.asked) == 3
    assert get_metric("hallucination_rate_judged").higher_is_better is False
    code, out, _ = command(capsys, "score", str(folder))
    assert code == 0
    assert "5 claims judged by scripted/judge: 2 supported, 3 not; " in out
    assert "0 unscored, 0 not asked, 0 cut; took 3 calls" in out
    assert "| chain_fidelity_judged " in out


@pytest.mark.parametrize("reply", [{"verdicts": ["supported"]}, {"verdicts": ["yes", "no"]}, "hm"])
def test_reply_that_does_not_fit_leaves_the_question_unscored(tmp_path: Path, reply: Reply) -> None:
    folder = make_run(tmp_path / "run", [answered("q1", "yes", steps=thoughts(SAID))])
    lm = ScriptedLM(lambda asked: reply, name="judge", schema=False)
    scored = grounded(folder, lm)
    assert scored.records[0].scores["chain_fidelity_judged"] is None
    assert "chain_fidelity_judged" not in scored.summary["scores"]
    assert scored.summary["judges"]["grounding"]["unscored"] == 2
    assert len(lm.asked) == 2  # asked for once more


def test_many_claims_are_asked_about_in_parts_and_come_back_in_order(tmp_path: Path) -> None:
    tmp_path.joinpath("run").mkdir()
    claims = [f"Claim {n} is about {'a boat' if n % 3 else 'Oslo'}." for n in range(20)]
    group, lm = Group("q1", claims, [passage(pid) for pid, _, _ in PASSAGES]), labelling("boat")
    labels, _ = label_claims(tmp_path / "run", [group], Asking(lm))
    assert labels == [[n % 3 == 0 for n in range(20)]]
    assert len(lm.asked) == -(-20 // MOST_CLAIMS)
    assert {row["pass"] for row in read_journal(tmp_path / "run")} == {"grounding"}


def test_half_of_the_labelled_claims_are_true_and_the_false_ones_are_of_every_kind() -> None:
    made = labelled_claims(300)
    kinds = Counter(kind for group in made for kind in group.kinds)
    assert set(kinds) == {"true", "reversed", "sibling", "negated", "relation"}
    assert (kinds["true"], min(kinds.values()) >= 15) == (150, True)
    assert 0.3 < sum(group.kinds[0] == "true" for group in made) / 150 < 0.7  # at either place
    for group in made:
        claims = dict(zip(group.kinds, group.claims, strict=True))
        answer = claims["true"].rpartition(": ")[2]
        assert any(answer in passage.text for passage in group.passages)
        assert len(set(group.claims)) == 2
    assert labelled_claims(300) == made


def test_scores_are_corrected_and_shown(tmp_path: Path) -> None:
    thought = thoughts("Ann Lee was born in Oslo.")
    run = make_run(tmp_path / "run", [answered(f"q{n}", "Norway", steps=thought) for n in range(8)])
    scored = grounded(run, labelling("is not:"), labelled=40)  # passes all but negated ones
    found = scored.summary["judges"]["grounding"]
    labelled = found["labelled"]
    assert (labelled["claims"], labelled["unscored"]) == (40, 0)
    assert labelled["errors"]["passed"] == labelled["errors"]["true"] == 20
    assert labelled["false_by_kind"]["reversed"]["right"] == 0
    rate = labelled["false_by_kind"]["negated"]
    assert rate["right"] == rate["n"] == labelled["errors"]["caught"] > 0
    assert set(found["corrected"]) == {"chain_fidelity_judged", "hallucination_rate_judged"}
    for ends in found["corrected"].values():
        assert ends["low"] <= ends["mean"] <= ends["high"]
        assert ends["low"] < ends["high"]
    corrected = found["corrected"]["hallucination_rate_judged"]
    assert (corrected["judged"], corrected["mean"], corrected["n"]) == (0.0, 0.0, 8)
    assert corrected["high"] > 0.5  # of few questions, by a judge that misses most
    fidelity = found["corrected"]["chain_fidelity_judged"]
    assert (fidelity["judged"], fidelity["mean"]) == (1.0, 1.0)
    text = "\n".join(notes(scored))
    assert "on 40 labelled claims it catches" in text
    assert "corrected for these errors, 0.000 as judged, over 8 answered questions" in text


def test_a_judge_no_better_than_chance_corrects_nothing(tmp_path: Path) -> None:
    scored = grounded(make_run(tmp_path / "run", [answered("q", "Chad")]), labelling(), labelled=40)
    assert scored.summary["judges"]["grounding"]["corrected"] == {}
    assert "no better than chance" in "\n".join(notes(scored))
