"""The runner: one record per question whatever happens, failures filed, nothing asked twice."""

import itertools
import os
from collections.abc import Callable
from pathlib import Path

import dspy
import pytest
from dspy.primitives.code_interpreter import CodeInterpreterError
from dspy.utils.exceptions import AdapterParseError, LMServerError

from ragbench.errors import DataError, RunError
from ragbench.experiments.config import RunConfig, make_config
from ragbench.experiments.runs.asking import ask, classify
from ragbench.experiments.runs.context import RunContext
from ragbench.experiments.runs.runner import run
from ragbench.experiments.runs.summary import Evaluation
from ragbench.lms.adapters import make_adapter
from ragbench.lms.calls import CallRefusedError
from ragbench.passages import Corpus, Passage
from ragbench.programs import PROGRAMS
from ragbench.programs.react import CorpusTools
from ragbench.redact import redact
from ragbench.retrievers.bm25 import BM25
from ragbench.retrievers.factory import make_retriever
from tests.fakes import Asked, Reply, ScriptedLM, plausible
from tests.runs import record_rows

Run = Callable[..., tuple[Evaluation, ScriptedLM]]


def script(asked: Asked) -> Reply:
    return {**plausible(asked), "answer": "Oslo"} if "answer" in asked.fields else plausible(asked)


@pytest.fixture
def ran(tmp_path: Path, like: RunContext) -> Run:
    """Runs a program over some questions, and gives what it came to with its LM."""

    def make(
        reply: ScriptedLM | Callable[[Asked], Reply] = script, **over: object
    ) -> tuple[Evaluation, ScriptedLM]:
        out = str(tmp_path / "run")
        given = {"program": "vanilla", "limit": 6, "size": 200, "out": out, **over}
        config: RunConfig = make_config(given)
        lm = reply if isinstance(reply, ScriptedLM) else ScriptedLM(reply)
        program = PROGRAMS.get(config.program)(like.retriever, **config.set)
        examples = like.dataset.splits["test"][: config.limit]
        adapter = make_adapter("auto", lm)
        made = RunContext(config, like.dataset, examples, like.retriever, program, lm, {}, adapter)
        return run(made), lm

    return make


def test_every_question_leaves_one_record_and_none_is_asked_again(ran: Run) -> None:
    for limit, asked in ((6, 6), (6, 0), (9, 3)):
        result, lm = ran(limit=limit)
        assert len(result.records) == len(record_rows(result.folder)) == limit
        assert len(lm.asked) == asked
    assert dspy.settings.lm is None  # no setting leaks out of a run
    with pytest.raises(RunError, match=r"holds a run with .*seed"):
        ran(seed=7)


def test_failure_is_recorded_scored_zero_and_asked_again(ran: Run) -> None:
    calls = itertools.count(1)
    result, _ = ran(lambda asked: RuntimeError("boom") if next(calls) == 2 else script(asked))
    (failed,) = [r for r in result.records.values() if r.failure]
    assert (failed.answer, failed.scores) == (None, {"em": 0.0, "f1": 0.0})
    assert result.summary.failed == 1
    retried, lm = ran()
    assert all(r.failure is None for r in retried.records.values())
    assert len(lm.asked) == 1


# -- failures --------------------------------------------------------------------------------------


class CursedError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text either")


@pytest.mark.parametrize(
    ("error", "boundary"),
    [
        (LMServerError("500", model="m"), "provider"),
        (CallRefusedError("no calls left", model="m"), "limit"),
        (AdapterParseError("A", dspy.Signature("q -> a"), "text", "no field"), "parse"),
        (CodeInterpreterError("the worker is gone"), "tool"),
        (DataError("cannot keep an index"), "retriever"),
        (ZeroDivisionError("ours"), "program"),
        (CursedError(), "program"),
    ],
)
def test_class_of_the_error_names_the_boundary(error: Exception, boundary: str) -> None:
    assert classify(error).boundary == boundary


def fail(*_: object, **__: object) -> None:
    raise KeyError("p7")


def broken_search(self: object, query: str) -> str:
    """Search."""
    raise KeyError("p7")


@pytest.mark.parametrize(
    ("program", "broken", "name", "fails", "boundary"),
    [
        ("vanilla", BM25, "search_many", fail, "retriever"),
        ("react", CorpusTools, "search", broken_search, "tool"),
        ("vanilla", PROGRAMS.get("vanilla"), "solve", fail, "program"),
    ],
)
def test_the_record_names_what_failed(
    monkeypatch: pytest.MonkeyPatch, program: str, broken: type, name: str,
    fails: Callable[..., object], boundary: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(broken, name, fails)
    corpus = Corpus((Passage("p", "Oslo", "Oslo is a city.", ("Oslo is a city.",)),))
    made = PROGRAMS.get(program)(make_retriever("bm25", corpus, setting="pooled"))
    example = dspy.Example(qid="q", question="Where is Oslo?", answers=["Norway"])
    with dspy.context(lm=ScriptedLM(plausible), adapter=dspy.JSONAdapter()):
        record = ask(made, example)
    assert record.failure.boundary == boundary


def test_keys_are_taken_out_also_those_set_later(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "abcdefghijklmnopqrstuvwx"
    for text in ("provided: sk-{}.", "Authorization: Bearer {}", "key={}", "hf_{}", "AIza{}"):
        assert secret not in redact(text.format(secret))
    ordinary = "cannot read /tmp/a/key.json: the key 'qid' is missing, token 12 of 40"
    text = "green-meadow-east and green-meadow-west"
    assert (redact(ordinary), redact(text)) == (ordinary, text)
    monkeypatch.setenv("LATER_API_KEY", "green-meadow-east")
    assert redact(text) == "[LATER_API_KEY] and green-meadow-west"
    os.environ["LATER_API_KEY"] = "green-meadow-west"
    assert redact(text) == "green-meadow-east and [LATER_API_KEY]"
    monkeypatch.delenv("LATER_API_KEY")
    assert redact(text) == text
