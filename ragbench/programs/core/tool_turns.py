"""One turn of a tool loop: typed, for any LM, or by the provider's own tool calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from typing import Any, Literal

import dspy

from ragbench.errors import ConfigError
from ragbench.lms.adapters import CLOSING, ToolConversation
from ragbench.metrics import normalise_answer
from ragbench.programs.core.asking import RESAMPLING_TEMPERATURE, role_lm
from ragbench.programs.core.program import predict
from ragbench.programs.core.texts import is_answer
from ragbench.programs.core.tool_loop import (
    FINISH,
    REPEATED,
    Done,
    Toolbox,
    ToolInfo,
    ToolUse,
    Turn,
    argument_text,
    idle,
    shown_again,
)
from ragbench.signatures import AnswerStyle, ToolTurn, styled

Backend = Literal["auto", "typed", "native"]
_NOW = "No tool is left. Answer now."
#: Said in place of a thought that a reply only repeated, when it is asked for once more.
_LOOK = "Say what the last step shows."


def tool_predictor(
    step: type[dspy.Signature],
    tools: Mapping[str, ToolInfo],
    *,
    like: type[dspy.Signature] | None = None,
) -> dspy.Module:
    """A predictor of `step`, whose `tool` is one of `tools`, or finish; `like` as in `predict`."""
    return predict(_choosing(step, tuple(tools)), like=like or step)  # type: ignore[arg-type]


@lru_cache(maxsize=64)  # adapters keep what they make of a signature
def _choosing(step: type[dspy.Signature], tools: tuple[str, ...]) -> type[dspy.Signature]:
    choice = Literal[(*tools, FINISH)]  # type: ignore[valid-type]
    changed: type[dspy.Signature] = step.with_updated_fields("tool", type_=choice)
    return changed


class ToolAsker:
    """Asks for the turns of one question, in the form that the LM and `backend` allow.

    `auto` is native where the LM of the predictor's role can call tools, is not of a server of
    one's own (small models keep a schema better than the protocol), and the predictor has no
    demonstrations, which are of typed turns. Instructions are the predictor's in both forms.
    `resample` asks once more where a typed turn only repeats a thought.
    """

    def __init__(
        self,
        predictor: dspy.Module,
        box: Toolbox,
        *,
        backend: Backend,
        context_tokens: int,
        style: AnswerStyle = "brief",
        parallel: bool = False,
        config: Mapping[str, Any] | None = None,
        resample: bool = True,
    ) -> None:
        self.predictor, self.box, self.trace = predictor, box, box.trace
        self.context_tokens, self.style, self.parallel = context_tokens, style, parallel
        self.config, self.resample = dict(config or {}), resample
        able = _calls_tools_well(role_lm(predictor.rb_role)) and not predictor.demos
        self.native = backend == "native" or (backend == "auto" and able)

    def __call__(self, done: Sequence[Done], turns_left: int) -> Turn:
        """The next turn, after what was `done`."""
        return self._native(done) if self.native else self._typed(done, turns_left)

    def conclude(self, done: Sequence[Done]) -> str:
        """The answer that the same conversation gives when no tool is left; native turns alone."""
        reply = self._converse(done, self.box.offered, last=True)
        text = argument_text(reply.answer)
        if text:
            self.trace.step("answer", input=self.trace.question, observation=text)
        return text

    def _typed(self, done: Sequence[Done], turns_left: int) -> Turn:
        offered = self._offered(done)
        reply = self._ask(done, turns_left, offered)
        thought = argument_text(reply.get("thought"))
        if self.resample and not _settles(reply, done) and _is_copy(thought, done):
            self.trace.count("resampled")
            reply = self._ask(done, turns_left, offered, copied=thought)
            thought = argument_text(reply.get("thought"))
        value = reply.get("arguments") or reply.get("argument") or ""
        if _settles(reply, done):
            answer = argument_text(reply.get("answer")) or argument_text(value)
            return Turn(thought, answer, guess=reply.tool != FINISH)
        if not reply.tool:
            return Turn(unreadable=True)
        name = offered[reply.tool].argument if reply.tool in offered else ""
        return Turn(thought, uses=(ToolUse(reply.tool, {name: value}),))

    def _ask(
        self,
        done: Sequence[Done],
        turns_left: int,
        offered: Mapping[str, ToolInfo],
        *,
        copied: str = "",
    ) -> dspy.Prediction:
        """The reply of a typed turn; `copied` is a thought that an earlier reply only repeated."""
        config, shown = self.config, shown_again(done, self.context_tokens)
        trajectory = rendered(shown)
        if copied:
            config = {**config, "temperature": RESAMPLING_TEMPERATURE}
            fresh = [replace(s, thought="") if _same(s.thought, copied) else s for s in shown]
            trajectory = f"{rendered(fresh)}\n\n{_LOOK}"
        others: dict[str, Any] = {"config": config} if config else {}
        if len(offered) < len(self.box.offered):
            others["signature"] = _choosing(self.predictor.signature, tuple(offered))
        return self.trace.ask(
            self.predictor,
            otherwise={"thought": "", "answer": "", "tool": "", "argument": "", "arguments": []},
            tools=[_line(*tool) for tool in offered.items()],
            question=self.trace.question,
            trajectory=trajectory,
            steps_left=turns_left,
            **others,
        )

    def _native(self, done: Sequence[Done]) -> Turn:
        reply = self._converse(done, self._offered(done))
        text = argument_text(reply.answer)
        if reply.get("tool_calls"):
            calls = reply.tool_calls.tool_calls
            return Turn(text, uses=tuple(ToolUse(call.name, call.args or {}) for call in calls))
        return Turn(answer=text, unreadable=bool(reply.get("parse_fallback")))

    def _converse(
        self, done: Sequence[Done], offered: Mapping[str, ToolInfo], *, last: bool = False
    ) -> dspy.Prediction:
        signature = styled(ToolTurn, self.style)
        config = {**self.config, **({"tool_choice": "none"} if last else {})}
        history = _history(shown_again(done, self.context_tokens))
        if last:
            history.append({CLOSING: _NOW})
        parallel = None if last else self.parallel
        with dspy.context(adapter=ToolConversation(parallel=parallel)):
            return self.trace.ask(
                self.predictor,
                otherwise={"answer": "", "tool_calls": None},
                last=last,
                signature=signature.with_instructions(self.predictor.signature.instructions),
                tools=[_tool(name, tool) for name, tool in offered.items()],
                question=self.trace.question,
                history=dspy.History(messages=history),
                config=config,
            )

    def _offered(self, done: Sequence[Done]) -> Mapping[str, ToolInfo]:
        """The tools but those last used for what had been seen, where another one is left."""
        gone = {step.use.tool for step in idle(done)}
        left = {name: tool for name, tool in self.box.offered.items() if name not in gone}
        if not left:
            return self.box.offered
        if withdrawn := len(self.box.offered) - len(left):
            self.trace.count("withdrawn_tool", withdrawn)
        return left


def _settles(reply: dspy.Prediction, done: Sequence[Done]) -> bool:
    """Whether a typed turn ends the loop.

    Before anything was seen, an answer beside a tool is a guess that the tool is to check.
    """
    return reply.tool == FINISH or (bool(done) and is_answer(argument_text(reply.get("answer"))))


def _is_copy(thought: str, done: Sequence[Done]) -> bool:
    return any(_same(thought, step.thought) for step in done)


def _same(one: str, other: str) -> bool:
    return bool(one) and normalise_answer(one) == normalise_answer(other)


def check_backend(program: str, backend: Backend, lm: dspy.LM) -> None:
    """Do nothing if `lm` can take the turns that `backend` asks for.

    Raises:
        ConfigError: native turns and an LM that cannot call tools.
    """
    if backend == "native" and not lm.supports_function_calling:
        raise ConfigError(
            f"{program} backend=native needs an LM that can call tools, and {lm.model} cannot; "
            "use backend=typed"
        )


def _calls_tools_well(lm: dspy.LM) -> bool:
    # Servers that a person runs are known by the bound that they put on lists.
    self_hosted = getattr(getattr(lm, "engine", None), "max_items", None) is not None
    return bool(lm.supports_function_calling) and not self_hosted


def rendered(done: Sequence[Done]) -> str:
    """The steps so far as plain numbered text."""
    return "\n\n".join(map(_block, done))


def _block(step: Done) -> str:
    # A small model would copy the thought of a repeated step once more.
    thought = "" if step.observation == REPEATED else step.thought
    head = " ".join(filter(None, [f"Step {step.turn + 1}.", thought]))
    return f"{head}\n{step.use.tool}({step.use.shown}) showed:\n{step.observation}"


def _line(name: str, tool: ToolInfo) -> str:
    return f"{name}({tool.argument}): {tool.does}"


def _history(done: Sequence[Done]) -> list[dict[str, Any]]:
    """One message for each turn, in the form of `ToolConversation`."""
    messages: list[dict[str, Any]] = []
    for _, steps in groupby(done, key=lambda step: step.turn):
        of_turn = list(steps)
        calls = [(step.use.tool, dict(step.use.arguments), step.observation) for step in of_turn]
        messages.append({"text": of_turn[0].thought, "calls": calls})
    return messages


def _tool(name: str, tool: ToolInfo) -> dspy.Tool:
    texts = {"type": "array", "items": {"type": "string"}}
    schema: dict[str, Any] = {tool.argument: texts if tool.many else {"type": "string"}}
    default, most = tool.top_k
    if most:
        schema["top_k"] = {"type": "integer", "minimum": 1, "maximum": most, "default": default}
    kinds: dict[str, Any] = dict.fromkeys(schema, Any)
    return dspy.Tool(_unused, name=name, desc=tool.does, args=schema, arg_types=kinds)


def _unused(**arguments: Any) -> str:
    raise NotImplementedError("the toolbox of a question runs it")
