"""ReAct: think, use a tool, look at what it shows, and repeat until finished.

Yao et al. 2023 (arXiv:2210.03629). Variants:

- `spec`: the simplified specification. `search` shows the first words of the top passages of the
  corpus, `lookup` all matching sentences of every passage found so far; at the limit an answer is
  forced from the passages and thoughts.
- `page`: the original's tools. `search` opens the page of a title, or names similar ones; `lookup`
  walks the open page one hit at a time. The live Wikipedia is the given corpus here, and the six
  worked examples are left to `compile`. `force_answer=False` gives no answer at the limit, as the
  original did.
- `tree`: the loop at inference of TreePS-RAG (arXiv:2601.06922), by prompting: a tree of steps
  instead of one chain. Its training, with rewards for single steps from the outcomes below them, is
  left out, so nothing ranks the paths: the first sample of each stands before the second of any.

`act_only` and `lookup=False` are the paper's ablations, `initial_retrieval` searches the question
before the first turn. `backend=native` takes the turns by the provider's own tool calls: a turn
without a call is the answer, and at the limit the same conversation goes on without tools. It is
the default of `spec` where the LM can call tools; `page` keeps the text protocol of the paper, and
`act_only` has no text beside a call.

A typed turn writes an answer, which may be blank, before its tool; in the paper it is the argument
of `Finish`. One beside another tool is kept as a part of that turn's thought. `guards` lists what
is added to help a model (see `ragbench.programs.core.tools`); `guards=false` is the bare loop of
the paper. The oldest steps leave the prompt where the trajectory outgrows `context_tokens`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import dspy
from pydantic import Field, field_validator

from ragbench.context import current
from ragbench.metrics import normalise_answer
from ragbench.programs.core import (
    PROGRAMS,
    Autonomy,
    BudgetSpentError,
    ProgramKnobs,
    RAGProgram,
    StopReason,
    Trace,
    is_answer,
    jaccard,
    predict,
    render,
    sentences_of,
)
from ragbench.programs.core.tools import (
    DEFAULT_GUARDS,
    Backend,
    Done,
    Guard,
    Seen,
    ToolAsker,
    Toolbox,
    ToolLoop,
    ToolUse,
    Turn,
    check_backend,
    guards_of,
    tool_predictor,
)
from ragbench.retrievers import Passage, Retriever
from ragbench.signatures import ActStep, AnswerWithHints, ReActStep


class ReActKnobs(ProgramKnobs):
    """Knobs of `react`."""

    max_steps: int = Field(7, ge=1, le=50, description="tool calls at the most")
    snippet_words: int = Field(120, ge=5, le=10_000, description="words shown of a passage found")
    initial_retrieval: bool = Field(False, description="search with the question first (not tree)")
    lookup: bool = Field(True, description="offer the tool lookup")
    act_only: bool = Field(False, description="no thoughts")
    force_answer: bool = Field(True, description="answer from the passages at the limit")
    backend: Backend = Field("auto", description="how tools are called; auto: native if possible")
    guards: tuple[Guard, ...] = Field(
        DEFAULT_GUARDS, description="help for a model, by name; false: none, true: all (not tree)"
    )
    branching: int = Field(2, ge=1, le=10, description="next steps sampled of a path (tree)")
    width: int = Field(3, ge=1, le=20, description="paths open or finished at the most (tree)")
    similarity: float = Field(
        0.8, gt=0, le=1, description="words shared with a sibling that prune a step (tree)"
    )
    select: Literal["vote", "first", "read"] = Field(
        "vote", description="the paths' answer: most given, first, or read anew (tree)"
    )

    _guards = field_validator("guards", mode="before")(guards_of)


@PROGRAMS.register("react")
class ReActRAG(RAGProgram[ReActKnobs]):
    """Think and use tools in turns until the answer is found."""

    name = "react"
    family = "agentic"
    paper = "arXiv:2210.03629"
    calls = (
        "steps (<= max_steps) + 1 if forced; "
        "tree: branching per open path (<= width) and step, + 1 if forced"
    )
    autonomy = Autonomy("yes", "yes", "yes")
    variants = {  # noqa: RUF012
        "spec": {},
        "page": {"backend": "typed"},
        "tree": {"backend": "typed", "lookup": False, "max_steps": 4},
    }

    def __init__(self, retriever: Retriever, **knobs: object) -> None:
        super().__init__(retriever, **knobs)
        names = ("search", "lookup") if self.knobs.lookup else ("search",)
        self.act = tool_predictor(ActStep if self.knobs.act_only else ReActStep, names)
        if self.knobs.force_answer:
            self.conclude = predict(AnswerWithHints)

    def check_lms(self, lm: dspy.LM, role_lms: Mapping[str, dspy.LM]) -> None:
        """Do nothing if the LM of the role "reason" can take the program's turns.

        Raises:
            ConfigError: the native backend with an LM that cannot call tools.
        """
        check_backend(self.name, self.knobs.backend, role_lms.get("reason", lm))

    def solve(self, trace: Trace) -> dspy.Prediction:
        """Steps until one finishes, then a forced answer if none did."""
        self.check_lms(dspy.settings.lm, current().role_lms)
        knobs = self.knobs
        box = PageTools(trace, knobs) if knobs.variant == "page" else CorpusTools(trace, knobs)
        if knobs.variant == "tree":
            return self._tree(trace, box)
        asker = self._asker(box, guards=knobs.guards)
        loop = ToolLoop(asker, max_steps=knobs.max_steps)
        answer, reason = loop.run(search_first=knobs.initial_retrieval)
        if not answer and knobs.force_answer:
            if asker.native and not loop.guess:
                answer = asker.conclude(loop.done)
            answer = answer or self._read(trace, loop.thoughts)
        if loop.guess and not is_answer(answer):
            answer = loop.guess
        return trace.prediction(answer, reason)

    def _read(self, trace: Trace, thoughts: Sequence[str]) -> str:
        """An answer from all passages and `thoughts`."""
        return trace.answer(
            self.conclude,
            last=True,
            context=render(trace.passages, max_tokens=self.knobs.context_tokens),
            notes=list(thoughts),
            question=trace.question,
        )

    def _asker(self, box: ReActTools, **more: Any) -> ToolAsker:
        backend: Backend = "typed" if self.knobs.act_only else self.knobs.backend
        tokens = self.knobs.context_tokens
        return ToolAsker(self.act, box, backend=backend, context_tokens=tokens, **more)

    def _tree(self, trace: Trace, box: ReActTools) -> dspy.Prediction:
        samples = range(1, self.knobs.branching)
        configs = [{}, *({"temperature": 0.7, "rollout_id": sample} for sample in samples)]
        tree = StepTree([self._asker(box, config=config) for config in configs], self.knobs, box)
        reason = tree.grow()
        answer = tree.selected()
        if answer:
            trace.step("answer", observation=answer, notes={"answers": list(tree.answers)})
        elif self.knobs.force_answer:
            answer = self._read(trace, list(dict.fromkeys(tree.thoughts)))
        return trace.prediction(answer, reason)


#: Sentences of a page that a search shows, and titles it offers where no page fits (ReAct).
PAGE_SENTENCES = 5
SIMILAR_TITLES = 5


class ReActTools(Toolbox):
    """What both forms share. The docstring of a tool is what the model is told of it."""

    def __init__(self, trace: Trace, knobs: ReActKnobs) -> None:
        super().__init__(trace, ("search", "lookup") if knobs.lookup else ("search",))
        self.k, self.words, self.guard = knobs.k, knobs.snippet_words, "lookup" in knobs.guards

    @property
    def can_look_up(self) -> bool:
        """Whether there is something to look in."""
        return bool(self.trace.passages)

    @property
    def offered(self) -> Mapping[str, dspy.Tool]:
        """The tools; with the guard, `lookup` once there is something to look in."""
        if self.guard and "lookup" in self.tools and not self.can_look_up:
            self.trace.count("hidden_tool")
            return {"search": self.tools["search"]}
        return self.tools

    def question_search(self) -> ToolUse:
        """A search for the question."""
        return ToolUse("search", {next(iter(self.tools["search"].args)): self.trace.question})


class CorpusTools(ReActTools):
    """`search` shows the top k passages, `lookup` every matching sentence of all passages seen."""

    def search(self, words: str) -> str | Seen:
        """Find passages."""
        found = self.trace.search(words, k=self.k)
        if not found:
            return Seen("Nothing found.", empty=True)
        shown = []
        for passage in found:
            parts = str(passage).split()
            more = " ..." if len(parts) > self.words else ""
            shown.append(" ".join(parts[: self.words]) + more)
        return "\n".join(shown)

    def lookup(self, name: str) -> str | Seen:
        """Find a name in the passages found so far."""
        lines = [
            f"{passage.title} [{index}] {sentence}"
            for passage in self.trace.passages
            for index, sentence in matching(passage, name, title_too=True)
        ]
        return "\n".join(lines) or Seen("No sentence has this text.", empty=True)


class PageTools(ReActTools):
    """ReAct's own: `search` opens the page of that title, `lookup` walks it one hit at a time."""

    _page: Passage | None = None
    _sought, _cursor = "", 0

    @property
    def can_look_up(self) -> bool:
        """Whether a page is open."""
        return self._page is not None

    def search(self, entity: str) -> str:
        """Open the page of this name."""
        # A page of exactly that title, whatever its case, opens wherever it ranks. Otherwise it is
        # one of the pages found, by its title but for marks and articles, or by that without the
        # bracket at its end: Wikipedia's search reaches "Paris (film)" by "Paris" as well.
        corpus = self.trace.retriever.corpus
        place = corpus.titled(entity)
        page: Passage | None = None
        if place is not None:
            (page,) = self.trace.search_by(lambda: [corpus[place]], entity, k=1)
        else:
            passages = self.trace.search(entity, k=self.k)
            titles = [(p, title) for p in passages for title in (p.title, p.title.split(" (")[0])]
            titles.sort(key=lambda pair: pair[0].title != pair[1])  # whole titles first
            page = next((p for p, title in titles if _same(title, entity)), None)
            if page is None:
                similar = list(dict.fromkeys(p.title for p in passages))[:SIMILAR_TITLES]
                return f"Could not find {entity}. Similar: {', '.join(similar) or 'none'}."
        self._page, self._sought, self._cursor = page, "", 0
        return " ".join(sentences_of(page)[:PAGE_SENTENCES])

    def lookup(self, text: str) -> str | Seen:
        """Show the next sentence with this text on the open page."""
        if self._page is None:
            return Seen("No page is open. Use search first.", empty=True)
        if text != self._sought:
            self._sought, self._cursor = text, 0
        hits = matching(self._page, text)
        if self._cursor >= len(hits):
            return Seen("No more results.", empty=True)
        self._cursor += 1
        return f"(Result {self._cursor} / {len(hits)}) {hits[self._cursor - 1][1]}"


def matching(passage: Passage, text: str, *, title_too: bool = False) -> list[tuple[int, str]]:
    """Index and sentence of each sentence of `passage` that contains `text`, in any case.

    With `title_too`, the first one also where the title contains it: the name often stands in
    another form there.
    """
    sought = text.lower()
    first = title_too and sought in passage.title.lower()
    return [
        (i, sentence.strip())
        for i, sentence in enumerate(sentences_of(passage))
        if sought in sentence.lower() or (first and i == 0)
    ]


def _same(title: str, entity: str) -> bool:
    return bool(normalise_answer(entity)) and normalise_answer(title) == normalise_answer(entity)


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

    def __init__(self, askers: Sequence[ToolAsker], knobs: ReActKnobs, box: Toolbox) -> None:
        self.askers, self.knobs, self.box, self.trace = askers, knobs, box, box.trace
        #: Answers of finished paths, in the order in which they ended.
        self.answers: list[str] = []
        #: Thoughts of the steps that were taken.
        self.thoughts: list[str] = []

    def grow(self) -> StopReason:
        """Grow the tree until all paths have ended, and say why it ended."""
        paths = [Path()]
        try:
            for left in range(self.knobs.max_steps, 0, -1):
                paths = self._taken(self._proposed(paths, left))
                if not paths:
                    return "answered" if self.answers else "no_progress"
        except BudgetSpentError:
            return "budget"
        return "answered" if self.answers else "max_steps"

    def selected(self) -> str:
        """The answer that most paths end in, of equals the first, or just the first.

        Blank where no path has an answer, or where the passages are to be read.
        """
        answers = [answer for answer in self.answers if is_answer(answer)]
        if not answers or self.knobs.select == "read":
            return ""
        vote = self.knobs.select == "vote"
        votes = Counter(map(normalise_answer, answers[: None if vote else 1]))
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
        room = max(self.knobs.width - len(self.answers), 0)
        if len(kept) > room:
            self.trace.count("pruned_width", len(kept) - room)
        return [self._extended(proposal) for proposal in kept[:room]]

    def _is_new(self, proposal: _Proposal, kept: Sequence[_Proposal]) -> bool:
        siblings = [other.use for other in kept if other.path is proposal.path]
        return not any(
            use.tool == proposal.use.tool
            and jaccard(use.shown, proposal.use.shown) >= self.knobs.similarity
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
