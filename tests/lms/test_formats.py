"""Adapters beside chat and JSON: each reads what a model writes in its format."""

import json
from pathlib import Path
from typing import Any

import dspy
import pytest

from ragbench.errors import RagbenchError
from ragbench.lms.adapters import make_adapter
from ragbench.lms.formats import NAMES, calls_of_reply
from ragbench.user_code import allow
from tests.fakes import Asked, ScriptedLM
from tests.optimizers.world import program

OWN = """
import dspy

class Plain(dspy.ChatAdapter):
    def parse(self, signature, completion):
        return dict.fromkeys(signature.output_fields, completion.upper())

class Nothing:
    pass
"""
QUESTION = "Who is the mayor of Town 3?"


def written(name: str) -> Any:
    """A script that answers in the format called `name`."""

    def script(asked: Asked) -> Any:
        if name == "xml":
            return "Well: <answer>\nAnn &amp; Bo\n</answer> and that is it"
        if name in ("baml", "json"):
            return json.dumps({"answer": "Ann & Bo"})
        if name == "two_step" and "[[" not in asked.prompt:
            return "I should say that it is Ann & Bo"
        return "[[ ## answer ## ]]\nAnn & Bo\n\n[[ ## completed ## ]]"

    return script


@pytest.mark.parametrize("name", NAMES)
def test_each_reads_its_own_format_in_the_calls_that_it_states(name: str) -> None:
    lm = ScriptedLM(written(name), schema=False)
    adapter = make_adapter(name, lm)
    with dspy.context(lm=lm, adapter=adapter):
        answer = program()(question=QUESTION).answer
    low, high = calls_of_reply(adapter)
    assert answer == "Ann & Bo"
    assert low <= len(lm.asked) <= high


def test_xml_that_cannot_be_read_is_asked_for_once_more_as_json() -> None:
    def script(asked: Asked) -> Any:
        return "I think so" if asked.number == 1 else {"answer": "Ann"}

    lm = ScriptedLM(script, schema=False)
    with dspy.context(lm=lm, adapter=make_adapter("xml", lm)):
        assert program()(question=QUESTION).answer == "Ann"
    assert len(lm.asked) == 2


def test_one_of_ones_own_is_used_and_a_mistake_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    spec = f"{tmp_path / 'mine.py'}:"
    with pytest.raises(RagbenchError, match="give --adapter"):
        make_adapter(f"{spec}Plain")
    allow(f"{spec}Plain", f"{spec}Nothing")
    lm = ScriptedLM(lambda asked: "ann")
    with dspy.context(lm=lm, adapter=make_adapter(f"{spec}Plain", lm)):
        assert program()(question=QUESTION).answer == "ANN"
    with pytest.raises(RagbenchError, match=r"no subclass of dspy\.Adapter"):
        make_adapter(f"{spec}Nothing")
    with pytest.raises(RagbenchError, match="did you mean xml"):
        make_adapter("xlm")
