"""What runs spend against each other: measures per question, compiles and indexes that pay back.

All of it is as if nothing had been cached. That something pays back is only said where the paired
interval of what it saves a question excludes 0.
"""

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ragbench.experiments.artifacts import Sidecar
from ragbench.experiments.compare.arms import Arm, clusters_of
from ragbench.experiments.runs import Evaluation
from ragbench.experiments.store import RunCard
from ragbench.metrics import Comparison, Interval, Method, compare_scores
from ragbench.ranges import Range
from ragbench.record import Record

#: What a question costs, as if nothing had been cached.
MEASURES: Mapping[str, Callable[[Record], float | None]] = {
    "calls": lambda record: float(record.ledger.as_if.calls),
    "tokens": lambda record: float(record.ledger.as_if.tokens),
    "cost $": lambda record: record.ledger.as_if.cost_usd,
    "latency s": lambda record: float(record.latency_s),
}
#: The column of a table of runs that a measure is of.
COLUMN_OF = {"calls": "calls", "tokens": "tokens", "cost $": "cost_usd", "latency s": "p50_s"}


def cost_difference(
    a: Arm, b: Arm, qids: Sequence[str], measure: Callable[[Record], float | None],
    clusters: Mapping[str, Hashable] | None = None,
) -> Comparison | None:  # fmt: skip
    """The comparison of one measure of arm `b` with arm `a`; None where it is not known of all."""
    sides = []
    for arm in (a, b):
        columns = [run.records.only(qids).column(measure) for run in arm]
        rows = {q: [v for c in columns if (v := c[q]) is not None] for q in qids}
        if any(len(row) < len(arm) for row in rows.values()):
            return None
        sides.append(rows)
    method = Method(clusters=clusters or {})
    return compare_scores(*sides, higher_is_better=False, score_range=None, method=method)


def saved(comparison: Comparison | None) -> Interval | None:
    """The 95 % interval of what B saves a question; None where none can be given."""
    ends = comparison.interval if comparison else None
    return Interval(-ends.high, -ends.low) if ends else None


@dataclass(frozen=True)
class PayBack:
    """One unit of spending: of one compile, and per question before and after it.

    `saving` is the paired 95 % interval of what is saved a question. None is not known.
    """

    compile: float | None
    before: float | None
    after: float | None
    saving: Interval | None = None

    @property
    def saved(self) -> float | None:
        """Saved per question; negative where compiled takes more."""
        if self.before is None or self.after is None:
            return None
        return self.before - self.after

    @property
    def questions(self) -> int | None:
        """Questions after which the compile has paid for itself; None where no saving is shown."""
        if not (self.compile is not None and self.saved and self.saving and self.saving.low > 0):
            return None
        return math.ceil(self.compile / self.saved)

    def words(self) -> str:
        """The break-even point in words."""
        if self.compile is None or self.saved is None:
            return "unknown: a price is unknown"
        if not (self.compile or self.before or self.after):
            return "nothing is spent"
        if self.saving is None:
            return "not known: too few questions"
        low, high = self.saving.low, self.saving.high
        if self.questions is not None:
            first, last = math.ceil(self.compile / high), math.ceil(self.compile / low)
            return f"pays back after {self.questions:,} questions ({first:,} to {last:,})"
        if high <= 0:
            return "never pays back: compiled takes no less per question"
        return f"not shown to pay back: it saves {low:,.3g} to {high:,.3g} a question"


@dataclass(frozen=True)
class Spending:
    """As if nothing had been cached; `seconds` and `calls` are of one compile (mean over seeds).

    `seconds` is the sum of its calls' latencies: its wall time is only known of a compile that no
    cache answered, and depends on how many calls were made at once.
    """

    tokens: PayBack
    usd: PayBack
    prompt_ratio: float | None
    completion_ratio: float | None
    seconds: float
    calls: float

    @property
    def ratio(self) -> float | None:
        """Tokens per question, compiled over zero-shot."""
        return _ratio(self.tokens.after, self.tokens.before)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        pay_back = {
            name: {**asdict(part), "saved": part.saved, "questions": part.questions}
            for name, part in (("tokens", self.tokens), ("usd", self.usd))
        }
        return {**asdict(self), **pay_back, "ratio": self.ratio}


def spending_of(
    zero_shot: Evaluation, compiled: Sequence[Evaluation], sidecars: Sequence[Sidecar]
) -> Spending:
    """The spending of the runs `compiled`, one per sidecar, against `zero_shot`."""
    costs = [sidecar.cost["as_if"]["all"] for sidecar in sidecars]
    qids, clusters = sorted(zero_shot.records), clusters_of(zero_shot.records)

    def pay_back(measure: str, *names: str) -> PayBack:
        compiling = _mean([_sum(cost, names) for cost in costs])
        before, after = (per_question(runs, *names) for runs in ([zero_shot], compiled))
        of = cost_difference([zero_shot], compiled, qids, MEASURES[measure], clusters)
        return PayBack(compiling, before, after, saved(of))

    def ratio(name: str) -> float | None:
        return _ratio(per_question(compiled, name), per_question([zero_shot], name))

    return Spending(
        tokens=pay_back("tokens", "prompt_tokens", "completion_tokens"),
        usd=pay_back("cost $", "cost_usd"),
        prompt_ratio=ratio("prompt_tokens"),
        completion_ratio=ratio("completion_tokens"),
        seconds=_mean([cost["latency_s"] for cost in costs]) or 0.0,
        calls=_mean([cost["calls"] for cost in costs]) or 0.0,
    )


def per_question(runs: Sequence[Evaluation], *names: str, of: str = "as_if") -> float | None:
    """The mean of the sum of these totals of a summary; None where one is unknown.

    `of` is "as_if", at list price, or "billed".
    """
    totals = [(_sum(asdict(getattr(run.summary, of)), names), run.summary.n) for run in runs]
    return _mean([None if total is None else total / max(n, 1) for total, n in totals])


def _ratio(after: float | None, before: float | None) -> float | None:
    return after / before if before and after is not None else None


def _sum(totals: dict[str, Any], names: Sequence[str]) -> float | None:
    values = [totals[name] for name in names]
    return None if any(value is None for value in values) else float(sum(values))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


#: Facts of an index about replies that are not whole.
_LOSSES = ("cut_replies", "unreadable_replies")


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
    parts = [part for part in _embeddings(card.retriever) if part["embedding_usd"] != 0]
    calls = card.index.get("index_calls", 0)
    if not calls and not parts:
        return None
    prices = [part["embedding_usd"] for part in parts]
    prices += [card.index.get("index_usd")] if calls else []
    known = [usd for usd in prices if usd is not None]
    tokens = sum(part.get("embedding_tokens", 0) for part in parts)
    return IndexCost(
        calls,
        tokens + card.index.get("index_tokens", 0),
        sum(known) if len(known) == len(prices) else None,
    )


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
    return float(usd + (index.usd or 0.0 if index else 0.0))


def pays_from(index: float, each: float, other: float) -> int | None:
    """Questions from which `index` and `each` per question are less than `other` per question.

    None where they never are. All three are of one unit, dollars or tokens.
    """
    if each >= other:
        return None
    return math.floor(index / (other - each)) + 1


def index_lines(evaluation: Evaluation, others: Sequence[tuple[str, Evaluation]]) -> list[str]:
    """The index of a run in words, and against each of the `others`, by name, that has none.

    In dollars where all prices are known and something is spent, else in tokens. In the distractor
    setting every question has an index of its own, whose cost is part of the question's.
    """
    index, n = index_cost(evaluation.card), evaluation.summary.n
    if index is None or not n:
        return []
    whole = whole_cost(evaluation)
    usd, in_all = ("unknown" if x is None else f"{x:.4f}" for x in (index.usd, whole))
    facts = evaluation.card.index
    calls, tokens = (
        f"{taken:,} {what}{_expected(facts.get(f'expected_{what}'))}"
        for what, taken in (("calls", index.calls), ("tokens", index.tokens))
    )
    lines = [f"index: {calls}, {tokens}, {usd} $; the {n} questions with it: {in_all} $"]
    losses = [(name, facts.get(name)) for name in _LOSSES]
    if lost := ", ".join(f"{name} {count}" for name, count in losses if count):
        lines.append(f"the index lost {lost}; the next run that makes it asks for them again")
    for name, other in others:
        if index_cost(other.card) is None and other.summary.n:
            lines.append(f"the index pays against {name}, {_pays(evaluation, index, other)}")
    return lines


def _expected(bounds: Sequence[int] | None) -> str:
    """What was expected before the index was made, where that is known."""
    return f" ({Range(*bounds)} expected)" if bounds else ""


def _pays(evaluation: Evaluation, index: IndexCost, other: Evaluation) -> str:
    """From how many questions on the index pays, as far as it is shown."""
    qids = [qid for qid in evaluation.records if qid in other.records]
    clusters = clusters_of(evaluation.records.only(qids))

    def against(measure: str) -> Comparison | None:
        return cost_difference([other], [evaluation], qids, MEASURES[measure], clusters)

    dollars = against("cost $") if qids and index.usd else None
    in_dollars = dollars is not None and bool(dollars.mean_a and dollars.mean_b)
    found, spent = (dollars, index.usd or 0.0) if in_dollars else (None, float(index.tokens))
    found = found or (against("tokens") if qids else None)
    unit = "in dollars" if in_dollars else "in tokens"
    if found is None:
        return f"{unit}: not known, for they share no question"
    if evaluation.card.data.setting == "distractor":
        cheaper = found.mean_b + spent / evaluation.summary.n < found.mean_a
        when = "always" if cheaper else "never"
        return f"{unit}: {when}, for every question has one of its own"
    saving = saved(found)
    if saving is None or saving.low <= 0 < saving.high:
        return f"{unit}: not shown, for the saving a question may be 0"
    from_n = pays_from(spent, found.mean_b, found.mean_a)
    return f"{unit}: never" if from_n is None else f"{unit}: from {from_n:,} questions on"
