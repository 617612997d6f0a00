"""A metric of one's own, from a file, through a whole compile on a real server."""

import json
import re
from pathlib import Path
from typing import Any

import dspy
import pytest
from click.testing import CliRunner

from ragbench.cli.main import cli
from ragbench.errors import ConfigError
from ragbench.optimizers import OwnMetric, make_scorer
from ragbench.optimizers.scoring import full_metric
from ragbench.user_code import allow
from tests.fake_server import FakeServer, Hit, plausible
from tests.fakes import Asked
from tests.kills import write_questions
from tests.optimizers.world import SMALL, compiled, scripted, town

CODE = """
import dspy

def right(example, prediction, trace=None):
    return prediction.answer == example.answer

def graded(example, prediction, trace=None):
    return dspy.Prediction(score=0.4 if prediction.answer != example.answer else 1.0)

def explained(example, prediction, trace=None):
    right = prediction.answer == example.answer
    return dspy.Prediction(score=float(right), feedback="Mind the spelling of Zanzibar.")

def broken(example, prediction, trace=None):
    return prediction.no_such_field

def wrong(example, prediction, trace=None):
    return prediction.answer != example.answer

number = 3
"""
GOLD = dspy.Example(question="q", answer="Po", answers=["Po", "River Po"]).with_inputs("question")


@pytest.fixture
def spec(tmp_path: Path) -> str:
    (tmp_path / "mine.py").write_text(CODE)
    spec = f"{tmp_path / 'mine.py'}:"
    allow(
        *(
            spec + name
            for name in ("right", "graded", "explained", "broken", "wrong", "number", "missing")
        )
    )
    return spec


def test_own_metric_gives_the_score_and_the_best_candidate(spec: str) -> None:
    right, graded = make_scorer(f"{spec}right"), make_scorer(f"{spec}graded")
    good, bad = dspy.Prediction(answer="Po"), dspy.Prediction(answer="Rhine")
    assert (right(GOLD, good), right(GOLD, bad)) == (1.0, 0.0)
    assert (graded(GOLD, good), graded(GOLD, bad)) == (1.0, 0.4)
    kept = full_metric(graded)
    assert (bool(kept(GOLD, good, [])), bool(kept(GOLD, bad, []))) == (True, False)


@pytest.mark.parametrize(("name", "knobs"), [("gepa", {}), ("simba", {"demos": 0})])
def test_own_metric_if_it_has_feedback_sends_it_to_the_writer(
    name: str, knobs: dict[str, Any], spec: str, tmp_path: Path
) -> None:
    def luck(asked: Asked) -> dict[str, Any]:
        return {"answer": f"Ann {town(asked)}" if asked.number % 3 else "somebody"}

    writer = scripted(name="writer")
    fields = {"prompt_lm": writer, "scorer": make_scorer(f"{spec}explained"), "workers": 1}
    compiled(name, tmp_path, scripted(luck), knobs={**SMALL[name], **knobs}, **fields)
    assert writer.asked
    assert any("the spelling of Zanzibar" in asked.prompt for asked in writer.asked)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("broken", "fails on a gold answer: AttributeError"),
        ("number", "is not a function"),
        ("missing", "has no 'missing'; give --metric"),
    ],
)
def test_optimizer_of_a_user_if_unusable_has_a_one_line_error(
    name: str, words: str, spec: str
) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        OwnMetric(f"{spec}{name}").check(GOLD)
    assert "\n" not in str(caught.value)


def as_demonstrated(hit: Hit) -> str:
    """Answer right or wrong as the first demonstration does, without one by the question."""
    messages = hit.body["messages"]
    town = int(re.findall(r"[Tt]own (\d+)", messages[-1]["content"])[-1])
    shown = [each["content"] for each in messages if each["role"] == "assistant"]
    right = "Town" in shown[0] if shown else town % 2
    return plausible(hit).replace("some answer", f"Town {town}" if right else "elsewhere")


def test_compile_with_own_metric_selects_by_it_and_records_it(
    spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "cache"))
    with FakeServer(as_demonstrated) as server:
        for name in ("right", "wrong"):
            given = [
                "compile", "--program", "vanilla", "--dataset", "jsonl",
                "--data-file", str(write_questions(tmp_path, 40)), "--model", "openai/fake",
                "--model-base-url", server.url, "--adapter", "chat", "--optimizer", "bootstrap",
                "--train-limit", "6", "--val-limit", "6", "--metric", f"{spec}{name}",
                "--out", str(tmp_path / name),
            ]  # fmt: skip
            done = CliRunner().invoke(cli, given, catch_exceptions=False)
            assert done.exit_code == 0, done.output
            assert f"{spec}{name}" in done.output
            asked = json.loads((tmp_path / name / "compile.json").read_text())
            assert asked["optimizer"]["metric_sha256"] == OwnMetric(f"{spec}{name}").digest
            state = json.loads((tmp_path / name / "program.json").read_text())
            demos = [demo for part in state.values() for demo in part.get("demos", ())]
            kept = {demo["answer"].startswith("Town") for demo in demos if demo.get("augmented")}
            assert kept == {name == "right"}
