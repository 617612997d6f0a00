"""Exported templates, filled in without ragbench, are the requests that a program makes."""

import contextvars
import copy
import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy.utils.callback import BaseCallback
from pydantic import BaseModel

import ragbench as rb
from ragbench.errors import ConfigError
from ragbench.experiments.config.identity import SHIPPED_FOLDER
from ragbench.experiments.templates import templates_of
from ragbench.experiments.templates.render import render
from ragbench.ledger import open_ledger
from ragbench.lms.adapters import ADAPTERS
from ragbench.optimizers.knn import use_bank
from ragbench.passages import Corpus, Passage
from ragbench.programs import PROGRAMS
from ragbench.programs.core import RAGProgram
from ragbench.programs.external import ModuleProgram, keep_module
from ragbench.programs.wrappers import Voting, repair_form
from ragbench.retrievers.factory import make_retriever
from tests.fake_server import FakeServer
from tests.fakes import ScriptedLM
from tests.programs.shelf import TEXTS, shelf
from tests.programs.test_contract import ALL, never_stops

#: What could end a field, a reply or a template, in a question and in every passage.
MARKS = "[[ ## answer ## ]] </think> {{question}} {question} «Ulm» \\1 <|im_end|>\n\n\u2028 é"
TRICKY = f"Which county is Harwick in? {MARKS}"


class Calls(BaseCallback):
    """What each predictor was called with, and the messages that came of it."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, dict[str, Any], list[dict[str, Any]]]] = []
        self._predictor: contextvars.ContextVar[Any] = contextvars.ContextVar("predictor")

    def on_module_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        if isinstance(instance, dspy.Predict):
            self._predictor.set((instance, copy.copy(inputs["kwargs"])))

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        predictor, given = self._predictor.get((None, {}))
        fields = {k: copy.deepcopy(v) for k, v in given.items() if k not in ("signature", "config")}
        self.calls.append((predictor, fields, inputs["messages"]))


def calls_of_run(program: dspy.Module, adapter: str, question: str) -> Calls:
    """The calls of `program` by an adapter, which is DSPy's own for a person's own module."""
    calls = Calls()
    kind: type[dspy.Adapter] = ADAPTERS[adapter]
    if adapter == "chat" and isinstance(program, ModuleProgram):
        kind = dspy.ChatAdapter
    context = {"lm": ScriptedLM(never_stops), "adapter": kind()}
    with dspy.context(**context, callbacks=[calls]), open_ledger(), suppress(dspy.LMError):
        program(question=question)
    return calls


def tricky_shelf() -> Any:
    passages = [Passage(title, title, f"{text} {MARKS}") for title, text in TEXTS.items()]
    return make_retriever("bm25", Corpus(passages))


def with_demos(program: RAGProgram) -> RAGProgram:
    """`program` with a whole demonstration and one that lacks a field, as a compile leaves them."""
    for _, predictor in program.named_predictors():
        whole = {name: f"{name} {MARKS}" for name in predictor.signature.fields}
        first = next(iter(predictor.signature.input_fields))
        last = list(predictor.signature.output_fields)[-1]
        predictor.demos = [whole, {first: ["a", "b\nc"], last: 3}]
    return program


@pytest.mark.parametrize(("name", "variant"), ALL)
def test_each_request_of_a_program_is_a_template_filled_in(name: str, variant: str) -> None:
    program = with_demos(PROGRAMS.get(name)(tricky_shelf(), variant=variant, max_calls=7))
    document = json.loads(json.dumps(templates_of(program)))
    paths = {id(p): path.removesuffix(".predict") for path, p in program.named_predictors()}
    for adapter in ADAPTERS:
        calls = calls_of_run(program, adapter, TRICKY).calls
        assert calls
        for predictor, inputs, messages in calls:
            path = paths.get(id(predictor))
            if path is None:
                assert any("asked by no" in why for why in document["without_template"].values())
                continue
            templates = document["templates"][adapter]
            forms = [form for form in (path, f"{path}.last") if form in templates]
            assert messages in [render(document, adapter, form, inputs) for form in forms]


class Fact(BaseModel):
    """A typed input of a person's own program."""

    name: str
    year: int


class Typed(dspy.Signature):
    """Say which fact matters."""

    facts: list[Fact] = dspy.InputField()
    share: float | None = dspy.InputField()
    table: dict[str, list[int]] = dspy.InputField()
    listed: str = dspy.InputField()
    answer: str = dspy.OutputField()


class Own(dspy.Module):
    """A module with inputs of many types."""

    def __init__(self) -> None:
        super().__init__()
        self.choose = dspy.ChainOfThought(Typed)
        self.chat = dspy.Predict("history: dspy.History, question -> answer")

    def forward(self, question: str) -> dspy.Prediction:
        facts = [Fact(name=f"A {MARKS}", year=3), Fact(name="b", year=-1)]
        values = [[], ["one"], ["two\nlines", "« »"]]
        for share, listed in zip([None, 0.25, float("inf")], values, strict=True):
            table = {"é": [1, 2], MARKS: []}
            reply = self.choose(facts=facts, share=share, table=table, listed=listed)
        return reply


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_values_of_every_kind_are_written_as_dspy_writes_them(adapter: str) -> None:
    rb_program = PROGRAMS.get(keep_module(Own()))(shelf())
    document = templates_of(rb_program)
    assert document["without_template"] == {
        "module.chat": "an input of the type History is no text"
    }
    calls = calls_of_run(rb_program, adapter, "Which?").calls
    assert len(calls) == 3
    for _, inputs, messages in calls:
        plain = {**inputs, "facts": [fact.model_dump() for fact in inputs["facts"]]}
        assert render(document, adapter, "module.choose", plain) == messages
    with pytest.raises(KeyError, match="facts, share, table, listed"):
        render(document, adapter, "module.choose", {"facts": []})


def test_what_has_no_template_is_said() -> None:
    program = PROGRAMS.get("vanilla")(shelf(), answer_style="long")
    document = templates_of(Voting(repair_form(program), 3))
    assert [*document["without_template"]] == ["Voting", "FormRepaired"]
    system = document["templates"]["chat"]["answer"]["messages"][0]["content"]
    assert "a full answer with every fact" in system
    assert "Form of the answer" in system
    assert "act by native tools" in templates_of(PROGRAMS.get("react")(shelf()))["without_template"]
    use_bank(program, {"k": 1, "entries": [{"question": "Who?", "demos": {}}]})
    with pytest.raises(ConfigError, match="chooses its demonstrations at each question"):
        templates_of(program)


SCRIPT = """
import json, sys
from render import load, render
prompts = load("messages.json")
for adapter, inputs in json.load(sys.stdin):
    template = prompts["templates"][adapter]["answer"]
    body = {"messages": render(prompts, adapter, "answer", inputs), **template["request"]}
    print(json.dumps(body))
"""


def test_a_compiled_folder_becomes_the_bodies_that_a_server_is_sent(
    server: FakeServer, tmp_path: Path, command: Any
) -> None:
    folder = SHIPPED_FOLDER / "vanilla"
    code, out, _ = command("export", folder, "--to", "messages", "-o", tmp_path / "prompts")
    assert (code, "answer of vanilla" in out) == (0, True)
    asked = []
    bodies = []
    for adapter in ADAPTERS:
        program = rb.load_program(folder, retriever=rb.make_retriever("bm25", passages=["Po."]))
        calls = Calls()
        server.hits.clear()
        able = dspy.LM("openai/gpt-4o", api_base=server.url, api_key="none", cache=False)
        with dspy.context(lm=able, adapter=ADAPTERS[adapter](), callbacks=[calls]):
            program(question="Which Po?")
        asked.append((adapter, calls.calls[0][1]))
        bodies.append(server.hits[0].body)
    alone = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, '.')\n{SCRIPT}"]
    here = tmp_path / "prompts"
    given = json.dumps(asked)
    done = subprocess.run(alone, cwd=here, input=given, text=True, capture_output=True, check=True)
    for line, body in zip(done.stdout.splitlines(), bodies, strict=True):
        written = json.loads(line)
        assert len(written["messages"]) > 2  # demonstrations
        assert written == {name: body[name] for name in written}
    assert "response_format" in written


def test_a_module_of_ones_own_is_exported_as_plain_dspy_sends_it(server: FakeServer) -> None:
    module = dspy.Predict("question -> answer")
    lm = dspy.LM("openai/m", api_base=server.url, api_key="none")
    rb.evaluate(module, [dspy.Example(question=TRICKY, answer="Po")], lm=lm)
    program = PROGRAMS.get(keep_module(module))(rb.make_retriever("bm25", passages=["Po."]))
    [name] = templates_of(program)["templates"]["chat"]
    messages = render(templates_of(program), "chat", name, {"question": TRICKY})
    assert messages == server.hits[0].body["messages"]


@pytest.mark.parametrize(
    ("words", "cure"),
    [
        ("compiled/no --to messages -o p", "no compiled program"),
        ("compiled/no --to messages", "name a new one with -o FOLDER"),
        ("a b --to messages -o p", "takes one program"),
        ("a --to csv -o p --compiled x", "for --to messages"),
    ],
)
def test_mistakes_are_one_line(words: str, cure: str, tmp_path: Path, command: Any) -> None:
    code, _, err = command("export", *words.split())
    assert (code, err.count("\n")) == (2, 1)
    assert cure in err
