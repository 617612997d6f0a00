"""Failures: each is filed by the boundary that failed, and no key is in its message."""

import os
from collections.abc import Callable

import dspy
import pytest
from dspy.primitives.code_interpreter import CodeInterpreterError
from dspy.utils.exceptions import AdapterParseError, LMServerError

from ragbench.errors import DataError, LMSetupError, crossing
from ragbench.experiments.runs.runner import ask, classify
from ragbench.lms.calls import CallRefusedError
from ragbench.programs import PROGRAMS
from ragbench.programs.react import CorpusTools
from ragbench.redact import redact
from ragbench.retrievers.base import Corpus, Passage
from ragbench.retrievers.bm25 import BM25
from ragbench.retrievers.factory import make_retriever
from tests.fakes import ScriptedLM, plausible


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


def test_innermost_mark_counts_and_a_class_that_says_enough_wins() -> None:
    with pytest.raises(LMSetupError) as search, crossing("tool"), crossing("retriever"):
        raise LMSetupError("the embeddings server gave 2 vectors for 3 texts")
    with pytest.raises(LMServerError) as call, crossing("tool"):
        raise LMServerError("500", model="m")
    assert classify(search.value).boundary == "retriever"
    assert classify(call.value).boundary == "provider"


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
    monkeypatch: pytest.MonkeyPatch,
    program: str,
    broken: type,
    name: str,
    fails: Callable[..., object],
    boundary: str,
) -> None:
    monkeypatch.setattr(broken, name, fails)
    corpus = Corpus((Passage("p", "Oslo", "Oslo is a city.", ("Oslo is a city.",)),))
    made = PROGRAMS.get(program)(make_retriever("bm25", corpus, setting="pooled"))
    example = dspy.Example(qid="q", question="Where is Oslo?", answers=["Norway"])
    with dspy.context(lm=ScriptedLM(plausible), adapter=dspy.JSONAdapter()):
        record = ask(made, example)
    assert record.failure is not None
    assert record.failure.boundary == boundary


@pytest.mark.parametrize(
    "text",
    [
        "Incorrect API key provided: sk-abcdefghijklmnopqrstuvwx.",
        "Authorization: Bearer abcdefghijklmnopqrstuvwx",
        "key=abcdefghijklmnopqrstuvwx",
        "hf_abcdefghijklmnopqrstuvwx",
        "AIzaabcdefghijklmnopqrstuvwx",
    ],
)
def test_what_looks_like_a_key_is_taken_out(text: str) -> None:
    assert "abcdefghijklmnopqrstuvwx" not in redact(text)
    ordinary = "cannot read /tmp/a/key.json: the key 'qid' is missing, token 12 of 40"
    assert redact(ordinary) == ordinary


def test_keys_set_changed_and_removed_later_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "green-meadow-east and green-meadow-west"
    assert redact(text) == text
    monkeypatch.setenv("LATER_API_KEY", "green-meadow-east")
    assert redact(text) == "[LATER_API_KEY] and green-meadow-west"
    os.environ["LATER_API_KEY"] = "green-meadow-west"
    assert redact(text) == "green-meadow-east and [LATER_API_KEY]"
    monkeypatch.delenv("LATER_API_KEY")
    assert redact(text) == text
