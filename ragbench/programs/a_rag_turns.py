"""One turn of A-RAG's model: typed, for any LM, or by the provider's own tool calls."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import dspy
from dspy.adapters.types.tool import ToolCallResults

from ragbench.lms.adapters import LenientChat
from ragbench.programs.a_rag_tools import MAX_TOP_K, Described, ToolUse
from ragbench.programs.trace import Trace
from ragbench.signatures.types import ToolCall

FINISH = "finish"

_LISTED = ", separated by commas"


class Turn(NamedTuple):
    """What a model did in one turn: calls, or else an answer."""

    thought: str = ""
    answer: str = ""
    calls: tuple[ToolUse, ...] = ()
    unreadable: bool = False


def typed_tools(described: Mapping[str, Described]) -> list[str]:
    """The tools as lines of a prompt."""
    lines = [
        f"{name}({tool.argument}): {tool.does}; give {tool.argument}{_LISTED}"
        if tool.many
        else f"{name}({tool.argument}): {tool.does}"
        for name, tool in described.items()
    ]
    return [*lines, f"{FINISH}(answer): give the final answer in as few words as possible"]


def ask_typed(
    trace: Trace,
    act: dspy.Module,
    tools: Sequence[str],
    shown: Sequence[ToolCall],
    config: Mapping[str, Any],
) -> Turn:
    """A turn of `ReActStep`; `shown` are the steps so far."""
    reply = trace.ask(
        act,
        otherwise={"tool": "", "argument": ""},
        tools=list(tools),
        question=trace.question,
        trajectory=list(shown),
        **config,
    )
    thought = " ".join(str(reply.get("thought") or "").split())
    argument = " ".join(str(reply.argument or "").split())
    if not reply.tool:
        return Turn(unreadable=True)
    if reply.tool == FINISH:
        return Turn(thought, argument)
    return Turn(thought, calls=(ToolUse(reply.tool, {"": argument}, argument),))


def native_tools(described: Mapping[str, Described], *, k: int) -> list[dspy.Tool]:
    """The tools with the schemas that a provider is sent."""
    return [_tool(name, tool, k) for name, tool in described.items()]


def ask_native(
    trace: Trace,
    act: dspy.Module,
    tools: Sequence[dspy.Tool],
    shown: Sequence[ToolCall],
    config: Mapping[str, Any],
) -> Turn:
    """A turn of `ToolTurn`, asked so that the provider's protocol carries tools and calls."""
    with dspy.context(adapter=_NativeChat(use_native_function_calling=True)):
        reply = trace.ask(
            act,
            otherwise={"answer": "", "tool_calls": None},
            tools=list(tools),
            question=trace.question,
            history=_history(trace.question, shown),
            **config,
        )
    text = " ".join(str(reply.answer or "").split())
    if reply.tool_calls:
        calls = [
            ToolUse(call.name, call.args or {}, shown_arguments(call.args or {}))
            for call in reply.tool_calls.tool_calls
        ]
        return Turn(text, calls=tuple(calls))
    return Turn(answer=text, unreadable=bool(reply.get("parse_fallback")))


def shown_arguments(arguments: Mapping[str, Any]) -> str:
    """The arguments of a native call as the record has them, and as they are sent again."""
    return json.dumps(dict(arguments), ensure_ascii=False)


class _NativeChat(LenientChat):
    """Chat sections; a plain text is the answer, since models leave the marks out beside tools."""

    def _raw(self, signature: type[dspy.Signature], completion: str) -> dict[str, Any]:
        return super()._raw(signature, completion) or {"answer": completion.strip()}


def _history(question: str, shown: Sequence[ToolCall]) -> dspy.History:
    messages: list[dict[str, Any]] = []
    for number, step in enumerate(shown):
        arguments = json.loads(step.argument)
        call = dspy.ToolCalls.ToolCall(id=f"call_{number}", name=step.tool, args=arguments)
        results = ToolCallResults.from_tool_calls_and_values([call], [step.observation])
        calls = dspy.ToolCalls(tool_calls=[call], tool_call_results=results)
        messages.append({"tool_calls": calls})
    if messages:
        messages[0]["question"] = question
    return dspy.History(messages=messages)


def _tool(name: str, tool: Described, k: int) -> dspy.Tool:
    texts = {"type": "array", "items": {"type": "string"}}
    schema: dict[str, Any] = {tool.argument: texts if tool.many else {"type": "string"}}
    if name != "chunk_read":
        schema["top_k"] = {"type": "integer", "minimum": 1, "maximum": MAX_TOP_K, "default": k}
    kinds: dict[str, Any] = {name: Any for name in schema}
    return dspy.Tool(_unused, name=name, desc=tool.does, args=schema, arg_types=kinds)


def _unused(**arguments: Any) -> str:
    raise NotImplementedError("the tools of a question run it")
