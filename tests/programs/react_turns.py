"""What the tests of ReAct share: its question, turns of its model, and a program."""

from __future__ import annotations

from typing import Any

from ragbench.programs.react.program import ReActRAG
from tests.programs.shelf import shelf

QUESTION = "Where was the author of Salt Road born?"


def act(tool: str, argument: str = "", thought: str = "") -> dict[str, Any]:
    given, used = (argument, "") if tool == "finish" else ("", argument)
    return {"thought": thought, "answer": given, "tool": tool, "argument": used}


FINISH = act("finish", "Harwick", "Harwick it is.")


def observations(prediction: Any) -> list[str]:
    return [step.observation for step in prediction.steps]


def unstarted(**knobs: Any) -> ReActRAG:
    """The program whose model makes the first search as well."""
    return ReActRAG(shelf(), initial_retrieval=False, **knobs)
