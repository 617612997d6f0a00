"""What models said of a run that an older version scored still counts, and is not asked again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from ragbench.experiments.report import errors_of
from ragbench.experiments.report.scores import notes
from ragbench.experiments.score import JudgeRequest, ScoreRequest, score_run
from ragbench.experiments.score.annotate import Asking
from tests.fakes import Asked, Reply, ScriptedLM

OLD = Path(__file__).parents[1] / "compat" / "scored_by_models"


def nothing(asked: Asked) -> Reply:
    raise AssertionError(f"asked again: {asked.signature}")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return shutil.copytree(OLD, tmp_path / "run")


def test_no_reply_is_asked_for_again(run: Path) -> None:
    lm = ScriptedLM(nothing, name="judge")
    before: dict[str, Any] = json.loads((run / "scores.json").read_text("utf-8"))
    rules: list[Any] = ["ragbench", "arag", "grounding"]
    for rule in rules:
        repeats = 2 if rule == "ragbench" else 1
        judge = JudgeRequest(Asking(lm), rule, repeats)
        scored = score_run(run, ScoreRequest(judge=judge, attributor=Asking(lm)))
    assert len(errors_of(run, asking=Asking(lm)).wrong) == 4
    assert lm.asked == []
    judges = scored.summary["judges"]
    for name, old in before["judges"].items():
        kept = set(old) & set(judges[name]) - {"contain", "not_asked", "cut"}
        for key in kept:
            now = judges[name][key]
            if key in ("as_if", "billed"):  # which have more fields today
                now = {field: now[field] for field in old[key]}
            assert now == old[key]
    assert scored.summary["attribution"]["attributed"] == before["attribution"]["attributed"]
    for metric in ("judge", "judge_arag", "chain_fidelity_judged", "sp_f1", "evidence_f1"):
        now = scored.summary["scores"][metric]
        then = before["scores"][metric]
        failures = {key: now["failures"][key] for key in then["failures"]}
        assert {**{key: now[key] for key in then}, "failures": failures} == then


def test_its_summaries_are_shown_as_they_are(run: Path) -> None:
    lines = notes(score_run(run, ScoreRequest()))
    text = "\n".join(lines)
    for words in ("judge by scripted/judge", "claims judged by", "attributed by", "triples by"):
        assert words in text
