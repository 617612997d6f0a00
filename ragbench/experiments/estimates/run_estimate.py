"""What a run is expected to spend, with a range, before it spends anything.

Calls and prompts come from a rehearsal over some of the run's own questions; the range is that of
the kinds of replies tried. Where an embeddings or reranking server would have to be asked, BM25
over the same passages stands in for the search. Requests that a server fails are extra.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ragbench.context import current, use
from ragbench.errors import RunError
from ragbench.experiments.estimates.estimate import Estimate, in_all
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
    index = estimate_index(run_context, todo)  # first: questions are rehearsed over what it makes
    each = rehearse_questions(run_context, todo)
    n, retry = len(todo), most_tries(run_context)
    cost = each.cost and (MARGIN[0] * n * each.cost[0], MARGIN[1] * retry * n * each.cost[1])
    return Estimate(
        title=title,
        calls=Range(n * each.calls[0], retry * n * each.calls[1]),
        tokens=Range(
            int(MARGIN[0] * n * each.tokens[0]), int(MARGIN[1] * retry * n * each.tokens[1])
        ),
        cost=cost,
        notes=tuple(_notes(run_context, retry)),
        questions=n,
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
    step = max(1, len(questions) // SAMPLE)
    program = run_context.program
    if asks_servers(run_context.retriever):
        program = _over(
            program,
            make_retriever("bm25", run_context.dataset.corpus, setting=run_context.dataset.setting),
        )
    with run_context.active():
        rehearsed = rehearse(
            program, questions[::step][:SAMPLE], run_context.adapter, run_context.lm
        )
    if rehearsed is None:
        raise RunError(
            f"{run_context.program.name} cannot be rehearsed; "
            "ask a few questions with --limit instead"
        )
    return rehearsed


def _over(program: RAGProgram, retriever: Retriever) -> RAGProgram:
    """`program`, with what it is wrapped in, searching by another retriever."""
    other = copy.copy(program)
    other.retriever = retriever
    if isinstance(other, Around):
        other.inner = _over(other.inner, retriever)
    return other


def _notes(run_context: RunContext, retry: int) -> list[str]:
    lines = []
    if not isinstance(run_context.program, Around):
        most = run_context.program.knobs.max_calls
        lines.append(f"never more than {most} calls a question (knob max_calls)")
    if retry > 1:
        lines.append(ASKED_TWICE)
    if takes_tokens(run_context.retriever):
        tokens = sum(estimate_tokens(str(passage)) for passage in run_context.dataset.corpus)
        lines.append(
            f"searches also ask a server, at most {tokens:,} tokens for the index, which are extra"
        )
    return lines


def estimate_index(run_context: RunContext, todo: Sequence[Any]) -> Estimate | None:
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
        kept = f"{part.kept:,} replies are kept from before" if part.kept else ""
        parts.append(
            Estimate(
                title="the index, in addition",
                calls=part.calls,
                tokens=prompt + reply,
                cost=None if low is None or high is None else (low, high),
                notes=(kept,) if kept else (),
            )
        )
    return in_all(parts[0].title, parts, [n for p in parts for n in p.notes]) if parts else None
