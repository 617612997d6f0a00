"""Modules and plug-ins of one's own: run as programs, contained where they fail or leave."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ragbench.errors import ConfigError, StopSignal
from ragbench.experiments.config import make_config
from ragbench.experiments.runs import evaluate
from ragbench.own_code import contained
from ragbench.programs.external import load_program
from ragbench.retrievers import Corpus, Passage
from ragbench.user_code import allow
from tests.fake_server import FakeServer
from tests.programs.shelf import ask, shelf

MODULE = """
import asyncio, sys
from concurrent.futures import ThreadPoolExecutor
import dspy

class Mine(BaseException):
    def __str__(self):
        raise ValueError("no text")

def leave():
    sys.exit(0)

IMPORT

class Own(dspy.Module):
    def __init__(self):
        super().__init__()
        MAKE
        self.answer = dspy.Predict("question -> answer")

    def forward(self, question):
        RAISE
        return self.answer(question=question)
"""
#: Whatever is no `Exception`, raised on a question about a film -> how its failure says so.
RAISED = {
    "raise Mine": "Mine(no message)",
    "ThreadPoolExecutor(1).submit(leave).result()": "SystemExit(0)",
}


def written(folder: Path, **places: str) -> str:
    """The spec of a module in whose PLACES statements stand."""
    text = MODULE
    for place in ("RAISE", "MAKE", "IMPORT"):
        text = text.replace(place, places.get(place, "pass"))
    path = folder / "own.py"
    path.write_text(text)
    allow(f"{path}:Own")
    return f"{path}:Own"


#: A plug-in whose retriever, program and metric raise what RAISE says, each where it is asked to.
PLUG_IN = """
import os, sys
from ragbench.metrics.base import add_metric
from ragbench.programs import PROGRAMS
from ragbench.programs.core import RAGProgram
from ragbench.retrievers.base import RETRIEVERS, Retriever

class Mine(BaseException): pass

def maybe(where):
    if os.environ["WHERE"] == where:
        RAISE

@RETRIEVERS.register("odd")
class Odd(Retriever):
    '''Odd.'''
    def _make(self, progress):
        maybe("index")
    def search(self, query, *, k):
        if "film" in query:
            maybe("search")
        return list(self.corpus)[:k]

def score(record):
    maybe("metric")
    return 1.0

add_metric("odd_metric", score, "odd")
maybe("import")
"""


@pytest.mark.parametrize("statement", RAISED)
def test_whatever_a_module_raises_is_a_failure_of_its_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "cache"))
    spec = written(tmp_path, RAISE=f"if 'film' in question: {statement}")
    with FakeServer() as server:
        result = evaluate(make_config({
            "program": spec, "lm": "openai/fake", "api_base": server.url, "limit": 3, "size": 100,
            "cache": False, "workers": 2, "out": tmp_path / "run",
        }))  # fmt: skip
    failed = [record.failure for record in result.records.values() if record.failure]
    assert len(result.records) == 3 >= len(failed) >= 1
    assert all(f"left by {RAISED[statement]}" in failure.message for failure in failed)


@pytest.mark.parametrize("leave", ["sys.exit(0)", "raise ValueError('no')"])
def test_what_fails_while_it_is_imported_or_made_is_named(tmp_path: Path, leave: str) -> None:
    with pytest.raises(ConfigError, match=r"own\.py.*(SystemExit|ValueError)"):
        load_program(written(tmp_path, IMPORT=leave))
    (tmp_path / "made").mkdir()
    program = load_program(written(tmp_path / "made", MAKE=leave))
    retriever = Corpus((Passage("1", "", "Orla met Tam."),))
    with pytest.raises(ConfigError, match=r"cannot be made: .*(SystemExit|ValueError)"):
        program(retriever)  # type: ignore[arg-type]  # is not looked at


def test_dspys_own_react_is_a_program_as_it_is() -> None:
    path = Path(__file__).parents[2] / "examples" / "dspy_react.py"
    allow(f"{path}:SearchReAct")
    program = load_program(f"{path}:SearchReAct")(shelf(), k=2)
    turn = {"next_thought": "Who?", "next_tool_name": "search"}
    replies: list[dict[str, object]] = [
        {**turn, "next_tool_args": {"query": "Orla Venn"}},
        {**turn, "next_tool_name": "finish", "next_tool_args": {}},
        {"reasoning": "So.", "answer": "Harwick"},
    ]
    prediction, lm, _ = ask(program, lambda asked: replies.pop(0))
    assert (prediction.answer, len(lm.asked)) == ("Harwick", 3)
    assert [(search.query, search.k) for search in prediction.searches] == [("Orla Venn", 2)]
    assert "She was born in Harwick" in lm.asked[1].prompt


def plug_in(folder: Path, statement: str) -> Path:
    info = folder / "odd-1.dist-info"
    info.mkdir(parents=True)
    (folder / "odd.py").write_text(PLUG_IN.replace("RAISE", statement))
    (info / "entry_points.txt").write_text("[ragbench]\nodd = odd\n")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: odd\nVersion: 1\n")
    return folder


def command(folder: Path, where: str, *argv: str) -> tuple[int, str]:
    path = os.pathsep.join([str(folder / "plug"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "ragbench", *argv], capture_output=True, text=True, timeout=120,
        env={**os.environ, "PYTHONPATH": path, "WHERE": where, "OPENAI_API_KEY": "none",
             "RAGBENCH_CACHE": str(folder / "cache")},
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_whatever_a_plug_in_raises_is_one_line_or_a_failure(tmp_path: Path) -> None:
    plug_in(tmp_path / "plug", "sys.exit(0) if where != 'metric' else [][1]")
    run = str(tmp_path / "run")
    with FakeServer() as server:
        given = ["eval", "--program", "vanilla", "--lm", "openai/fake", "--api-base", server.url]
        given += ["--limit", "3", "--size", "100", "--workers", "2", "--retriever", "odd"]
        asked = [*given, "--setting", "pooled", "--out", run]
        built = command(tmp_path, "index", *asked)
        imported = command(tmp_path, "import", "list", "retrievers")
        searched = command(tmp_path, "search", *asked)
    scored = command(tmp_path, "metric", "score", run, "--metric", "odd_metric")
    assert built[0] == 2
    assert "error: the index of Odd failed: RuntimeError: the index of Odd left by Sys" in built[1]
    assert imported[0] == 0
    assert "plug-in odd of odd is left out: RuntimeError: odd left by SystemExit" in imported[1]
    assert searched[0] in (0, 1)
    assert "retriever/RuntimeError" in searched[1]
    assert scored[0] == 2, scored[1]
    assert "error: metric odd_metric on question" in scored[1]
    assert "Traceback" not in built[1] + imported[1] + searched[1] + scored[1]


@pytest.mark.parametrize("end", [KeyboardInterrupt, StopSignal])
def test_what_is_to_end_the_work_passes(end: Callable[[], BaseException]) -> None:
    with pytest.raises((KeyboardInterrupt, StopSignal)), contained("it"):
        raise end()
