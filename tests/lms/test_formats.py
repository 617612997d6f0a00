"""The adapters: each reads what a model writes in its format."""

import json
from pathlib import Path
from typing import Any

import dspy
import pytest

from ragbench.errors import RagbenchError
from ragbench.lms.adapters import ADAPTERS, calls_of_reply, make_adapter
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
        if name == "json":
            return json.dumps({"answer": "Ann & Bo"})
        return "[[ ## answer ## ]]\nAnn & Bo\n\n[[ ## completed ## ]]"

    return script


@pytest.mark.parametrize("name", ADAPTERS)
def test_each_reads_its_own_format_in_the_calls_that_it_states(name: str) -> None:
    lm = ScriptedLM(written(name), schema=False)
    adapter = make_adapter(name, lm)
    with dspy.context(lm=lm, adapter=adapter):
        answer = program()(question=QUESTION).answer
    low, high = calls_of_reply(adapter)
    assert answer == "Ann & Bo"
    assert low <= len(lm.asked) <= high


def test_one_of_ones_own_is_used_and_a_mistake_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    spec = f"{tmp_path / 'mine.py'}:"
    with pytest.raises(RagbenchError, match="give --adapter"):
        make_adapter(f"{spec}Plain")
    allow(f"{spec}Plain", f"{spec}Nothing")
    lm = ScriptedLM(lambda asked: "ann")
    with dspy.context(lm=lm, adapter=make_adapter(f"{spec}Plain", lm)):
        assert program()(question=QUESTION).answer == "ANN"
    with pytest.raises(RagbenchError, match=r"not a subclass of dspy\.Adapter"):
        make_adapter(f"{spec}Nothing")
    for removed in ("xml", "baml", "two_step"):
        with pytest.raises(RagbenchError, match="no adapter"):
            make_adapter(removed)
