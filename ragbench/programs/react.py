"""ReAct: think, use a tool, observe its result, and repeat until finished.

Yao et al. 2023 (arXiv:2210.03629).

- `spec`, the simplified specification: `search` shows the first words of the top passages, `lookup`
  all matching sentences of every passage so far. At the limit, a call answers from passages and
  thoughts.
- `page`, the original tools: `search` opens the page of a title, `lookup` steps through its
matches.
- `tree_search`, the training rollouts of TreePS-RAG (arXiv:2601.06922) without training: a tree of
  steps instead of a chain. Paths are not ranked, so the first sample of each path comes before the
  second of any.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import dspy
from pydantic import Field

from ragbench.metrics import normalise_answer
from ragbench.programs import core
from ragbench.programs.core import (
    PROGRAMS,
    ProgramKnobs,
    RAGProgram,
    Trace,
    bounded,
    is_answer,
    tools,
)
from ragbench.programs.core.replies import sampling
from ragbench.retrievers import Passage
from ragbench.signatures import AnswerWithHints, ReActStep

#: Minimum share of common words of a repeated step of the tree.
ALIKE = 0.8
#: Words shown of a passage found.
_SNIPPET_WORDS = 120


class ReActKnobs(ProgramKnobs):
    """Knobs of `react`."""

    max_steps: int = bounded(7, 1, 50, "maximum number of tool calls")
    lookup: bool = Field(True, description="offer the tool lookup")
    force_answer: bool = Field(True, description="answer from the passages at the limit")
    backend: tools.Backend = Field("auto", description="how tools are called; auto: native if able")
    guards: bool = Field(True, description="handle invalid turns")
    branching: int = bounded(2, 1, 10, "next steps sampled of a path (tree)")
    width: int = bounded(3, 1, 20, "maximum number of open or finished paths (tree)")

    @property
    def names(self) -> tuple[str, ...]:
        if self.lookup:
            return ("search", "lookup")
        return ("search",)


@PROGRAMS.register("react")
class ReActRAG(RAGProgram[ReActKnobs]):
    """Think and use tools in turns until the answer is found."""

    variants = {  # noqa: RUF012
        "spec": {},
        "page": {"backend": "typed"},
        "tree_search": {"backend": "typed", "lookup": False, "max_steps": 4},
    }

    def make_predictors(self) -> None:
        self.act = tools.tool_predictor(ReActStep, self.knobs.names)
        if self.knobs.force_answer:
            self.conclude = core.predict(AnswerWithHints)

    def solve(self, trace: Trace) -> dspy.Prediction:
        knobs = self.knobs
        if knobs.variant == "page":
            box: PageTools | CorpusTools = PageTools(trace, knobs)
        else:
            box = CorpusTools(trace, knobs)
        if knobs.variant == "tree_search":
            return self._tree(trace, box)
        loop = self._loop(box, guards=knobs.guards)
        answer, reason = loop.run()
        if not answer and knobs.force_answer:
            answer = loop.conclude() if loop.native else ""
            answer = answer or self._read(trace, loop.thoughts)
        return trace.prediction(answer, reason)

    def _loop(self, box: ReActTools, **settings: Any) -> tools.ToolLoop:
        knobs = self.knobs
        return tools.ToolLoop(
            self.act, box, knobs.backend, knobs.context_tokens, knobs.max_steps, **settings
        )

    def _read(self, trace: Trace, thoughts: Sequence[str]) -> str:
        context = self.as_context(trace.passages)
        return trace.answer(self.conclude, last=True, context=context, notes=list(thoughts))

    def _tree(self, trace: Trace, box: ReActTools) -> dspy.Prediction:
        samples = range(self.knobs.branching)
        tree = StepTree([self._loop(box, config=sampling(n)) for n in samples], self.knobs)
        reason = tree.grow()
        answer = tree.selected()
        if answer:
            trace.step("answer", observation=answer, notes={"answers": list(tree.answers)})
        elif self.knobs.force_answer:
            answer = self._read(trace, list(dict.fromkeys(tree.thoughts)))
        return trace.prediction(answer, reason)


class ReActTools(tools.Toolbox):
    """Tools of both forms. The docstring of a tool is its description in the prompt."""

    def __init__(self, trace: Trace, knobs: ReActKnobs) -> None:
        super().__init__(trace, knobs.names)
        self.k = knobs.k

    def question_search(self) -> tools.ToolUse:
        return tools.ToolUse("search", {next(iter(self.tools["search"].args)): self.trace.question})


class CorpusTools(ReActTools):
    """`search` shows the top k passages, `lookup` every matching sentence of all passages seen."""

    def search(self, words: str) -> str | tools.ToolResult:
        """Find passages."""
        snippets = []
        for passage in self.trace.search(words, k=self.k):
            tokens = str(passage).split()
            ellipsis = " ..." if len(tokens) > _SNIPPET_WORDS else ""
            snippets.append(" ".join(tokens[:_SNIPPET_WORDS]) + ellipsis)
        return "\n".join(snippets) or tools.ToolResult("Nothing found.", empty=True)

    def lookup(self, name: str) -> str | tools.ToolResult:
        """Find a name in the passages found so far."""
        lines = []
        for passage in self.trace.passages:
            for index, sentence in matching(passage, name, title_too=True):
                lines.append(f"{passage.title} [{index}] {sentence}")
        return "\n".join(lines) or tools.ToolResult("No sentence has this text.", empty=True)


class PageTools(ReActTools):
    """ReAct's original tools: `search` opens the page of a title, `lookup` steps through it."""

    page: Passage | None = None
    _sought = ""
    _cursor = 0

    def search(self, entity: str) -> str:
        """Open the page of this name."""
        # A page with exactly that title, ignoring case, opens regardless of its rank. Otherwise
        # select a result by its title, ignoring punctuation and articles, or without the final
        # brackets: Wikipedia's search also finds "Paris (film)" by "Paris".
        corpus = self.trace.retriever.corpus
        name = normalise_answer(entity)
        place = corpus.titled(entity)
        page: Passage | None = None
        if place is not None:
            (page,) = self.trace.search_by(lambda: [corpus[place]], entity, k=1)
        else:
            pages = self.trace.search(entity, k=self.k)
            titles = [(p, p.title) for p in pages] + [(p, p.title.split(" (")[0]) for p in pages]
            fitting = (p for p, title in titles if name and normalise_answer(title) == name)
            if (page := next(fitting, None)) is None:
                similar = list(dict.fromkeys(p.title for p in pages))[:5]
                return f"Could not find {entity}. Similar: {', '.join(similar) or 'none'}."
        self.page = page
        self._sought = ""
        self._cursor = 0
        return " ".join(core.sentences_of(page)[:5])

    def lookup(self, text: str) -> str | tools.ToolResult:
        """Show the next sentence with this text on the open page."""
        if self.page is None:
            return tools.ToolResult("No page is open. Use search first.", empty=True)
        if text != self._sought:
            self._sought = text
            self._cursor = 0
        hits = matching(self.page, text)
        if self._cursor >= len(hits):
            return tools.ToolResult("No more results.", empty=True)
        self._cursor += 1
        return f"(Result {self._cursor} / {len(hits)}) {hits[self._cursor - 1][1]}"


def matching(passage: Passage, text: str, *, title_too: bool = False) -> list[tuple[int, str]]:
    """Return the index and text of each sentence that contains `text`, ignoring case.

    Args:
        passage: Passage to search.
        text: Text to look for.
        title_too: Add the first sentence if the title contains the text, because the name often has
            a different form there.
    """
    sought = text.lower()
    title_matches = title_too and sought in passage.title.lower()
    sentences = []
    for index, sentence in enumerate(core.sentences_of(passage)):
        if sought in sentence.lower() or (title_matches and index == 0):
            sentences.append((index, sentence.strip()))
    return sentences


@dataclass(frozen=True)
class Path:
    """Steps one after another; `name` counts the samples taken, such as "2.1"."""

    name: str = ""
    done: tuple[tools.ToolStepRecord, ...] = ()


class StepTree:
    """The paths of one question.

    Each of `loops` samples a path's next step. At most `width` paths are open or finished. A path
    has at most `max_steps` steps. A step similar to a sibling or an earlier step of the path is
    pruned.
    """

    def __init__(self, loops: Sequence[tools.ToolLoop], knobs: ReActKnobs) -> None:
        self.loops = loops
        self.knobs = knobs
        self.box = loops[0].box
        self.trace = self.box.trace
        #: Answers of finished paths in the order in which they ended, and thoughts of all steps.
        self.answers: list[str] = []
        self.thoughts: list[str] = []

    def grow(self) -> core.StopReason:
        paths = [Path()]
        try:
            for steps_left in range(self.knobs.max_steps, 0, -1):
                paths = self._taken(paths, steps_left)
                if not paths:
                    if self.answers:
                        return "answered"
                    return "no_progress"
        except core.BudgetSpentError:
            return "budget"
        if self.answers:
            return "answered"
        return "max_steps"

    def selected(self) -> str:
        """Return the most frequent answer of the paths, blank if none has an answer."""
        answers = []
        for answer in self.answers:
            if is_answer(answer):
                answers.append(answer)
        votes = Counter(map(normalise_answer, answers))
        for best, _ in votes.most_common(1):  # the first one wins a tie
            return next(answer for answer in answers if normalise_answer(answer) == best)
        return ""

    def _taken(self, paths: Sequence[Path], steps_left: int) -> list[Path]:
        """Take one more step on each open path. Store the answers of finished paths."""
        # The first sample of all paths comes before the second of any.
        jobs = list(itertools.product(range(len(self.loops)), paths))
        turns = self.trace.fan_out(
            lambda job: self.loops[job[0]].turn(job[1].done, steps_left), jobs
        )
        turns_kept: list[tuple[Path, str, tools.Turn]] = []
        for (sample, path), turn in zip(jobs, turns, strict=False):
            name = f"{path.name}.{sample + 1}".lstrip(".")
            if turn.uses:
                earlier = [step.use for step in path.done]
                for parent, _, sibling in turns_kept:
                    if parent is path:
                        earlier.append(sibling.uses[0])
                if any(_alike(turn.uses[0], use) for use in earlier):
                    self.trace.count("pruned_similar")
                else:
                    turns_kept.append((path, name, turn))
            elif not turn.unreadable:
                self._finish(path, name, turn)
        room = max(self.knobs.width - len(self.answers), 0)
        return [self._extended(*step) for step in turns_kept[:room]]

    def _finish(self, path: Path, name: str, turn: tools.Turn) -> None:
        if turn.answer in {step.observation for step in path.done}:  # reject a copied observation
            self.trace.count("copied_observation")
            return
        self.answers.append(turn.answer)
        self._note("finish", name, turn, observation=turn.answer)

    def _extended(self, path: Path, name: str, turn: tools.Turn) -> Path:
        use = turn.uses[0]
        seen = self.box.use(use)
        self._note(
            use.tool, name, turn, input=use.shown, observation=seen.observation, pids=seen.pids
        )
        step = tools.ToolStepRecord(len(path.done), turn.shown, use, seen.observation)
        return Path(name, (*path.done, step))

    def _note(self, action: str, name: str, turn: tools.Turn, **seen: Any) -> None:
        self.thoughts += filter(None, [turn.shown])
        self.trace.step(action, thought=turn.thought, notes={"path": name, **turn.notes}, **seen)


def _alike(a: tools.ToolUse, b: tools.ToolUse) -> bool:
    """Return True if `a` and `b` use the same tool with nearly the same words."""
    return a.tool == b.tool and core.is_repeat(a.shown, b.shown, ALIKE)
