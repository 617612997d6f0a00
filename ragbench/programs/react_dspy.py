"""`dspy.ReAct` with the tools of one question, its calls counted and its parse errors survived."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import dspy

from ragbench.programs.base import named
from ragbench.programs.tools import Toolbox
from ragbench.programs.trace import BudgetSpentError, StopReason, Trace
from ragbench.signatures.answering import DirectAnswer
from ragbench.signatures.reasoning import ReActStep


@dataclass
class _Run:
    trace: Trace
    box: Toolbox
    unreadable: bool = False
    error: Exception | None = None


# DSPy binds tools when the program is made; what they work on belongs to a question.
_RUN: ContextVar[_Run] = ContextVar("rb_react")


class TracedReAct(dspy.ReAct):
    """Use tools in turns until the answer is found."""

    def __init__(self, described: dict[str, tuple[str, str]], *, max_iters: int) -> None:
        tools = [
            _tool(name, argument, does)
            for name, (argument, does) in described.items()
            if name != "finish"  # DSPy adds its own
        ]
        super().__init__(DirectAnswer, tools=tools, max_iters=max_iters)
        named(self.react, ReActStep)
        named(self.extract, DirectAnswer)

    def run(self, trace: Trace, box: Toolbox) -> tuple[str, StopReason]:
        """The extracted answer to the trace's question, and why the loop ended."""
        run = _Run(trace, box)
        token = _RUN.set(run)
        try:
            reply = self(question=trace.question)
        finally:
            _RUN.reset(token)
        last = _note(trace, reply.trajectory)
        answer = str(reply.answer or "").strip()
        trace.step("answer", thought=str(reply.get("reasoning") or ""), observation=answer)
        if run.unreadable:
            return answer, "parse_fallback"
        return answer, "answered" if last == "finish" else "max_steps"

    def _call_with_potential_trajectory_truncation(
        self, module: dspy.Module, trajectory: dict[str, Any], **inputs: Any
    ) -> dspy.Prediction:
        # The one place through which DSPy's loop calls its predictors. The trace cuts what is too
        # long: DSPy's way of doing that takes steps out of the record as well.
        run = _RUN.get()
        if run.error is not None:
            raise run.error
        ask = _extract if module is self.extract else _step
        return ask(run, module, trajectory=self._format_trajectory(trajectory), **inputs)


def _extract(run: _Run, module: dspy.Module, **inputs: Any) -> dspy.Prediction:
    blank = {"reasoning": "", "answer": ""}
    return run.trace.ask(module, otherwise=blank, last=True, **inputs)


def _step(run: _Run, module: dspy.Module, **inputs: Any) -> dspy.Prediction:
    reply = run.trace.ask(module, otherwise={"next_thought": "", "next_tool_args": {}}, **inputs)
    if not reply.get("parse_fallback"):
        reply.next_tool_args = _mended(run, reply.next_tool_name, reply.next_tool_args)
        return reply
    if run.trace.searches:
        run.unreadable = True
        reply.next_tool_name = "finish"
    else:
        reply.next_tool_name = "search"
        reply.next_tool_args = {run.box.described["search"][0]: run.trace.question}
    return reply


def _mended(run: _Run, tool: str, given: Any) -> dict[str, str]:
    """The arguments that `tool` takes, with what it was given; anything mended is counted."""
    wanted = run.box.described[tool][0] if tool in run.box.described else ""
    arguments = {wanted: argument_text(given, wanted)} if wanted else {}
    if (given or {}) != arguments:
        run.trace.count("argument_repair")
    return arguments


def argument_text(given: Any, name: str = "") -> str:
    """The one text in what a model gave as arguments: `name`'s, else the first there is.

    Numbers are texts, and so are lists of texts, joined; without any text it is blank.
    """
    if isinstance(given, Mapping):
        values = [given[name]] if name in given else []
        values += [value for key, value in given.items() if key != name]
        return next(filter(None, map(argument_text, values)), "")
    if isinstance(given, list | tuple):
        return " ".join(filter(None, map(argument_text, given)))
    if given is None or isinstance(given, bool):
        return ""
    return " ".join(str(given).split())


def _tool(name: str, argument: str, does: str) -> dspy.Tool:
    def run(**arguments: Any) -> str:
        now = _RUN.get()
        try:
            return now.box.use(name, arguments[argument])
        except BudgetSpentError:
            return "No search is left. Use finish."
        except Exception as error:  # DSPy would show it to the model; it is the question's failure
            now.error = error
            raise

    schema = {argument: {"type": "string"}}
    return dspy.Tool(run, name=name, desc=does, args=schema, arg_types={argument: str})


def _note(trace: Trace, trajectory: dict[str, Any]) -> str:
    """Note each step of DSPy's trajectory; the tool of the last one."""
    index, tool = 0, ""
    while f"tool_name_{index}" in trajectory:
        tool = str(trajectory[f"tool_name_{index}"])
        trace.step(
            tool,
            input=argument_text(trajectory[f"tool_args_{index}"]),
            thought=str(trajectory[f"thought_{index}"] or ""),
            observation=str(trajectory.get(f"observation_{index}", "")),
        )
        index += 1
    return tool
