"""The steps of a tool loop: what was done, what repeats itself, and how a prompt shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ragbench.tokens import estimate_tokens, first_tokens

#: Shown in place of what a step found that did the same as an earlier one, with the same result.
REPEATED = "This was done before. Use another tool, or finish."


class ToolUse(NamedTuple):
    """A tool that a model chose, and what it gave it."""

    tool: str
    arguments: Mapping[str, Any]

    @property
    def shown(self) -> str:
        return "; ".join(map(shown_text, self.arguments.values()))


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

    def repeats_one_of(self, earlier: Sequence[Done]) -> bool:
        return (self.use, self.observation) in [(step.use, step.observation) for step in earlier]


def shown_again(done: Sequence[Done], max_tokens: int, *, mark: bool = True) -> list[Done]:
    """The newest steps that fit a prompt, as it shows them.

    With `mark`, a step that only repeats an earlier one says so, and a line of a passage that an
    earlier one of these steps shows is cut to its title, up to " | ". Of a newest step that is too
    long by itself, the head of what it saw stays.
    """
    for start in range(len(done)):
        steps = _marked(done[start:]) if mark else list(done[start:])
        if sum(step.tokens for step in steps) <= max_tokens:
            return steps
    newest = done[-1:]
    return [
        replace(step, observation=first_tokens(step.observation, max_tokens)) for step in newest
    ]


def _reference(line: str) -> str:
    """Returns what stands for a line that was shown before: of a passage, its pid alone."""
    if " | " in line:
        return f"{line.partition(' | ')[0]} (shown above)"
    return line


def _marked(done: Sequence[Done]) -> list[Done]:
    seen: set[str] = set()
    steps = []
    for index, step in enumerate(done):
        lines = step.observation.split("\n")
        if step.repeats_one_of(done[:index]):
            text = REPEATED
        else:
            text = "\n".join(_reference(line) if line in seen else line for line in lines)
        seen.update(lines)
        steps.append(replace(step, observation=text))
    return steps


def idle(done: Sequence[Done]) -> list[Done]:
    """The steps since anything new was seen that did what an earlier one did and saw the same."""
    steps = []
    for index in range(len(done) - 1, -1, -1):
        if done[index].repeats_one_of(done[:index]):
            steps.append(done[index])
        elif not done[index].empty:
            break
    return steps


def rendered(done: Sequence[Done]) -> str:
    """The steps so far as plain numbered text."""
    blocks = []
    for step in done:
        # A small model would copy the thought of a repeated step once more.
        if step.thought and step.observation != REPEATED:
            thought = f" {step.thought}"
        else:
            thought = ""
        head = f"Step {step.turn + 1}.{thought}\n{step.use.tool}({step.use.shown}) showed:\n"
        blocks.append(head + step.observation)
    return "\n\n".join(blocks)


def argument_text(value: Any) -> str:
    """The one text in what a model gave as arguments: of a dictionary the first there is.

    Numbers are texts, and so are lists of texts, joined; without any text it is blank.
    """
    if isinstance(value, Mapping):
        return next(filter(None, map(argument_text, value.values())), "")
    if isinstance(value, list | tuple):
        return " ".join(filter(None, map(argument_text, value)))
    if value is None or isinstance(value, bool):
        return ""
    return " ".join(str(value).split())


def shown_text(value: Any) -> str:
    """An argument as the prompt and the record have it; the items of a list stand apart."""
    if isinstance(value, list):
        return ", ".join(map(argument_text, value))
    return argument_text(value)
