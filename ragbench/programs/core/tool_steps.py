"""Steps of a tool loop: their record, their repeats, and their form in a prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ragbench.text_normalization import estimate_tokens, first_tokens

#: Replaces the observation of a step that repeats an earlier step and its result.
REPEATED = "This was done before. Use another tool, or finish."


class ToolUse(NamedTuple):
    """A tool that a model chose, with its arguments."""

    tool: str
    arguments: Mapping[str, Any]

    @property
    def shown(self) -> str:
        return "; ".join(map(shown_text, self.arguments.values()))


@dataclass(frozen=True)
class ToolStepRecord:
    """A completed tool use: its turn, the thought before it, and its observation."""

    turn: int
    thought: str
    use: ToolUse
    observation: str
    empty: bool = False

    @property
    def tokens(self) -> int:
        """Estimated number of tokens of the step in a prompt."""
        return estimate_tokens(self.thought + self.use.tool + self.use.shown + self.observation)

    def repeats_one_of(self, earlier: Sequence[ToolStepRecord]) -> bool:
        return (self.use, self.observation) in [(step.use, step.observation) for step in earlier]


def format_recent_steps(
    done: Sequence[ToolStepRecord], max_tokens: int, *, mark: bool = True
) -> list[ToolStepRecord]:
    """Return the newest steps that fit a prompt.

    Args:
        done: Steps so far.
        max_tokens: Maximum number of tokens, estimated. If the newest step is too long, the
            beginning of its observation is kept.
        mark: Replace the observation of a repeated step with a note, and shorten a line that an
            earlier step shows to the part before " | ".
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
    """Return the reference that replaces a line which an earlier step shows."""
    if " | " in line:
        return f"{line.partition(' | ')[0]} (shown above)"
    return line


def _marked(done: Sequence[ToolStepRecord]) -> list[ToolStepRecord]:
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


def idle(done: Sequence[ToolStepRecord]) -> list[ToolStepRecord]:
    """List the repeated steps since the last step with a new observation."""
    steps = []
    for index in range(len(done) - 1, -1, -1):
        if done[index].repeats_one_of(done[:index]):
            steps.append(done[index])
        elif not done[index].empty:
            break
    return steps


def rendered(done: Sequence[ToolStepRecord]) -> str:
    """Render the steps as plain numbered text."""
    blocks = []
    for step in done:
        # Omit the thought of a repeated step, because small models would copy it.
        if step.thought and step.observation != REPEATED:
            thought = f" {step.thought}"
        else:
            thought = ""
        head = f"Step {step.turn + 1}.{thought}\n{step.use.tool}({step.use.shown}) showed:\n"
        blocks.append(head + step.observation)
    return "\n\n".join(blocks)


def argument_text(value: Any) -> str:
    """Return the text in the arguments that a model gave.

    A dictionary gives its first text. Numbers become text, and the texts of a list are joined.
    Blank if there is no text.
    """
    if isinstance(value, Mapping):
        return next(filter(None, map(argument_text, value.values())), "")
    if isinstance(value, list | tuple):
        return " ".join(filter(None, map(argument_text, value)))
    if value is None or isinstance(value, bool):
        return ""
    return " ".join(str(value).split())


def shown_text(value: Any) -> str:
    """Return an argument as prompts and records show it. Commas separate list items."""
    if isinstance(value, list):
        return ", ".join(map(argument_text, value))
    return argument_text(value)
