"""What runs spend: per question, for an index, and for a compile, which may pay back.

All of it is as if nothing had been cached. That something pays back is only said where the paired
interval of what it saves a question excludes 0, with ends at what questions may take (`ceilings`).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from ragbench.experiments.artifacts import Sidecar
from ragbench.experiments.compare.paired import Arm, cost_difference
from ragbench.experiments.runs.clusters import clusters_of
from ragbench.experiments.runs.summary import Evaluation
from ragbench.experiments.store import RunCard
from ragbench.metrics import LEAST_PILOT, Comparison, Interval
from ragbench.ranges import Range

#: Facts of an index about replies that are not whole.
_LOSSES = ("cut_replies", "unreadable_replies")


def per_question(runs: Sequence[Evaluation], *fields: str) -> float | None:
    """The mean of the sum of these totals of a summary; None where one is unknown."""
    values = []
    for run in runs:
        values.append([getattr(run.summary.as_if, name) for name in fields])
    if not runs or any(None in row for row in values):
        return None
    return fmean(sum(row) / max(run.summary.n, 1) for run, row in zip(runs, values, strict=True))


def saved(comparison: Comparison | None) -> Interval | None:
    """The 95 % interval of what B saves a question; None where none can be given.

    Nor is it with fewer than `LEAST_PILOT` questions.
    """
    if comparison is None or comparison.interval is None or comparison.n < LEAST_PILOT:
        return None
    return comparison.interval.mirrored()


@dataclass(frozen=True)
class PayBack:
    """One unit of spending: once, for a compile, and per question before and after it.

    `saving` is the paired 95 % interval of what is saved a question. None is not known.
    """

    once: float | None
    before: float | None
    after: float | None
    saving: Interval | None = None

    @property
    def saved(self) -> float | None:
        """Saved per question; negative where more is taken."""
        if self.before is None or self.after is None:
            return None
        return self.before - self.after

    @property
    def questions(self) -> int | None:
        """Questions after which it has paid for itself; None where no saving is shown."""
        if not (self.once is not None and self.saved and self.saving and self.saving.low > 0):
            return None
        return math.ceil(self.once / self.saved)

    def words(self) -> str:
        if self.once is None or self.saved is None:
            return "unknown: a price is unknown"
        if not (self.once or self.before or self.after):
            return "nothing is spent"
        if self.saving is None:
            return "not known: too few questions"
        low = self.saving.low
        high = self.saving.high
        if self.questions is not None:
            earliest = math.ceil(self.once / high)
            latest = math.ceil(self.once / low)
            return f"pays back after {self.questions:,} questions ({earliest:,} to {latest:,})"
        if high <= 0:
            return "never pays back: it takes no less per question"
        return f"not shown to pay back: it saves {low:,.3g} to {high:,.3g} a question"


@dataclass(frozen=True)
class Spending:
    """As if nothing had been cached; `calls` are of one compile (mean over seeds).

    `ratio` is of the tokens per question, compiled over zero-shot.
    """

    tokens: PayBack
    usd: PayBack
    ratio: float | None
    calls: float


def spending_of(zero_shot: Arm, compiled: Arm, sidecars: Sequence[Sidecar]) -> Spending:
    """The spending of the arm `compiled`, of a program per sidecar, against `zero_shot`."""
    costs = [sidecar.cost["as_if"]["all"] for sidecar in sidecars]
    qids = sorted(zero_shot[0].records)
    clusters = clusters_of(zero_shot[0].records)

    def pay_back(measure: str, *fields: str) -> PayBack:
        once = []
        for cost in costs:
            once.append([cost[name] for name in fields])
        difference = cost_difference(zero_shot, compiled, qids, measure, clusters)
        return PayBack(
            None if any(None in row for row in once) else fmean(map(sum, once)),
            per_question(zero_shot, *fields),
            per_question(compiled, *fields),
            saved(difference),
        )

    tokens = pay_back("tokens", "prompt_tokens", "completion_tokens")
    measured = tokens.before and tokens.after is not None
    return Spending(
        tokens=tokens,
        usd=pay_back("cost_usd", "cost_usd"),
        ratio=(tokens.after or 0.0) / (tokens.before or 1.0) if measured else None,
        calls=fmean(cost["calls"] for cost in costs),
    )


@dataclass(frozen=True)
class IndexCost:
    """What an index took in all, as if nothing had been kept; `usd` None: a price is unknown."""

    calls: int
    tokens: int
    usd: float | None


def index_cost(card: RunCard) -> IndexCost | None:
    """What the index in `card` took: calls to an LM, and embedding the corpus on a paid server.

    None where there was neither.
    """
    embeddings = []
    for embedding in _embeddings(card.retriever):
        if embedding["embedding_usd"] != 0:
            embeddings.append(embedding)
    calls = card.index.get("index_calls", 0)
    tokens = card.index.get("index_tokens", 0)
    if not calls and not embeddings:
        return None
    prices = [embedding["embedding_usd"] for embedding in embeddings]
    prices += [card.index.get("index_usd")] if calls else []
    tokens += sum(embedding.get("embedding_tokens", 0) for embedding in embeddings)
    return IndexCost(calls, tokens, None if None in prices else sum(prices))


def _embeddings(facts: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """What a retriever, and each retriever in it, says of embedding the corpus."""
    if "embedding_usd" in facts:
        yield facts
    for value in facts.values():
        for inner in value if isinstance(value, list | tuple) else [value]:
            if isinstance(inner, Mapping):
                yield from _embeddings(inner)


def whole_cost(evaluation: Evaluation) -> float | None:
    """US dollars of all questions of a run as if uncached, with its index; None where unknown."""
    usd = evaluation.summary.as_if.cost_usd
    index = index_cost(evaluation.card)
    if usd is None or (index is not None and index.usd is None):
        return None
    return usd + (index.usd or 0.0 if index else 0.0)


def index_lines(evaluation: Evaluation) -> list[str]:
    """The index of a run in words, beside what was expected before it was made."""
    index = index_cost(evaluation.card)
    n = evaluation.summary.n
    if index is None or not n:
        return []
    total = whole_cost(evaluation)
    usd = "unknown" if index.usd is None else f"{index.usd:.4f}"
    in_all = "unknown" if total is None else f"{total:.4f}"
    facts = evaluation.card.index
    amounts = []
    for unit, taken in (("calls", index.calls), ("tokens", index.tokens)):
        bounds = facts.get(f"expected_{unit}")
        amounts.append(f"{taken:,} {unit}" + (f" ({Range(*bounds)} expected)" if bounds else ""))
    lines = [f"index: {', '.join(amounts)}, {usd} $; the {n} questions with it: {in_all} $"]
    losses = [(name, facts.get(name)) for name in _LOSSES]
    if lost := ", ".join(f"{name} {count}" for name, count in losses if count):
        lines.append(f"the index lost {lost}; the next run that makes it asks for them again")
    return lines
