"""The Python API, over a real server on loopback and real folders."""

import re
from pathlib import Path
from typing import Any

import dspy
import pytest

import ragbench as rb
from ragbench.data.user_data import own_dataset
from ragbench.errors import RagbenchError
from tests.fake_server import FakeServer, Hit, plausible
from tests.kills import write_questions

MODULE = """
import dspy


class MyRAG(dspy.Module):
    def __init__(self, retriever, times=1):
        self.retriever, self.times = retriever, times
        self.generate = dspy.Predict("context, question -> answer")

    def forward(self, question):
        found = self.retriever.search(question)
        answer = self.generate(context=str(found), question=question).answer
        return dspy.Prediction(answer=answer, passages=found)


class Retrieving(dspy.Module):
    def __init__(self):
        self.retrieve = dspy.Retrieve(k=2)
        self.generate = dspy.Predict("context, question -> answer")

    def forward(self, question):
        context = str(self.retrieve(question).passages)
        return dspy.Prediction(answer=self.generate(context=context, question=question).answer)


class NoModule:
    pass
"""


def right(hit: Hit) -> str:
    """The town that the question asks for."""
    asked = re.findall(r"Which town number (\d+) lies", hit.prompt)
    return plausible(hit).replace("some answer", f"Town {asked[-1]}")


@pytest.fixture
def shared(server: FakeServer) -> dict[str, Any]:
    """Options of a run against a scripted server, from a folder with a module of one's own."""
    server.script = right
    Path("mine.py").write_text(MODULE)
    return {
        "data": "jsonl", "data_file": str(write_questions(Path(), 10)), "lm": "openai/fake",
        "api_base": server.url, "adapter": "chat", "limit": None, "cache": False,
    }  # fmt: skip


@pytest.mark.parametrize("name", ["MyRAG", "Retrieving"])
def test_a_module_of_ones_own_is_recorded_as_a_program_is(
    name: str, shared: dict[str, Any]
) -> None:
    run = rb.evaluate(f"mine.py:{name}", **shared)
    vanilla = rb.evaluate("vanilla", k=5, **shared)
    assert len(run.records) == len(vanilla.records) > 0
    assert run.scores["em"] == vanilla.scores["em"] == 1.0
    record = run.records[0]
    assert (len(record.searches), record.ledger.as_if.calls) == (1, 1)
    assert record.passages
    assert rb.compare(run, vanilla).scores["em"].n == len(run.records)


@pytest.mark.parametrize(
    ("spec", "knobs", "message"),
    [
        ("mine.py:MyRAG", {"init": {"tims": 2}}, "unexpected keyword argument 'tims'"),
        ("mine.py:Absent", {}, "has no 'Absent'"),
        ("mine.py:NoModule", {}, "not a subclass of dspy.Module"),
        ("absent.py:X", {}, "no file absent.py"),
        ("no_such_package.mod:X", {}, "No module named"),
        ("mine.py:MyRAG", {"init": "no mapping"}, "init='no mapping' is not allowed"),
        ("vanilla", {"k": True}, "vanilla: k=True is not allowed"),
    ],
)
def test_what_is_no_program_or_no_value_of_a_knob_is_refused_in_one_line(
    spec: str, knobs: dict[str, Any], message: str, shared: dict[str, Any]
) -> None:
    with pytest.raises(RagbenchError, match=message) as caught:
        rb.evaluate(spec, set=knobs, **shared)
    assert "\n" not in str(caught.value)


def test_examples_and_passages_of_ones_own_are_evaluated(shared: dict[str, Any]) -> None:
    examples = [
        dspy.Example(question=f"Which town number {n} lies on the river?", answer=f"Town {n}")
        for n in range(3)
    ]
    options = {name: shared[name] for name in ("lm", "api_base", "adapter", "cache")}
    run = rb.evaluate("vanilla", examples, corpus=["Town 1 lies on a river."], **options)
    assert sorted(record.question for record in run.records) == [e.question for e in examples]
    assert run.records[1].passages[0].text == "Town 1 lies on a river."
    again = rb.evaluate("vanilla", examples, corpus=["Town 1 lies on a river."], **options)
    assert again.folder == run.folder


def test_a_data_set_of_one_file_is_asked_whole_as_by_command(shared: dict[str, Any]) -> None:
    given = {name: shared[name] for name in ("lm", "api_base", "adapter", "cache")}
    dataset = rb.load_dataset(data_file=shared["data_file"])
    assert len(rb.evaluate("vanilla", dataset, **given).records) == 10
    part = rb.evaluate("vanilla", dataset, split="test", **given)
    assert len(part.records) == len(dataset.splits["test"]) < 10
    with pytest.raises(RagbenchError, match="fractions='1,0,0': the data are an object"):
        rb.evaluate("vanilla", dataset, fractions="1,0,0", **given)


def test_a_run_that_is_taken_up_again_says_so(
    shared: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    run = rb.evaluate("vanilla", **{**shared, "limit": 1})
    assert "Resuming" not in capsys.readouterr().err
    rb.evaluate("vanilla", **{**shared, "limit": 2})
    line = f"Resuming {run.folder}: 1 of 2 questions answered, 1 to run\n"
    assert line in capsys.readouterr().err


def test_a_run_is_a_table_and_a_frame(shared: dict[str, Any]) -> None:
    run = rb.open_run(rb.evaluate("vanilla", **shared).folder)
    frame = run.to_pandas()
    assert list(frame["em"]) == [1.0] * len(run.records)
    assert run.mean("f1") == 1.0
    assert str(run.folder) in repr(run)
    assert "failed=0" in repr(run)
    assert "<th>failed</th>" in run._repr_html_()


@pytest.mark.parametrize(
    ("given", "answers"),
    [
        ({"answer": "Ann Bo"}, ["Ann Bo"]),
        ({"answer": ["Ann Bo", "A. Bo"]}, ["Ann Bo", "A. Bo"]),
        ({"answer": True}, ["yes"]),
        ({"answer": False}, ["no"]),
        ({"answer": 0}, ["0"]),
        ({"answer": 2.0}, ["2"]),
        ({"answer": ("Ann Bo",), "answers": ["Ann Bo", "Bo"]}, ["Ann Bo", "Bo"]),
        ({"answers": "Ann Bo"}, ["Ann Bo"]),
    ],
)
def test_answers_of_an_example_are_those_of_a_file(given: Any, answers: list[str]) -> None:
    example = dspy.Example(question="Who?", **given)
    assert own_dataset({"test": [example]}).every[0].answers == answers


@pytest.mark.parametrize("given", [{"answer": {"t": 1}}, {"answers": [" "]}, {"answer": b"\xff"}])
def test_what_is_no_answer_of_an_example_is_one_line(given: Any) -> None:
    with pytest.raises(RagbenchError, match=r"^an example: field 'answers?[^\n]+$"):
        own_dataset({"test": [dspy.Example(question="Who?", **given)]})
