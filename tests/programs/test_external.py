"""Modules and plug-ins of one's own: run as programs, contained where they fail or leave."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ragbench.errors import ConfigError, StopSignal
from ragbench.experiments.config import make_config
from ragbench.experiments.runs.runner import evaluate
from ragbench.programs.external import load_program
from ragbench.retrievers import Corpus, Passage
from ragbench.user_code import allow, contained
from tests.fake_server import FakeServer
from tests.programs.shelf import ask, shelf

MODULE = """
import sys
from concurrent.futures import ThreadPoolExecutor
import dspy

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


def written(folder: Path, **places: str) -> str:
    """The spec of a module in whose PLACES statements stand."""
    text = MODULE
    for place in ("RAISE", "MAKE", "IMPORT"):
        text = text.replace(place, places.get(place, "pass"))
    folder.mkdir(exist_ok=True)
    (folder / "own.py").write_text(text)
    allow(f"{folder / 'own.py'}:Own")
    return f"{folder / 'own.py'}:Own"


def test_whatever_a_module_raises_is_a_failure_of_its_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "cache"))
    leaves = "ThreadPoolExecutor(1).submit(leave).result()"
    spec = written(tmp_path, RAISE=f"if 'film' in question: {leaves}")
    with FakeServer() as server:
        result = evaluate(make_config({
            "program": spec, "lm": "openai/fake", "api_base": server.url, "limit": 3, "size": 100,
            "cache": False, "workers": 2, "out": tmp_path / "run",
        }))  # fmt: skip
    failed = [record.failure for record in result.records.values() if record.failure]
    assert len(result.records) == 3 >= len(failed) >= 1
    assert all("left by SystemExit(0)" in failure.message for failure in failed)


@pytest.mark.parametrize("leave", ["sys.exit(0)", "raise ValueError('no')"])
def test_what_fails_while_it_is_imported_or_made_is_named(tmp_path: Path, leave: str) -> None:
    with pytest.raises(ConfigError, match=r"own\.py.*(SystemExit|ValueError)"):
        load_program(written(tmp_path, IMPORT=leave))
    program = load_program(written(tmp_path / "made", MAKE=leave))
    retriever = Corpus((Passage("1", "", "Orla met Tam."),))
    with pytest.raises(ConfigError, match=r"Cannot construct .*: .*(SystemExit|ValueError)"):
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


PLUG_IN = """
import sys
from ragbench.retrievers.base import RETRIEVERS, Retriever

@RETRIEVERS.register("odd")
class Odd(Retriever):
    '''Odd.'''
"""


DATA_PLUG_IN = """
from ragbench.data.base import data_set, make_example
from ragbench.data.load import Item, assemble, rows_of
from ragbench.data.mapping import Record, validate
from ragbench.experiments.score.protocols import add_protocol

add_protocol("riddling", description="Riddles.", source="none", measures=["em"])

class Riddle(Record):
    riddle: str
    solution: str
    page: str

@data_set("riddles", "riddle solution", keeps_ids=True)
def load(spec):
    '''Riddles.'''
    items = []
    for row in rows_of(spec):
        record = validate(Riddle, row)
        example = make_example(qid=record.riddle, question=record.riddle,
                               answers=[record.solution], gold_pids=[record.page])
        items.append(Item(row, example))
    return assemble(spec, items)
"""


def test_plug_ins_add_what_they_have_or_are_left_out_in_one_line(tmp_path: Path) -> None:
    leaves = PLUG_IN.replace("odd", "leaver") + "sys.exit(0)"
    for name, code in (("odd", PLUG_IN), ("leaver", leaves), ("riddles", DATA_PLUG_IN)):
        info = tmp_path / f"{name}-1.dist-info"
        info.mkdir()
        (tmp_path / f"{name}.py").write_text(code)
        (info / "entry_points.txt").write_text(f"[ragbench]\n{name} = {name}\n")
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (tmp_path / "q.jsonl").write_text('{"riddle": "Who is it?", "solution": "Ann", "page": "p"}\n')
    (tmp_path / "c.jsonl").write_text('{"id": "p", "text": "It is Ann."}\n')
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    code = (
        "from ragbench import load_dataset\n"
        "from ragbench.experiments.config import make_config\n"
        "from ragbench.experiments.score.protocols import get_protocol\n"
        "from ragbench.retrievers.base import RETRIEVERS\n"
        "files = {'data_file': 'q.jsonl', 'corpus_file': 'c.jsonl'}\n"
        "data = load_dataset(**files)\n"
        "print(make_config(files).dataset, data.setting, data.every[0].gold_pids, "
        "get_protocol('riddling').measures[0].metric, 'odd' in RETRIEVERS.names())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.stdout == "riddles pooled ['p'] em True\n", done.stderr
    left_out = "plug-in leaver of leaver is left out: RuntimeError: leaver left by SystemExit"
    assert left_out in done.stderr
    assert "Traceback" not in done.stderr


def test_what_is_to_end_the_work_passes() -> None:
    for end in (KeyboardInterrupt, StopSignal):
        with pytest.raises(end), contained("it"):
            raise end()
