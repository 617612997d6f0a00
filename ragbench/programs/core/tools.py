"""The loop of a program whose model chooses tools, turn by turn, until it answers.

Tools are plain methods of a `Toolbox` with one text or a list of texts as the argument. The model
sees their docstrings. A turn has one of two forms. A typed turn has named fields, works with any LM
and can be compiled with demonstrations. A native turn uses the provider's tool calls.

The guards are an addition to the published loop (the knob `guards`). Events count them:

- After an unreadable turn, the loop searches for the question once (`parse_fallback`).
- An answer that copies an observation, a step, the question or a long thought ends the loop
  (`copied_observation`, `copied_step`, `echoed_question`, `echoed_thought`).
- A repeated step is marked, and the second one ends the loop (`no_progress`). Passages that an
  earlier step shows are shortened.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from typing import Any, Literal, NamedTuple

import dspy

from ragbench.lms.tool_conversation import CLOSING, ToolConversation
from ragbench.metrics import normalise_answer
from ragbench.programs.core import tool_steps
from ragbench.programs.core.program import predict
from ragbench.programs.core.replies import StopReason
from ragbench.programs.core.text import is_answer
from ragbench.programs.core.tool_steps import ToolStepRecord as ToolStepRecord, ToolUse as ToolUse
from ragbench.programs.core.trace import Trace, role_lm
from ragbench.signatures import ToolTurn
from ragbench.user_code import contained

Backend = Literal["auto", "typed", "native"]

FINISH = "finish"


class ToolResult(NamedTuple):
    """The result of a tool: the observation, its passages, and the corpus texts in it.

    `retrieved` is None if the tool shows passages unchanged. `empty` marks an observation that only
    reports that the tool found nothing.
    """

    observation: str
    pids: tuple[str, ...] = ()
    retrieved: tuple[str, ...] | None = None
    empty: bool = False


class Turn(NamedTuple):
    """A model's turn: tool uses or an answer. Next to tools, the answer is preliminary."""

    thought: str = ""
    answer: str = ""
    uses: tuple[ToolUse, ...] = ()
    unreadable: bool = False

    @property
    def shown(self) -> str:
        """The thought and preliminary answer that later turns see."""
        if self.uses and self.answer:
            return f"{self.thought} Answer so far: {self.answer}".strip()
        return self.thought

    @property
    def notes(self) -> dict[str, Any]:
        """The preliminary answer, for the record."""
        return {"answer": self.answer} if self.uses and self.answer else {}


class Toolbox:
    """The tools of one question, its methods `names`. Only a spent budget raises."""

    def __init__(self, trace: Trace, tool_names: Iterable[str]) -> None:
        self.trace = trace
        self.tools = {name: dspy.Tool(getattr(self, name)) for name in tool_names}

    def question_search(self) -> ToolUse:
        raise NotImplementedError

    def use(self, use: ToolUse) -> ToolResult:
        tool = self.tools.get(use.tool)
        if tool is None:
            choices = ", ".join(self.tools)
            return ToolResult(f"There is no tool {use.tool}. Use one of {choices}.", empty=True)
        name, *optional = tool.args
        # Small models rename arguments. If no argument matches the tool's name, use the first.
        values = (value for key, value in use.arguments.items() if key != "top_k")
        value = use.arguments.get(name, next(values, None))
        if not tool_steps.shown_text(value):
            return ToolResult(f"{use.tool} needs the argument {name}.", empty=True)
        if tool.args[name].get("type") == "string":
            value = tool_steps.argument_text(value)
        extra = {name: use.arguments[name] for name in optional if name in use.arguments}
        before = len(self.trace.searches)
        with contained("the tool", "tool"):
            seen = tool.func(value, **extra)
        if isinstance(seen, ToolResult):
            return seen
        pids: list[str] = []
        for search in self.trace.searches[before:]:
            pids += search.pids
        return ToolResult(str(seen), tuple(pids))


def tool_predictor(
    step: type[dspy.Signature],
    tool_names: Iterable[str],
    *,
    like: type[dspy.Signature] | None = None,
) -> dspy.Module:
    """Return a predictor whose field `tool` is a tool name or `finish`.

    Args:
        step: Signature of a turn.
        tool_names: Names of the tools.
        like: Declared signature from which `step` was derived.
    """
    return predict(_choosing(step, tuple(tool_names)), like=like or step)  # type: ignore[arg-type]


@lru_cache(maxsize=64)  # adapters cache their work per signature
def _choosing(step: type[dspy.Signature], tool_names: tuple[str, ...]) -> type[dspy.Signature]:
    choice = Literal[(*tool_names, FINISH)]  # type: ignore[valid-type]
    changed: type[dspy.Signature] = step.with_updated_fields("tool", type_=choice)
    return changed


def settled_backend(backend: Backend, lm: dspy.LM, *, demos: bool = False) -> Backend:
    """Return the form of the turns: typed or native.

    Args:
        backend: Setting of the user. `auto` selects native if the LM is known to call tools, its
            server is not self-hosted, and there are no demonstrations. Small self-hosted models
            follow a schema better than the protocol. Any other value is used unchanged.
        lm: LM of the turns.
        demos: True if the predictor has demonstrations, which are typed turns.
    """
    if backend != "auto":
        return backend
    # Only self-hosted engines declare a limit of list items.
    own = getattr(getattr(lm, "engine", None), "max_items", None) is not None
    if lm.supports_function_calling and not own and not demos:
        return "native"
    return "typed"


@dataclass
class ToolLoop:
    """The turns of one question, by `predictor` with the tools of `box`.

    `settled_backend` resolves `backend`. Both forms use the instructions of the predictor.

    The loop ends with an answer, after `max_steps` turns, when the steps have `token_budget`
    tokens, or by a guard. With `parallel` it runs all tools of a turn, otherwise only the first
    one.
    """

    predictor: dspy.Module
    box: Toolbox
    backend: Backend
    context_tokens: int
    max_steps: int
    guards: bool = False
    parallel: bool = False
    token_budget: float = float("inf")
    config: Mapping[str, Any] = field(default_factory=dict)
    done: list[ToolStepRecord] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.trace = self.box.trace
        lm = role_lm(self.predictor.rb_role)
        settled = settled_backend(self.backend, lm, demos=bool(self.predictor.demos))
        self.native = settled == "native"

    @property
    def thoughts(self) -> list[str]:
        return list(dict.fromkeys(step.thought for step in self.done if step.thought))

    def run(self) -> tuple[str, StopReason]:
        return self.trace.until_spent(self._run)

    def _run(self) -> tuple[str, StopReason]:
        for number in range(self.max_steps):
            if sum(step.tokens for step in self.done) >= self.token_budget:
                return "", "budget"
            turn = self.turn(self.done, self.max_steps - number)
            if turn.unreadable:
                if self.guards and self._search_question(number):
                    continue
                return "", "no_progress" if tool_steps.idle(self.done) else "parse_fallback"
            if not turn.uses:
                if self.guards and (event := self._copied(turn)):
                    self.trace.count(event)
                    return "", "no_progress"
                self.trace.step("answer", thought=turn.thought, observation=turn.answer)
                honest = turn.answer and self.trace.wording.on_missing == "say_so"
                if honest or is_answer(turn.answer):  # "not stated" is a requested reply
                    return turn.answer, "answered"
                return "", "answered"
            for use in turn.uses if self.parallel else turn.uses[:1]:
                self._use(use, turn, number)
            if self.guards and len(tool_steps.idle(self.done)) >= 2:
                return "", "no_progress"
        return "", "max_steps"

    def _search_question(self, turn: int) -> bool:
        """Search for the question itself. Return False if that was done before."""
        use = self.box.question_search()
        queries = {search.query for search in self.trace.searches}
        if self.trace.question in queries or use in [step.use for step in self.done]:
            return False
        self._use(use, Turn(), turn)
        return True

    def _use(self, use: ToolUse, turn: Turn, number: int) -> None:
        seen = self.box.use(use)
        self.done.append(ToolStepRecord(number, turn.shown, use, seen.observation, seen.empty))
        texts = {} if seen.retrieved is None else {"retrieved": list(seen.retrieved)}
        self.trace.step(
            use.tool,
            input=use.shown,
            thought=turn.thought,
            observation=seen.observation,
            pids=seen.pids,
            notes={**turn.notes, **texts},
        )

    def _copied(self, turn: Turn) -> str:
        """Return the name of the event if the answer copies earlier text, else ""."""
        answer = normalise_answer(turn.answer)
        if turn.answer in {step.observation for step in self.done}:
            return "copied_observation"
        if turn.answer.startswith(tuple(f"{name}(" for name in self.box.tools)):
            return "copied_step"
        if answer == normalise_answer(self.trace.question):
            return "echoed_question"
        # A short answer may legitimately equal the thought.
        echoed = answer == normalise_answer(turn.thought) and len(answer.split()) > 10
        if echoed:
            return "echoed_thought"
        return ""

    def conclude(self) -> str:
        """Return the answer that the same conversation gives without tools."""
        if self.native:
            reply = self._converse(self.done, last=True)
            text = tool_steps.argument_text(reply.answer)
        else:
            text = _answer_of(self._typed(self.done, 0, last=True))
        if text:
            self.trace.step("answer", input=self.trace.question, observation=text)
        return text

    def turn(self, done: Sequence[ToolStepRecord], turns_left: int) -> Turn:
        """Ask the LM for the next turn.

        Args:
            done: Earlier steps.
            turns_left: Number of turns that remain.
        """
        if self.native:
            reply = self._converse(done)
            text = tool_steps.argument_text(reply.answer)
            if reply.get("tool_calls"):
                calls = reply.tool_calls.tool_calls
            else:
                calls = []
            if uses := tuple(ToolUse(call.name, call.args or {}) for call in calls):
                return Turn(text, uses=uses)
            return Turn(answer=text, unreadable=bool(reply.get("parse_fallback")))
        reply = self._typed(done, turns_left)
        thought = tool_steps.argument_text(reply.get("thought"))
        answer = _answer_of(reply)
        if reply.tool == FINISH:
            return Turn(thought, answer)
        if not reply.tool:
            return Turn(unreadable=True)
        tool = self.box.tools.get(reply.tool)
        name = next(iter(tool.args), "") if tool else ""
        value = reply.get("arguments") or reply.get("argument") or ""
        so_far = answer if is_answer(answer) else ""
        return Turn(thought, so_far, (ToolUse(reply.tool, {name: value}),))

    def _shown(self, done: Sequence[ToolStepRecord]) -> list[ToolStepRecord]:
        return tool_steps.format_recent_steps(done, self.context_tokens, mark=self.guards)

    def _typed(
        self, done: Sequence[ToolStepRecord], turns_left: int, *, last: bool = False
    ) -> dspy.Prediction:
        """Return the reply of a typed turn. The `last` turn can only finish."""
        tools = {} if last else self.box.tools
        settings: dict[str, Any] = {"config": dict(self.config)} if self.config else {}
        if last:
            settings["signature"] = _choosing(self.predictor.signature, ())  # only `finish`
        return self.trace.ask(
            self.predictor,
            last=last,
            tools=[f"{name}({next(iter(t.args))}): {t.desc}" for name, t in tools.items()],
            trajectory=tool_steps.rendered(self._shown(done)),
            steps_left=turns_left,
            **settings,
        )

    def _converse(self, done: Sequence[ToolStepRecord], *, last: bool = False) -> dspy.Prediction:
        """Return the reply of a native turn. The `last` turn is the answer."""
        history: list[dict[str, Any]] = []
        for _, steps in groupby(self._shown(done), key=lambda step: step.turn):
            of_turn = list(steps)
            calls = [(s.use.tool, dict(s.use.arguments), s.observation) for s in of_turn]
            history.append({"text": of_turn[0].thought, "calls": calls})
        if last:
            history.append({CLOSING: "No tool is left. Answer now."})
        with dspy.context(adapter=ToolConversation(parallel=None if last else self.parallel)):
            return self.trace.ask(
                self.predictor,
                last=last,
                signature=ToolTurn.with_instructions(self.predictor.signature.instructions),
                tools=list(self.box.tools.values()),
                history=dspy.History(messages=history),
                config={**self.config, **({"tool_choice": "none"} if last else {})},
            )


def _answer_of(reply: dspy.Prediction) -> str:
    """Return the answer of a typed turn, or else the argument of `finish`."""
    if reply.tool == FINISH:
        arguments = reply.get("arguments") or reply.get("argument")
    else:
        arguments = ""
    return tool_steps.argument_text(reply.get("answer")) or tool_steps.argument_text(arguments)
