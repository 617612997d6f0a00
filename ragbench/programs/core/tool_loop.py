"""The loop of a program whose model chooses tools: turn by turn until one answers.

How a turn is asked for stands in `tool_turns`, what the tools do in the program's own toolbox.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ragbench.errors import crossing
from ragbench.metrics import normalise_answer
from ragbench.own_code import contained
from ragbench.programs.core.texts import is_answer
from ragbench.programs.core.trace import StopReason, Trace
from ragbench.tokens import estimate_tokens, first_tokens

FINISH = "finish"
#: Shown in place of what a step found that did the same as an earlier one, with the same result.
REPEATED = "This was done before. Use another tool, or finish."
#: Words of an answer that may well be all of a thought.
_SHORT = 10
#: So many steps for what had been seen already, with nothing new between, end the loop.
_STUCK = 2


class ToolInfo(NamedTuple):
    """A tool as a model is told of it; `many` says that it takes a list of texts."""

    argument: str
    does: str
    many: bool = False
    #: Default of the argument `top_k`, and its bound; (0, 0) where there is no such argument.
    top_k: tuple[int, int] = (0, 0)


class ToolUse(NamedTuple):
    """A tool that a model chose, and what it gave it."""

    tool: str
    arguments: Mapping[str, Any]

    @property
    def shown(self) -> str:
        """The arguments as the prompt and the record have them."""
        return "; ".join(map(_text, self.arguments.values()))


class Seen(NamedTuple):
    """The result of a tool: the observation, its passages, and the texts of the corpus in it.

    The texts are None where a tool shows passages as the searches have them. `empty` says that the
    observation is only the tool's word that there is nothing.
    """

    observation: str
    pids: tuple[str, ...] = ()
    retrieved: tuple[str, ...] | None = None
    empty: bool = False


class Turn(NamedTuple):
    """A model's turn: uses of tools, or else an answer; a guess is one that came with a tool."""

    thought: str = ""
    answer: str = ""
    guess: bool = False
    uses: tuple[ToolUse, ...] = ()
    unreadable: bool = False


@dataclass(frozen=True)
class Done:
    """A tool that was used, in which turn and with what thought, and what it showed."""

    turn: int
    thought: str
    use: ToolUse
    observation: str
    empty: bool = False

    @property
    def tokens(self) -> int:
        """About how many tokens the step takes in a prompt."""
        return estimate_tokens(self.thought + self.use.tool + self.use.shown + self.observation)


class Toolbox(ABC):
    """The tools of one question, by name. None raises but for a spent budget."""

    def __init__(self, trace: Trace, tools: Mapping[str, ToolInfo]) -> None:
        self.trace, self.tools = trace, tools

    @property
    def offered(self) -> Mapping[str, ToolInfo]:
        """The tools that the model is told of now; by default all."""
        return self.tools

    @property
    @abstractmethod
    def shown_nothing(self) -> bool:
        """Whether nothing of the corpus was shown so far."""

    @abstractmethod
    def run(self, use: ToolUse) -> Seen:
        """What the tool shows, given its argument; advice where that does not fit."""

    @abstractmethod
    def question_search(self) -> ToolUse:
        """A search for the question itself."""

    def use(self, use: ToolUse) -> Seen:
        """What the tool shows; advice where it does not exist or is given nothing."""
        tool = self.tools.get(use.tool)
        if tool is None:
            known = ", ".join(self.tools)
            return Seen(f"There is no tool {use.tool}. Use one of {known}.", empty=True)
        if not _text(given(use.arguments, tool.argument)):
            return Seen(f"{use.tool} needs the argument {tool.argument}.", empty=True)
        with crossing("tool"), contained(use.tool):
            return self.run(use)


class ToolLoop:
    """The turns of one question.

    `ask` gives the next turn, from what was done and how many turns are left. The loop ends with an
    answer, after `max_steps` turns, once the steps have `token_budget` tokens, or when the model is
    stuck: it did what was done before, and then did so again. `parallel` runs all tools that a turn
    asks for, otherwise the first alone; `unsearched_answers` lets an answer stand before anything
    was shown. `guess` is an answer that ended the loop and that a reader is to settle.
    """

    def __init__(
        self,
        box: Toolbox,
        ask: Callable[[Sequence[Done], int], Turn],
        *,
        max_steps: int,
        token_budget: float = float("inf"),
        parallel: bool = False,
        unsearched_answers: bool = True,
    ) -> None:
        self.box, self.ask, self.trace = box, ask, box.trace
        self.max_steps, self.token_budget, self.parallel = max_steps, token_budget, parallel
        self.unsearched_answers = unsearched_answers
        self.done: list[Done] = []
        self.searched_question = False
        self.guess = ""
        self._turn = 0

    def run(self) -> tuple[str, StopReason]:
        """The answer, blank if there is none yet, and why the turns ended.

        What was done before, such as a search for the question, is no turn of the model's.

        Raises:
            BudgetSpentError: calls or searches are spent.
        """
        before = self._turn + 1 if self.done else 0
        for number in range(self.max_steps):
            self._turn = before + number
            if sum(step.tokens for step in self.done) >= self.token_budget:
                return "", "budget"
            turn = self.ask(self.done, self.max_steps - number)
            if turn.unreadable:
                if not self.search_question():
                    return "", "no_progress" if idle(self.done) else "parse_fallback"
            elif not turn.uses and self._too_early():
                self.trace.count("unsearched_answer")
            elif not turn.uses and (why := self._unfounded(turn)):
                self.trace.count(why)
                return "", "no_progress"
            elif not turn.uses:
                return self._answered(turn), "answered"
            for use in turn.uses if self.parallel else turn.uses[:1]:
                self._use(use, turn.thought)
            if len(idle(self.done)) >= _STUCK:
                return "", "no_progress"
        return "", "max_steps"

    def search_question(self) -> bool:
        """Whether a search for the question itself was still to be made, and now was."""
        asked = {search.query for search in self.trace.searches}
        if self.searched_question or self.trace.question in asked:
            return False
        self.searched_question = True
        self._use(self.box.question_search(), "")
        return True

    def settled(self, read: str) -> str:
        """What a reader `read`, or the guess where that is no answer."""
        return self.guess if self.guess and not is_answer(read) else read

    @property
    def thoughts(self) -> list[str]:
        """The thoughts so far, in order, once each."""
        return list(dict.fromkeys(step.thought for step in self.done if step.thought))

    def _answered(self, turn: Turn) -> str:
        """The turn's answer, blank where it is for a reader to give."""
        self.trace.step("answer", thought=turn.thought, observation=turn.answer)
        if turn.guess:
            self.trace.count("guess_beside_tool")
            self.guess = turn.answer
            return ""
        if is_answer(turn.answer):
            return turn.answer
        self.trace.count("finish_without_answer")
        return ""

    def _too_early(self) -> bool:
        early = not self.unsearched_answers and self.box.shown_nothing
        return early and self.search_question()

    def _unfounded(self, turn: Turn) -> str:
        """The event of an answer that is none: a copy of what was there."""
        answer = normalise_answer(turn.answer)
        if turn.answer in {step.observation for step in self.done}:
            return "copied_observation"
        if turn.answer.startswith(tuple(f"{name}(" for name in self.box.tools)):
            return "copied_step"
        if answer == normalise_answer(self.trace.question):
            return "echoed_question"
        if answer == normalise_answer(turn.thought) and len(answer.split()) > _SHORT:
            return "echoed_thought"
        return ""

    def _use(self, use: ToolUse, thought: str) -> None:
        seen = self.box.use(use)
        self.done.append(Done(self._turn, thought, use, seen.observation, seen.empty))
        self.trace.step(
            use.tool,
            input=use.shown,
            thought=thought,
            observation=seen.observation,
            pids=seen.pids,
            notes={} if seen.retrieved is None else {"retrieved": list(seen.retrieved)},
        )


def shown_again(done: Sequence[Done], max_tokens: int) -> list[Done]:
    """The newest steps that fit a prompt, as it shows them.

    A step that only repeats an earlier one says so. A passage that an earlier one of these steps
    shows is named alone: a line that stands in both, up to its " | ". Of a newest step that is too
    long by itself, the head of what it saw stays.
    """
    for start in range(len(done)):
        kept = _without_repeats(done[start:])
        if sum(step.tokens for step in kept) <= max_tokens:
            return kept
    if not done:
        return []
    last = done[-1]
    return [replace(last, observation=first_tokens(last.observation, max_tokens))]


def _without_repeats(done: Sequence[Done]) -> list[Done]:
    shown: set[str] = set()
    kept: list[Done] = []
    for index, step in enumerate(done):
        if any(_same(step, earlier) for earlier in done[:index]):
            kept.append(replace(step, observation=REPEATED))
            continue
        lines = step.observation.split("\n")
        named = [_named(line) if line in shown else line for line in lines]
        shown.update(lines)
        kept.append(replace(step, observation="\n".join(named)))
    return kept


def _named(line: str) -> str:
    title, mark, _ = line.partition(" | ")
    return f"{title} (shown above)" if mark else line


def idle(done: Sequence[Done]) -> list[Done]:
    """The steps since anything new was seen that did what an earlier one did and saw the same."""
    steps = []
    for index in range(len(done) - 1, -1, -1):
        if any(_same(done[index], earlier) for earlier in done[:index]):
            steps.append(done[index])
        elif not done[index].empty:
            break
    return steps


def _same(one: Done, other: Done) -> bool:
    return (one.use, one.observation) == (other.use, other.observation)


def given(arguments: Mapping[str, Any], name: str) -> Any:
    """The argument `name`, or the first one whatever a model called it."""
    others = (value for key, value in arguments.items() if key != "top_k")
    return arguments[name] if name in arguments else next(others, None)


def argument_text(value: Any, name: str = "") -> str:
    """The one text in what a model gave as arguments: `name`'s, else the first there is.

    Numbers are texts, and so are lists of texts, joined; without any text it is blank.
    """
    if isinstance(value, Mapping):
        values = [value[name]] if name in value else []
        values += [part for key, part in value.items() if key != name]
        return next(filter(None, map(argument_text, values)), "")
    if isinstance(value, list | tuple):
        return " ".join(filter(None, map(argument_text, value)))
    if value is None or isinstance(value, bool):
        return ""
    return " ".join(str(value).split())


def _text(value: Any) -> str:
    return ", ".join(map(argument_text, value)) if isinstance(value, list) else argument_text(value)
