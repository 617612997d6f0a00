"""Grounding by a judge: every claim labelled once, strictly."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ragbench.errors import ConfigError
from ragbench.experiments.score.annotate.asking import Asking, read_journal
from ragbench.experiments.score.annotate.grounding import MOST_CLAIMS, Group, label_claims
from ragbench.experiments.score.scoring import JudgeRequest, ScoreRequest, score_run
from ragbench.metrics import get_metric
from tests.cli.test_mistakes import run as command
from tests.experiments.scored_runs import answered, make_run
from tests.fakes import Asked, Reply, ScriptedLM
from tests.metrics.records import PASSAGES, failure, passage


def thoughts(*texts: str) -> list[dict[str, Any]]:
    plain = {"action": "think", "input": "", "observation": "", "pids": [], "notes": {}}
    return [{**plain, "thought": text} for text in texts]


SAID = "Ann Lee wrote Red Sky. She owned a red boat."


def labelling(asked: Asked) -> Reply:
    """Every claim with a boat in it is unsupported."""
    assert asked.signature == "LabelClaims"
    claims = asked.inputs["claims"].split('", "')
    return {
        "verdicts": ["unsupported" if "boat" in c or "Chad" in c else "supported" for c in claims]
    }


def grounding(lm: ScriptedLM, **fields: Any) -> ScoreRequest:
    return ScoreRequest(judge=JudgeRequest(Asking(lm), rule="grounding", **fields))


def records() -> list[dict[str, Any]]:
    return [
        answered("q1", "Norway", steps=thoughts(SAID)),
        answered("q2", "Chad"),
        answered("q3", "yes"),
        answered("q4", "Oslo", pids=()),
        replace(failure(), qid="q5"),
    ]


def test_both_metrics_are_filled_marked_and_kept(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", records())
    lm = ScriptedLM(labelling, name="judge")
    scored = score_run(folder, grounding(lm))
    rows = {r.qid: r.scores for r in scored.records}
    assert rows["q1"] == {"chain_fidelity_judged": 0.5, "hallucination_rate_judged": 0.0}
    assert rows["q2"] == {"chain_fidelity_judged": None, "hallucination_rate_judged": 1.0}
    assert rows["q3"] == {"chain_fidelity_judged": None, "hallucination_rate_judged": None}
    assert rows["q4"]["hallucination_rate_judged"] == 1.0  # nothing was retrieved: not asked
    scores = scored.summary["scores"]
    assert scores["chain_fidelity_judged"]["mean"] == 0.25  # the failed one has 0
    assert scores["hallucination_rate_judged"]["mean"] == 0.75
    found = scored.summary["judges"]["grounding"]
    assert (found["claims"], found["supported"], found["unsupported"]) == (5, 2, 3)
    assert len(lm.asked) == 3
    shown = next(asked for asked in lm.asked if "Chad" in asked.prompt)
    assert "In which country" in shown.inputs["claims"]
    again = score_run(folder, ScoreRequest()).summary
    assert again["scores"]["chain_fidelity_judged"]["mean"] == 0.25
    assert score_run(folder, grounding(lm)).summary["judges"]["grounding"] == found
    assert len(lm.asked) == 3
    assert get_metric("hallucination_rate_judged").higher_is_better is False


@pytest.mark.parametrize(
    "reply", [{"verdicts": ["supported"]}, {"verdicts": ["yes", "no"]}, {"verdicts": []}, "hm"]
)
def test_reply_that_does_not_fit_leaves_the_question_unscored(tmp_path: Path, reply: Reply) -> None:
    folder = make_run(tmp_path / "run", [answered("q1", "yes", steps=thoughts(SAID))])
    lm = ScriptedLM(lambda asked: reply, name="judge", schema=False)
    scored = score_run(folder, grounding(lm))
    assert scored.records[0].scores["chain_fidelity_judged"] is None
    assert "chain_fidelity_judged" not in scored.summary["scores"]
    assert scored.summary["judges"]["grounding"]["unscored"] == 2
    assert len(lm.asked) == 2  # asked for once more


def test_many_claims_are_asked_about_in_parts_and_come_back_in_order(tmp_path: Path) -> None:
    tmp_path.joinpath("run").mkdir()
    claims = [f"Claim {n} is about {'a boat' if n % 3 else 'Oslo'}." for n in range(20)]
    group = Group("q1", claims, claims, [passage(pid) for pid, _, _ in PASSAGES])
    lm = ScriptedLM(labelling, name="judge")
    labels, _ = label_claims(tmp_path / "run", [group], Asking(lm))
    assert labels == [[n % 3 == 0 for n in range(20)]]
    assert len(lm.asked) == -(-20 // MOST_CLAIMS)
    assert {row["pass"] for row in read_journal(tmp_path / "run")} == {"grounding"}


def test_grounding_takes_no_repeats_and_no_self_judge(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", records())
    with pytest.raises(ConfigError, match="--repeats"):
        score_run(folder, grounding(ScriptedLM(labelling, name="judge"), repeats=2))
    with pytest.raises(ConfigError, match="--allow-self-judge"):
        score_run(folder, grounding(ScriptedLM(labelling, name="answerer")))


def test_command_shows_what_was_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_run(tmp_path / "run", records())
    score_run(folder, grounding(ScriptedLM(labelling, name="judge")))
    code, out, _ = command(capsys, "score", str(folder))
    assert code == 0
    assert "5 claims judged by scripted/judge: 2 supported, 3 not; " in out
    assert "0 unscored, 0 not asked, 0 cut; took 3 calls" in out
    assert "| chain_fidelity_judged " in out
