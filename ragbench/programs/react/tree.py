"""TreePS-RAG's loop at inference, by prompting: a tree of steps instead of one chain.

After TreePS-RAG (arXiv:2601.06922), which trains a search agent with rewards for single steps from
the outcomes below them in such a tree; none of that is here. Every open path proposes several next
steps, a step that is much like one of its siblings or of its own past is pruned, and the others are
taken. Which paths stay open follows the order of the samples, the first of each path before the
second of any: without the trained values nothing ranks them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ragbench.metrics import normalise_answer
from ragbench.programs.core import BudgetSpentError, StopReason, is_answer, jaccard
from ragbench.programs.core.tools import Done, ToolAsker, Toolbox, ToolUse, Turn

Selection = Literal["vote", "first", "read"]


@dataclass(frozen=True)
class Path:
    """Steps one after another; `name` counts the samples taken, such as "2.1"."""

    name: str = ""
    done: tuple[Done, ...] = ()

    def child(self, sample: int) -> str:
        """The name of the path with one step more, of the sample with this number from 1."""
        return f"{self.name}.{sample}".lstrip(".")


class _Proposal(NamedTuple):
    path: Path
    sample: int
    turn: Turn

    @property
    def use(self) -> ToolUse:
        return self.turn.uses[0]


class StepTree:
    """The paths of one question.

    `askers` take a path's next step, one for each sample. At most `width` paths are open or
    finished, none has more than `max_steps` steps, and a step whose words a sibling or an earlier
    step of the path shares by `similarity` (Jaccard) is pruned.
    """

    def __init__(
        self,
        box: Toolbox,
        askers: Sequence[ToolAsker],
        *,
        max_steps: int,
        width: int,
        similarity: float,
    ) -> None:
        self.box, self.askers, self.trace = box, askers, box.trace
        self.max_steps, self.width, self.similarity = max_steps, width, similarity
        #: Answers of finished paths, in the order in which they ended.
        self.answers: list[str] = []
        #: Thoughts of the steps that were taken.
        self.thoughts: list[str] = []

    def grow(self) -> StopReason:
        """Grow the tree until all paths have ended, and say why it ended."""
        paths = [Path()]
        try:
            for left in range(self.max_steps, 0, -1):
                paths = self._taken(self._proposed(paths, left))
                if not paths:
                    return "answered" if self.answers else "no_progress"
        except BudgetSpentError:
            return "budget"
        return "answered" if self.answers else "max_steps"

    def selected(self, selection: Selection) -> str:
        """The answer that most paths end in, of equals the first, or just the first.

        Blank where no path has an answer, or where the passages are to be read.
        """
        answers = [answer for answer in self.answers if is_answer(answer)]
        if not answers or selection == "read":
            return ""
        votes = Counter(map(normalise_answer, answers if selection == "vote" else answers[:1]))
        best = votes.most_common(1)[0][0]  # the first of equals
        return next(answer for answer in answers if normalise_answer(answer) == best)

    def _proposed(self, paths: Sequence[Path], left: int) -> list[_Proposal]:
        """What can be read of each path's samples, the first sample of all paths first."""
        asked = [(path, n) for n in range(len(self.askers)) for path in paths]
        turns = self.trace.fan_out(lambda one: self.askers[one[1]](one[0].done, left), asked)
        made = [_Proposal(path, n + 1, turn) for (path, n), turn in zip(asked, turns, strict=False)]
        return [proposal for proposal in made if not proposal.turn.unreadable]

    def _taken(self, proposals: Sequence[_Proposal]) -> list[Path]:
        """The open paths after the steps that are kept; finished ones leave their answers."""
        kept: list[_Proposal] = []
        for proposal in proposals:
            if not proposal.turn.uses:
                self._finish(proposal)  # one that only copies a tool's message is no answer
            elif self._is_new(proposal, kept):
                kept.append(proposal)
            else:
                self.trace.count("pruned_similar")
        room = max(self.width - len(self.answers), 0)
        if len(kept) > room:
            self.trace.count("pruned_width", len(kept) - room)
        return [self._extended(proposal) for proposal in kept[:room]]

    def _is_new(self, proposal: _Proposal, kept: Sequence[_Proposal]) -> bool:
        siblings = [other.use for other in kept if other.path is proposal.path]
        return not any(
            use.tool == proposal.use.tool
            and jaccard(use.shown, proposal.use.shown) >= self.similarity
            for use in (*siblings, *(done.use for done in proposal.path.done))
        )

    def _finish(self, proposal: _Proposal) -> None:
        if proposal.turn.answer in {step.observation for step in proposal.path.done}:
            self.trace.count("copied_observation")
            return
        self.answers.append(proposal.turn.answer)
        self.thoughts += filter(None, [proposal.turn.thought])
        self.trace.step(
            "finish",
            thought=proposal.turn.thought,
            observation=proposal.turn.answer,
            notes={"path": proposal.path.child(proposal.sample)},
        )

    def _extended(self, proposal: _Proposal) -> Path:
        path, use, thought = proposal.path, proposal.use, proposal.turn.thought
        seen, name = self.box.use(use), path.child(proposal.sample)
        self.thoughts += filter(None, [thought])
        self.trace.step(
            use.tool,
            input=use.shown,
            thought=thought,
            observation=seen.observation,
            pids=seen.pids,
            notes={"path": name},
        )
        return Path(name, (*path.done, Done(len(path.done), thought, use, seen.observation)))
