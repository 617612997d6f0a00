"""The runs of `report --demo`: what they hold, and the prompts that they were recorded with."""

import json
import os
import signal
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from urllib.request import urlopen
from zipfile import ZipFile

import dspy
import pytest

import ragbench as rb
from ragbench.experiments.store import RunFolder, read_card, read_records
from ragbench.experiments.store.reader import unpacked
from ragbench.lms.adapters import make_adapter
from tests.fakes import ScriptedLM

DEMO = files("ragbench.cli").joinpath("demo.zip")
RUNS = ("ircot", "lookahead", "react", "self_rag", "vanilla", "vanilla-compiled")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    with DEMO.open("rb") as packed, ZipFile(packed) as archive:
        archive.extractall(folder)
    return folder / "runs"


def test_demo_is_served_until_ctrl_c(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "ragbench", "report", "--demo", "--port", "0", "--no-browser"],
        stdout=subprocess.PIPE, text=True, cwd=tmp_path,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "TMPDIR": str(tmp_path)},
    ) as process:  # fmt: skip
        address = process.stdout.readline().split()[0]
        with urlopen(f"{address}data") as answer:
            data = answer.read().decode()
        with urlopen(f"{address}piece/0/0") as answer:
            assert "system" in answer.read().decode(), "the page has the prompts"
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == "stopped\n"
    assert process.returncode == 0
    assert not any(tmp_path.iterdir()), "the unpacked runs are deleted"
    for name in RUNS:
        assert f"runs/{name}" in data
    assert len(DEMO.read_bytes()) < 1_300_000


def test_demo_has_the_same_48_questions_in_each_run_and_no_seconds(demo: Path) -> None:
    questions = set()
    for name in RUNS:
        records = read_records(demo / name)
        questions.add(tuple(sorted(records)))
        assert len(records) == 48
        assert not any(record.failed for record in records.values())
        assert {record.known("latency_s", 1.0) for record in records.values()} == {None}
    assert len(questions) == 1


@pytest.mark.parametrize("name", RUNS)
def test_demo_was_recorded_with_the_prompts_of_this_version(demo: Path, name: str) -> None:
    card = read_card(demo / name)
    data = rb.load_dataset("synthetic", setting="pooled")
    program = rb.make_program(card.program, rb.make_retriever("bm25", data), **card.knobs)
    lm = ScriptedLM(schema=False)
    with dspy.context(lm=lm, adapter=make_adapter("chat", lm)):
        program(question="Who founded the firm in Larnefield?")
        shapes = {dspy.settings.adapter.format_system_message(each.signature)
                  for each in program.predictors()}  # fmt: skip
    recorded = set()
    for (content,) in RunFolder(demo / name).reader.rows("SELECT text FROM prompts"):
        message = json.loads(unpacked(content) or "null")
        if isinstance(message, dict) and message.get("role") == "system":
            recorded.add(message["content"])
    prompts = "\n".join(asked.prompt for asked in lm.asked)
    changed = [text for text in recorded - shapes if text not in prompts]
    assert recorded
    assert not changed, "record the runs again (benchmarks/demo.py)"
