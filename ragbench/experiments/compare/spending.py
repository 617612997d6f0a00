"""Spending of runs: per question, for an index, and for a compile with its break-even point.

All amounts exclude caching. Costs have no bounds, so nothing is tested. A break-even number is
based on the means of the questions that were run.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from ragbench.experiments.artifacts import Sidecar
from ragbench.experiments.compare.paired import Arm
from ragbench.experiments.runs.summary import Evaluation, or_unknown
from ragbench.experiments.store import RunCard
from ragbench.metrics import THESE_QUESTIONS

#: Facts of an index about replies that are not whole.
_LOSSES = ("cut_replies", "unreadable_replies")


def per_question(runs: Sequence[Evaluation], amount: str) -> float | None:
    """Return the mean per question of a total of the summary, or None if unknown.

    Args:
        runs: Runs.
        amount: Name of the total, such as `cost_usd`.
    """
    values = []
    for run in runs:
        value = getattr(run.summary.as_if, amount)
        if value is None:
            return None
        values.append(value / max(run.summary.n, 1))
    if values:
        return fmean(values)
    return None


@dataclass(frozen=True)
class BreakEven:
    """One unit of spending.

    Attributes:
        once: Spent once, for a compile. None if unknown.
        before: Mean of a question before the compile. None if unknown.
        after: Mean of a question after it. None if unknown.
    """

    once: float | None
    before: float | None
    after: float | None

    @property
    def saved(self) -> float | None:
        """Saved per question; negative if more is taken."""
        if self.before is None or self.after is None:
            return None
        return self.before - self.after

    @property
    def questions(self) -> int | None:
        """Break-even number of questions, by the means. None if there is none."""
        if self.once is None or self.saved is None or self.saved <= 0:
            return None
        return math.ceil(self.once / self.saved)

    def words(self) -> str:
        """Describe the break-even number of questions. It is not a test."""
        if self.once is None or self.saved is None:
            return "unknown: a price is unknown"
        if not (self.once or self.before or self.after):
            return "nothing is spent"
        if self.questions is None:
            return f"does not pay back by the means {THESE_QUESTIONS}"
        return f"pays back after {self.questions:,} questions, by the means {THESE_QUESTIONS}"


@dataclass(frozen=True)
class CompileCost:
    """Spending without caching. `calls` is the mean number of calls of one compile over seeds.

    `ratio` is the tokens per question of compiled divided by those of zero-shot.
    """

    tokens: BreakEven
    usd: BreakEven
    ratio: float | None
    calls: float


def spending_of(zero_shot: Arm, compiled: Arm, sidecars: Sequence[Sidecar]) -> CompileCost:
    """Compute the spending of an arm of compiled programs.

    Args:
        zero_shot: Runs of the uncompiled program.
        compiled: Runs of the compiled programs.
        sidecars: Sidecar of each compiled program.
    """
    costs = [sidecar.cost["as_if"]["all"] for sidecar in sidecars]

    def pay_back(measure: str, once: Sequence[float | None]) -> BreakEven:
        amounts = [amount for amount in once if amount is not None]
        return BreakEven(
            fmean(amounts) if len(amounts) == len(once) else None,
            per_question(zero_shot, measure),
            per_question(compiled, measure),
        )

    tokens = pay_back("tokens", [c["prompt_tokens"] + c["completion_tokens"] for c in costs])
    ratio = None
    if tokens.before and tokens.after is not None:
        ratio = tokens.after / tokens.before
    usd = pay_back("cost_usd", [cost["cost_usd"] for cost in costs])
    return CompileCost(tokens, usd, ratio, fmean(cost["calls"] for cost in costs))


@dataclass(frozen=True)
class IndexCost:
    """Total cost of an index without caching. `usd` is None if a price is unknown."""

    calls: int
    tokens: int
    usd: float | None


def index_cost(card: RunCard) -> IndexCost | None:
    """Return the cost of the index in `card`: LM calls and paid embeddings of the corpus.

    None if there were neither.
    """
    calls = card.index.get("index_calls", 0)
    tokens = card.index.get("index_tokens", 0)
    prices = []
    for embedding in _embeddings(card.retriever):
        if embedding["embedding_usd"] != 0:
            prices.append(embedding["embedding_usd"])
            tokens += embedding.get("embedding_tokens", 0)
    if calls:
        prices.append(card.index.get("index_usd"))
    if not prices:
        return None
    return IndexCost(calls, tokens, None if None in prices else sum(prices))


def _embeddings(facts: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the embedding facts of a retriever and of each retriever in it."""
    if "embedding_usd" in facts:
        yield facts
    for value in facts.values():
        for inner in value if isinstance(value, list | tuple) else [value]:
            if isinstance(inner, Mapping):
                yield from _embeddings(inner)


def whole_cost(evaluation: Evaluation) -> float | None:
    """Return the cost of a run and its index in US dollars without caching. None if unknown."""
    usd = evaluation.summary.as_if.cost_usd
    index = index_cost(evaluation.card)
    if usd is None or (index is not None and index.usd is None):
        return None
    return usd + (index.usd or 0.0 if index else 0.0)


def index_lines(evaluation: Evaluation) -> list[str]:
    """Describe the cost of a run's index."""
    index = index_cost(evaluation.card)
    n = evaluation.summary.n
    if index is None or not n:
        return []
    total = whole_cost(evaluation)
    usd = or_unknown(index.usd)
    in_all = or_unknown(total)
    facts = evaluation.card.index
    amounts = f"{index.calls:,} calls, {index.tokens:,} tokens"
    lines = [f"index: {amounts}, {usd} $; the {n} questions with it: {in_all} $"]
    lost = ", ".join(f"{name} {facts[name]}" for name in _LOSSES if facts.get(name))
    if lost:
        lines.append(f"the index lost {lost}; the next run that makes it asks for them again")
    return lines
