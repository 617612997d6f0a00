"""Modules of one's own that leave the process, or fail, where nobody expects it."""

from pathlib import Path

import pytest

from ragbench.errors import ConfigError
from ragbench.experiments.config import make_config
from ragbench.experiments.runs import evaluate
from ragbench.programs.external import load_program
from ragbench.retrievers import Corpus, Passage
from ragbench.user_code import allow
from tests.fake_server import FakeServer
from tests.programs.shelf import ask, shelf

MODULE = """
import sys
import dspy

class Own(dspy.Module):
    def __init__(self):
        super().__init__()
        self.answer = dspy.Predict("question -> answer")

    def forward(self, question):
        return self.answer(question=question)
"""


def written(folder: Path, text: str) -> str:
    path = folder / "own.py"
    path.write_text(text)
    allow(f"{path}:Own")
    return f"{path}:Own"


@pytest.mark.parametrize("leave", ["sys.exit(0)", "raise ValueError('no')"])
def test_what_fails_while_it_is_imported_is_named(tmp_path: Path, leave: str) -> None:
    spec = written(tmp_path, MODULE.replace("class Own", f"{leave}\nclass Own"))
    with pytest.raises(ConfigError, match=r"own\.py.*(SystemExit|ValueError)"):
        load_program(spec)


@pytest.mark.parametrize("leave", ["sys.exit(0)", "raise KeyError('no')"])
def test_what_fails_while_it_is_made_is_named(tmp_path: Path, leave: str) -> None:
    spec = written(tmp_path, MODULE.replace("super().__init__()", leave))
    retriever = Corpus((Passage("1", "", "Orla met Tam."),))
    with pytest.raises(ConfigError, match=r"cannot be made: .*(SystemExit|KeyError)"):
        load_program(spec)(retriever)  # type: ignore[arg-type]  # is not looked at


def test_a_module_that_leaves_the_process_fails_its_question_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "cache"))
    leaves = "if self.asked:\n            sys.exit(0)\n        self.asked = True\n        return"
    text = MODULE.replace("return", leaves).replace(
        "self.answer =", "self.asked = False\n        self.answer ="
    )
    with FakeServer() as server:
        result = evaluate(make_config({
            "program": written(tmp_path, text), "lm": "openai/fake", "api_base": server.url,
            "limit": 3, "size": 100, "cache": False, "workers": 1, "out": tmp_path / "run",
        }))  # fmt: skip
    failures = [
        record.failure.error if record.failure else "" for record in result.records.values()
    ]
    assert failures == ["", "RuntimeError", "RuntimeError"]


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
