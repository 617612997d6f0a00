"""A program that is taken home asks and answers as in its run."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dspy
import pytest

import ragbench as rb
from ragbench.errors import ConfigError, RagbenchError, RunError
from tests.fake_server import FakeServer, Hit, plausible

TEXTS = ["The Elbe is long.", "The Ulm is a hill.", "Which hill is it?"]
QUESTIONS = [dspy.Example(question=f"Which hill {n}?", answer="Ulm") for n in range(4)]


class Searches(dspy.Module):
    """Search and answer."""

    def __init__(self, retriever: Any) -> None:
        super().__init__()
        self.retriever = retriever
        self.generate = dspy.Predict("context, question -> answer")

    def forward(self, question: str) -> dspy.Prediction:
        found = self.retriever.search(question, k=2)
        return self.generate(context="\n".join(map(str, found)), question=question)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "cache"))


def better_with_examples(hit: Hit) -> str:
    """Know a lake only where an example of a river was shown."""
    text = plausible(hit)
    is_shown = len(hit.body["messages"]) > 2
    if is_shown and "lake" in hit.prompt:
        return text.replace("some answer", "Ulm")
    return text


@pytest.fixture
def served() -> Iterator[tuple[FakeServer, dspy.LM]]:
    with FakeServer(better_with_examples) as server:
        yield server, dspy.LM("openai/m", api_base=server.url, api_key="none", cache=False)


def compiled(lm: dspy.LM, program: Any = "vanilla", **options: Any) -> Path:
    train = [dspy.Example(question=f"Which river {n}?", answer="some answer") for n in range(2)]
    val = [dspy.Example(question=f"Which lake {n}?", answer="Ulm") for n in range(2)]
    options = {"corpus": TEXTS, "lm": lm, **options}
    return rb.compile(program, trainset=train, valset=val, **options)


def bodies(server: FakeServer) -> list[str]:
    found = sorted(str(hit.body["messages"]) for hit in server.hits)
    server.hits.clear()
    return found


@pytest.mark.parametrize("controls", [{}, {"form": True}, {"votes": 3}])
def test_knobs_state_form_and_votes_are_those_of_the_run(
    controls: dict[str, Any], served: tuple[FakeServer, dspy.LM]
) -> None:
    server, lm = served
    folder = compiled(lm, k=2)
    server.hits.clear()
    options = {"corpus": TEXTS, "lm": lm, "compiled": folder, "k": 2, "cache": False}
    run = rb.evaluate("vanilla", QUESTIONS, **options, **controls)
    asked = bodies(server)
    assert "Which river" in asked[0]
    assert len(asked) == len(QUESTIONS) * controls.get("votes", 1)
    retriever = rb.make_retriever("bm25", passages=TEXTS)
    for program in (
        rb.load_program(folder, retriever=retriever, **controls),
        rb.load_program(run, retriever=retriever, compiled=folder),
    ):
        assert isinstance(program, dspy.Module)
        with dspy.context(lm=lm):
            answers = [program(question=example.question).answer for example in QUESTIONS]
        assert bodies(server) == asked
        assert answers == [record.answer for record in run.records]


def test_a_module_of_ones_own_is_given_with_its_folder(served: tuple[FakeServer, dspy.LM]) -> None:
    server, lm = served
    retriever = rb.make_retriever("bm25", passages=TEXTS)
    folder = compiled(lm, Searches(retriever), corpus=None)
    with pytest.raises(ConfigError, match="needs the external code"):
        rb.load_program(folder, retriever=retriever)
    with pytest.raises(RunError, match="not vanilla"):
        rb.load_program(folder, retriever=retriever, program="vanilla")
    server.hits.clear()
    program = rb.load_program(folder, program=Searches(retriever))
    with dspy.context(lm=lm):
        assert program(question="Which hill?").answer == "some answer"
    assert "Which river" in bodies(server)[0]


def test_what_a_folder_may_not_say_is_asked_of_the_person(
    served: tuple[FakeServer, dspy.LM],
) -> None:
    _, lm = served
    folder = compiled(lm)
    run = rb.evaluate("vanilla", QUESTIONS, corpus=TEXTS, lm=lm, compiled=folder)
    other = compiled(lm, optimizer="labeled")

    def message(source: Any, **options: Any) -> str:
        retriever = options.pop("retriever", None)
        with pytest.raises(RagbenchError) as caught:
            rb.load_program(source, retriever=retriever, **options)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "give compiled=" in message(run)
    assert "not the compiled program that" in message(run, compiled=other)
    assert "not a compiled program" in message("absent")
    assert "rb.make_retriever('bm25'" in message(folder, retriever="bm25")
    assert "omit compiled" in message(folder, compiled=other)
