"""Self-RAG's long form: a beam over drafts that grow by one sentence from one passage.

Each kept draft is asked whether it needs more facts; if so, passages are searched for with the
question and the draft's last sentence, and each writes and grades a next sentence. A sentence's
score is brought to [0, 1] before the scores multiply along the path, because a product of numbers
that may be negative ranks nothing. A draft whose gate says no is closed as it stands. The short
answer is read off the best draft and its passages by one more call.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ragbench.programs.trace import BudgetSpentError, Trace
from ragbench.retrievers.base import Passage

if TYPE_CHECKING:
    from ragbench.programs.self_rag import SelfRAG


@dataclass(frozen=True)
class Path:
    """A draft: its sentences, the passage behind each, and the product of their scores."""

    segments: tuple[str, ...] = ()
    passages: tuple[Passage, ...] = ()
    score: float = 1.0
    closed: bool = False

    @property
    def draft(self) -> str:
        """The sentences as one text."""
        return " ".join(self.segments)


def search(program: SelfRAG, trace: Trace) -> list[Path]:
    """The `width` best drafts that have a sentence, best first."""
    knobs, paths = program.knobs, [Path()]
    for _ in range(knobs.depth):
        growing = [path for path in paths if not path.closed]
        if not growing:
            break
        try:
            grown = trace.fan_out(
                lambda path: _grow(program, trace, path), growing, calls_each=1 + 2 * knobs.k
            )
        except BudgetSpentError:
            trace.count("cut_by_budget")
            break
        kept = [path for path in paths if path.closed] + growing[len(grown) :]
        kept += [path for paths_ in grown for path in paths_]
        paths = sorted(kept, key=lambda path: -path.score)[: knobs.width]
    return [path for path in paths if path.segments]


def _grow(program: SelfRAG, trace: Trace, path: Path) -> list[Path]:
    if path.segments and not program.wants_passages(trace, program.proceed, draft=path.draft):
        return [replace(path, closed=True)]
    query = " ".join([trace.question, *path.segments[-1:]])
    passages = trace.search(query, k=program.knobs.k)
    written = trace.fan_out(lambda p: _write(program, trace, path, p), passages, calls_each=2)
    children = [child for child in written if child.path.segments != path.segments]
    backed = [child for child in children if child.support != "none"]
    if program.knobs.drop_unsupported and backed:
        children = backed
    return [child.path for child in children] or [replace(path, closed=True)]


@dataclass(frozen=True)
class _Child:
    path: Path
    support: str


def _write(program: SelfRAG, trace: Trace, path: Path, passage: Passage) -> _Child:
    reply = trace.ask(
        program.write,
        otherwise={"segment": "", "relevance": "relevant", "support": "partial", "done": False},
        question=trace.question,
        passage=program.show(passage),
        draft=path.draft,
    )
    segment = " ".join(reply.segment.split())
    if not segment or segment in path.segments:
        return _Child(path, "none")
    draft = " ".join([*path.segments, segment])
    use = program.usefulness(trace, draft)
    raw = program.score({reply.relevance: 1.0}, {reply.support: 1.0}, use)
    knobs = program.knobs
    span = knobs.w_relevance + knobs.w_support + 2 * knobs.w_utility
    score = (raw + knobs.w_utility) / span if span else 1.0
    trace.step(
        "critique",
        input=path.draft,
        observation=segment,
        pids=(passage.pid,),
        notes={
            "relevance": reply.relevance,
            "support": reply.support,
            "score": round(path.score * score, 4),
        },
    )
    grown = Path(
        (*path.segments, segment), (*path.passages, passage), path.score * score, bool(reply.done)
    )
    return _Child(grown, reply.support)
