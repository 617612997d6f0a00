"""What a run is expected to spend, with a range, before it spends anything.

Calls and prompts come from a rehearsal over some of the run's own questions; the range is that of
the kinds of replies tried. Where an embeddings or reranking server would have to be asked, BM25
over the same passages stands in for the search. Requests that a server fails are extra.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from types import MethodType
from typing import Any

from pydantic import BaseModel, ConfigDict

from ragbench.context import current, use
from ragbench.errors import RunError
from ragbench.experiments.estimates.rehearsal import Rehearsed, rehearse
from ragbench.experiments.runs import RunContext, asks_servers, takes_tokens
from ragbench.experiments.store import read_records
from ragbench.lms import priced
from ragbench.lms.adapters import LenientJSON
from ragbench.programs.core import RAGProgram
from ragbench.programs.wrappers import Around
from ragbench.ranges import Range
from ragbench.retrievers import Retriever, make_retriever
from ragbench.tokens import estimate_tokens

#: Questions that are rehearsed.
SAMPLE = 6
#: Real tokens for each that was estimated, at the least and at the most, for English text; the
#: rest is for the questions that were not rehearsed.
MARGIN = (0.7, 1.4)
ASKED_TWICE = "the upper ends have every reply asked for twice, as an unreadable one is"


class Estimate(BaseModel):
    """What is expected, if no reply is cached; `cost` in US dollars, None where not known."""

    model_config = ConfigDict(frozen=True)

    title: str
    calls: Range = Range()
    tokens: Range = Range()
    cost: tuple[float, float] | None = (0.0, 0.0)
    notes: tuple[str, ...] = ()
    questions: int = 0
    #: Of the program's own index, which comes in addition and is no question's.
    index: Estimate | None = None

    def lines(self) -> list[str]:
        """The estimate for people."""
        lines = [
            self.title,
            f"  calls   {self.calls}",
            f"  tokens  {self.tokens}",
            f"  cost    {self._cost}",
            *(f"  {note}" for note in self.notes),
        ]
        if index := self.index:
            parts = (f"{index.calls} calls", f"{index.tokens} tokens", index._cost, *index.notes)
            lines.append(f"  {index.title}: {', '.join(parts)}")
        return lines

    @property
    def _cost(self) -> str:
        if self.cost is None:
            return "unknown: no price is known for an LM; give --price"
        return f"{usd(self.cost[0])} to {usd(self.cost[1])}" if self.cost[1] else "$0"


def in_all(title: str, parts: Sequence[Estimate], notes: Sequence[str] = ()) -> Estimate:
    """The sum of what `parts` are expected to spend; the cost None where one is not known."""
    costs = [part.cost for part in parts if part.cost is not None]
    low, high = (sum(cost[end] for cost in costs) for end in (0, 1))
    return Estimate(
        title=title,
        calls=sum((part.calls for part in parts), Range()),
        tokens=sum((part.tokens for part in parts), Range()),
        cost=(low, high) if len(costs) == len(parts) else None,
        notes=tuple(notes),
    )


def usd(amount: float) -> str:
    """`amount` US dollars, with more digits where it is small."""
    return f"${amount:,.2f}" if amount >= 0.01 or amount == 0 else f"${amount:.4f}"


def duration(seconds: float) -> str:
    """`seconds` in the unit that a person would choose."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def estimate_run(run_context: RunContext, *, afresh: bool = False) -> Estimate:
    """What answering the questions takes that have no record yet; `afresh`: what all of them take.

    Raises:
        RunError: the program cannot be rehearsed.
    """
    finished = set() if afresh else read_records(run_context.config.folder()).finished
    todo = [example for example in run_context.examples if example.qid not in finished]
    title = f"{run_context.title}: {len(todo)} questions"
    if len(todo) < len(run_context.examples):
        title += f" ({len(run_context.examples) - len(todo)} finished before)"
    if not todo:
        return Estimate(title=title)
    index = _estimate_index(run_context, todo)  # first: questions are rehearsed over what it makes
    each = rehearse_questions(run_context, todo)
    retry, notes = most_tries(run_context), []
    if not isinstance(run_context.program, Around):
        most = run_context.program.knobs.max_calls
        notes.append(f"never more than {most} calls a question (knob max_calls)")
    if retry > 1:
        notes.append(ASKED_TWICE)
    if takes_tokens(run_context.retriever):
        tokens = sum(estimate_tokens(str(passage)) for passage in run_context.dataset.corpus)
        notes.append(
            f"searches also ask a server, at most {tokens:,} tokens for the index, which are extra"
        )
    low, high = MARGIN[0] * len(todo), MARGIN[1] * retry * len(todo)
    return Estimate(
        title=title,
        calls=Range(*each.calls).times(len(todo), retry * len(todo)),
        tokens=Range(int(low * each.tokens[0]), int(high * each.tokens[1])),
        cost=each.cost and (low * each.cost[0], high * each.cost[1]),
        notes=tuple(notes),
        questions=len(todo),
        index=index,
    )


def most_tries(run_context: RunContext) -> int:
    """How often a reply is asked for at the most, servers' failures aside."""
    return 1 if isinstance(run_context.adapter, LenientJSON) else 2


def rehearse_questions(run_context: RunContext, questions: Sequence[Any]) -> Rehearsed:
    """What one question takes, by a rehearsal over some of `questions`.

    Raises:
        RunError: the program cannot be rehearsed.
    """
    some = questions[:: max(1, len(questions) // SAMPLE)][:SAMPLE]
    program, dataset = run_context.program, run_context.dataset
    if asks_servers(run_context.retriever):
        program = _over(program, make_retriever("bm25", dataset.corpus, setting=dataset.setting))
    with run_context.active():
        rehearsed = rehearse(program, some, run_context.adapter, run_context.lm)
    if rehearsed is None:
        raise RunError(
            f"{program.name} cannot be rehearsed; ask a few questions with --limit instead"
        )
    return rehearsed


def _over(program: RAGProgram, retriever: Retriever) -> RAGProgram:
    """`program`, with what it is wrapped in, searching by another retriever."""
    other = copy.copy(program)
    if bound := vars(other).get("forward"):  # of one that shows examples like the question
        other.__dict__["forward"] = MethodType(bound.__func__, other)
    other.retriever = retriever
    if isinstance(other, Around):
        other.inner = _over(other.inner, retriever)
    return other


def _estimate_index(run_context: RunContext, todo: Sequence[Any]) -> Estimate | None:
    """What the program's own index would still take, which is no question's; None without one."""
    with run_context.active(), use(replace(current(), ahead=tuple(e.question for e in todo))):
        ahead = run_context.program.index_ahead()
    parts = []
    for part in ahead:
        lm = run_context.role_lms.get(part.role, run_context.lm)
        prompt, reply = part.prompt_tokens, part.reply_tokens
        prompt = Range(int(MARGIN[0] * prompt.low), int(MARGIN[1] * prompt.high))
        low = priced(lm.pricing, None, prompt.low, reply.low)
        high = priced(lm.pricing, None, prompt.high, reply.high)
        likely, notes = priced(lm.pricing, None, *part.likely), []
        if any(part.likely):
            money = f", {usd(likely)}" if likely else ""
            notes.append(f"likely {sum(part.likely):,} tokens{money}")
        if part.kept:
            notes.append(f"{part.kept:,} replies are kept from before")
        parts.append(
            Estimate(
                title="the index, in addition",
                calls=part.calls,
                tokens=prompt + reply,
                cost=None if low is None or high is None else (low, high),
                notes=tuple(notes),
            )
        )
    return in_all(parts[0].title, parts, [n for p in parts for n in p.notes]) if parts else None
