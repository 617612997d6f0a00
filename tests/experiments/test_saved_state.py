"""A state that plain DSPy saved is taken for the class that it was saved from, and for no other."""

import inspect
import json
from pathlib import Path
from typing import Any

import dspy
import pytest
from click.testing import CliRunner

import ragbench as rb
from ragbench.cli.main import cli
from ragbench.errors import RunError
from tests.fake_server import FakeServer


class Notes(dspy.Module):
    """Answer from what was written down."""

    def __init__(self) -> None:
        super().__init__()
        self.find = dspy.ChainOfThought("question -> notes")
        self.conclude = dspy.Predict("notes, question -> answer")

    def forward(self, question: str) -> dspy.Prediction:
        notes = self.find(question=question).notes
        return self.conclude(notes=notes, question=question)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes.py").write_text(f"import dspy\n\n\n{inspect.getsource(Notes)}")
    rows = [{"id": f"q{n}", "question": f"Which hill {n}?", "answer": "Ulm"} for n in range(9)]
    Path("asked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def saved(path: str = "mine.json", demo: str = "Elbe", lm: dspy.LM | None = None) -> str:
    """A state with a demonstration and an instruction, saved by plain DSPy."""
    module = Notes()
    predictor = module.conclude
    predictor.signature = predictor.signature.with_instructions("Answer in one word.")
    predictor.demos = [dspy.Example(notes="n", question="q", answer=demo)]
    if lm is not None:
        module.set_lm(lm)
    module.save(path)
    return path


def was_sent(server: FakeServer, text: str) -> bool:
    return any(text in str(hit.body["messages"]) for hit in server.hits)


def evaluated(server: FakeServer, **options: Any) -> rb.Run:
    lm = dspy.LM("openai/m", api_base=server.url, api_key="none")
    devset = [dspy.Example(question="Which hill?", answer="Ulm")]
    return rb.evaluate(Notes(), devset, lm=lm, adapter="chat", cache=False, **options)


def test_its_instructions_and_demonstrations_are_asked_with_and_another_state_is_another_run() -> (
    None
):
    with FakeServer() as server:
        plain = evaluated(server)
        assert not was_sent(server, "Elbe")
        taken = evaluated(server, compiled=saved())
        assert was_sent(server, "Elbe")
        assert was_sent(server, "Answer in one word.")
        changed = evaluated(server, compiled=saved(demo="Oder"))
    assert len({plain.folder, taken.folder, changed.folder}) == 3
    assert not taken.failed


def test_an_lm_in_a_state_is_said_and_not_followed(caplog: pytest.LogCaptureFixture) -> None:
    with FakeServer() as server, FakeServer() as other:
        lm = dspy.LM("openai/strong", api_base=other.url, api_key="none")
        run = evaluated(server, compiled=saved(lm=lm))
        assert not run.failed
        assert (len(server.hits), len(other.hits)) == (2, 0)
    assert "saved with the LM openai/strong" in caplog.text
    assert "held out is unknown" in caplog.text


@pytest.mark.parametrize("command", ["eval", "ask", "choose"])
def test_the_command_line_takes_it(command: str) -> None:
    saved()
    chosen = ["--program", "notes.py:Notes", "--compiled", "mine.json"]
    words = {
        "eval": ["eval", *chosen],
        "ask": ["ask", "Which hill?", *chosen],
        "choose": ["choose", "--dry-run", "--programs", "notes.py:Notes,notes.py:Notes@mine.json"],
    }
    with FakeServer() as server:
        server_words = ["--lm", f"openai/m@{server.url}", "--data-file", "asked.jsonl"]
        result = CliRunner().invoke(cli, [*words[command], *server_words])
        assert result.exit_code == 0, result.output
        assert was_sent(server, "Elbe") == (command != "choose")


def _changed(change: Any) -> str:
    state = json.loads(Path(saved()).read_text())
    change(state)
    Path("mine.json").write_text(json.dumps(state))
    return "mine.json"


def _whole() -> str:
    Notes().save("whole", save_program=True)
    return "whole"


def _written(text: str) -> str:
    Path("other.json").write_text(text)
    return "other.json"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: _changed(lambda s: s.pop("conclude")), "give --program FILE.py:Class"),
        (lambda: _changed(lambda s: s.update(more={"signature": {}})), "conclude, more, and"),
        (
            lambda: _changed(lambda s: s["conclude"]["signature"]["fields"].reverse()),
            "saved with the fields Answer: Question: Notes: and has Notes: Question: Answer:",
        ),
        (lambda: _changed(lambda s: s["conclude"].update(demos=[3])), "conclude is malformed"),
        (
            lambda: _changed(lambda s: s["conclude"].update(extended_signature={})),
            "DSPy 2.5 or older",
        ),
        (lambda: _written("[1]"), "a state is saved in Python with"),
        (lambda: _written("{"), "a state is saved in Python with"),
        (lambda: _written('{"answer": "Po"}'), "has no predictors"),
        (lambda: _written('{"metadata": {}}'), "has no predictors"),
        (_whole, "runs any code that it holds"),
        (lambda: "absent.json", "No such file"),
        (lambda: "absent.pkl", "runs any code that it holds"),
    ],
)  # fmt: skip
def test_another_file_is_refused_with_what_to_do(
    make: Any, message: str, server: FakeServer
) -> None:
    with pytest.raises(RunError) as caught:
        evaluated(server, compiled=make())
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not server.hits


def test_nothing_but_the_state_of_predictors_is_taken() -> None:
    def change(state: Any) -> None:
        state["conclude"].update(forward="x", config={"api_base": "http://127.0.0.1:9"})

    with FakeServer() as server:
        run = evaluated(server, compiled=_changed(change))
        assert not run.failed
        assert was_sent(server, "Elbe")
