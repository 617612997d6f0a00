"""Grounding by a judge: every claim labelled once."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ragbench.experiments.score.asking import Asking, read_journal
from ragbench.experiments.score.grounding import MOST_CLAIMS
from ragbench.experiments.score.scoring import JudgeRequest, Scored, ScoreRequest, score_run
from ragbench.metrics import get_metric
from ragbench.record import Record
from tests.cli.test_mistakes import run as command
from tests.experiments.scored_runs import answered, make_run
from tests.fakes import Asked, Reply, ScriptedLM
from tests.metrics.records import failure


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


def grounded(folder: Path, lm: ScriptedLM) -> Scored:
    return score_run(folder, ScoreRequest(judge=JudgeRequest(Asking(lm), "grounding")))


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


def test_many_claims_are_asked_about_in_parts(tmp_path: Path) -> None:
    said = " ".join(f"Claim {n} is about {'a boat' if n % 3 else 'Oslo'}." for n in range(20))
    run = make_run(tmp_path / "run", [answered("q1", "yes", steps=thoughts(said))])
    lm = labelling("boat")
    assert grounded(run, lm).records[0].scores["chain_fidelity_judged"] == 7 / 20
    assert len(lm.asked) == -(-20 // MOST_CLAIMS)
    assert {row["pass"] for row in read_journal(run)} == {"grounding"}
