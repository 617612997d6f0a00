"""`dspy.ReAct` with the tools of one question, its calls counted and its parse errors survived."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import dspy

from ragbench.context import current, use
from ragbench.programs.core import (
    BudgetSpentError,
    StopReason,
    Toolbox,
    ToolInfo,
    ToolUse,
    Trace,
    argument_text,
    named,
)
from ragbench.signatures import DirectAnswer, ReActStep


@dataclass
class _Run:
    trace: Trace
    box: Toolbox
    unreadable: bool = False
    error: Exception | None = None


def _run() -> _Run:
    # DSPy binds tools when the program is made; what they work on belongs to a question.
    run = current().get(_Run)
    assert run is not None
    return run


class TracedReAct(dspy.ReAct):
    """Use tools in turns until the answer is found."""

    def __init__(self, described: Mapping[str, ToolInfo], *, max_iters: int) -> None:
        tools = [_tool(name, tool) for name, tool in described.items()]
        super().__init__(DirectAnswer, tools=tools, max_iters=max_iters)
        named(self.react, ReActStep)
        named(self.extract, DirectAnswer)

    def run(self, trace: Trace, box: Toolbox) -> tuple[str, StopReason]:
        """The extracted answer to the trace's question, and why the loop ended."""
        run = _Run(trace, box)
        with use(current().plus(run)):
            reply = self(question=trace.question)
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
        run = _run()
        if run.error is not None:
            raise run.error
        ask = _extract if module is self.extract else _step
        return ask(run, module, trajectory=self._format_trajectory(trajectory), **inputs)


def _extract(run: _Run, module: dspy.Module, **inputs: Any) -> dspy.Prediction:
    blank = {"reasoning": "", "answer": ""}
    return run.trace.ask(module, otherwise=blank, last=True, **inputs)


def _step(run: _Run, module: dspy.Module, **inputs: Any) -> dspy.Prediction:
    blank = {"next_thought": "", "next_tool_name": "", "next_tool_args": {}}
    reply = run.trace.ask(module, otherwise=blank, **inputs)
    if reply.next_tool_name:
        reply.next_tool_args = _mended(run, reply.next_tool_name, reply.next_tool_args)
        return reply
    if run.trace.searches:
        run.unreadable = True
        reply.next_tool_name = "finish"
    else:
        reply.next_tool_name = "search"
        reply.next_tool_args = {run.box.tools["search"].argument: run.trace.question}
    return reply


def _mended(run: _Run, tool: str, given: Any) -> dict[str, str]:
    """The arguments that `tool` takes, with what it was given; anything mended is counted."""
    wanted = run.box.tools[tool].argument if tool in run.box.tools else ""
    arguments = {wanted: argument_text(given, wanted)} if wanted else {}
    if (given or {}) != arguments:
        run.trace.count("argument_repair")
    return arguments


def _tool(name: str, tool: ToolInfo) -> dspy.Tool:
    def run(**arguments: Any) -> str:
        now = _run()
        try:
            return now.box.use(ToolUse(name, arguments)).observation
        except BudgetSpentError:
            return "No search is left. Use finish."
        except Exception as error:  # DSPy would show it to the model; it is the question's failure
            now.error = error
            raise

    schema = {tool.argument: {"type": "string"}}
    return dspy.Tool(run, name=name, desc=tool.does, args=schema, arg_types={tool.argument: str})


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
