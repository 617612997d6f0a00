"""What a compile is expected to spend, in lines for a person: runs, calls, tokens, time, cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ragbench.experiments.rehearsal import Rehearsed
from ragbench.ledger import Totals
from ragbench.lms.prices import priced
from ragbench.optimizers.base import Budget, Optimizer, Range, Size

#: File of a run folder that keeps what the run was expected to spend.
ESTIMATE = "estimate.json"
#: Tokens that one demonstration adds beside its passages: question, answer and markers.
_DEMO_OVERHEAD = 80


@dataclass(frozen=True)
class Estimate:
    """What is expected, if no reply is cached; `cost` in US dollars, None where not known."""

    what: str
    calls: Range
    tokens: Range
    cost: tuple[float, float] | None
    notes: tuple[str, ...] = ()
    questions: int = 0

    def lines(self) -> list[str]:
        """The estimate for people."""
        cost = "unknown: no price is known for an LM; give --price"
        if self.cost is not None:
            cost = f"{usd(self.cost[0])} to {usd(self.cost[1])}" if self.cost[1] else "$0"
        return [
            self.what,
            f"  calls   {self.calls}",
            f"  tokens  {self.tokens}",
            f"  cost    {cost}",
            *(f"  {note}" for note in self.notes),
        ]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; `from_dict` reads it back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Estimate:
        """The estimate that `to_dict` gave."""
        ranges = {name: Range(**data[name]) for name in ("calls", "tokens")}
        cost = tuple(data["cost"]) if data["cost"] else None
        return cls(
            what=data["what"],
            **ranges,
            cost=cost,
            notes=tuple(data["notes"]),
            questions=data["questions"],
        )

    def holds(self, *, calls: int, tokens: int, cost: float | None) -> bool:
        """Whether what was spent lies within the range."""
        inside = self.calls.low <= calls <= self.calls.high
        inside = inside and self.tokens.low <= tokens <= self.tokens.high
        if self.cost is None or cost is None:
            return inside
        return inside and self.cost[0] <= cost <= self.cost[1]

    def against(self, *, calls: int, tokens: int, cost: float | None) -> str:
        """What was spent beside what was expected, in words."""
        shown = "" if cost is None or self.cost is None else f", {usd(cost)}"
        inside = self.holds(calls=calls, tokens=tokens, cost=cost)
        return (
            f"spent {calls:,} calls, {tokens:,} tokens{shown}: "
            + ("within" if inside else "outside of")
            + f" the estimate of {self.calls} calls, {self.tokens} tokens"
        )


def in_all(what: str, parts: Sequence[Estimate], notes: Sequence[str] = ()) -> Estimate:
    """The sum of what `parts` are expected to spend; the cost None where one is not known."""
    costs = [part.cost for part in parts if part.cost is not None]
    low, high = (sum(cost[end] for cost in costs) for end in (0, 1))
    return Estimate(
        what,
        calls=sum((part.calls for part in parts), Range()),
        tokens=sum((part.tokens for part in parts), Range()),
        cost=(low, high) if len(costs) == len(parts) else None,
        notes=tuple(notes),
    )


def whole_budget(optimizer: Optimizer, size: Size) -> Budget:
    """The optimizer's budget, and the validation set once before it and once after."""
    budget = optimizer.estimate(size)
    both = Range.exactly(2 * size.n_val)
    return Budget(budget.teacher_runs, budget.student_runs + both, budget.prompt_calls)


def describe(
    optimizer: Optimizer,
    size: Size,
    rehearsed: Rehearsed | None,
    *,
    pricing: Any = None,
    seconds_per_call: float | None = None,
) -> list[str]:
    """The budget before anything is spent; what cannot be known then is called unknown.

    Calls and prompt tokens of a run are those of the rehearsal; the upper bound of tokens has every
    demonstration that the optimizer may add to each call.
    """
    budget = whole_budget(optimizer, size)
    lines = [
        f"{optimizer.name} ({optimizer.preset}): {size.n_train} training and {size.n_val} "
        f"validation questions, {size.n_predictors} predictors",
        f"  program runs   {budget.runs}",
        f"    that is      {optimizer.formula}; and 2 x V to score before and after",
    ]
    if rehearsed is None:
        return [*lines, "  LM calls       unknown: the program could not be rehearsed"]
    calls = budget.lm_calls(*rehearsed.calls)
    extra = _most_demos(optimizer) * (optimizer.knobs.demo_context_tokens + _DEMO_OVERHEAD)
    most = rehearsed.prompt_tokens[1] + rehearsed.calls[1] * extra
    tokens = budget.runs.times(rehearsed.prompt_tokens[0], most)
    per_run = Range(*rehearsed.calls)
    writing = "" if budget.prompt_calls == Range() else ", without the prompt model's"
    lines += [
        f"  LM calls       {calls} ({per_run} a run; by the prompt model {budget.prompt_calls})",
        f"  prompt tokens  {tokens}{writing}",
        f"  time           {_time(calls, seconds_per_call)}",
        f"  cost           {_cost(pricing, tokens, writing)}",
    ]
    return lines


def describe_measured(
    optimizer: Optimizer, size: Size, zero_shot: Totals, *, seconds: float
) -> list[str]:
    """The rest of the budget, from what the zero-shot validation took.

    `seconds` is its wall time, had nothing been cached; teaching runs go one by one, so the upper
    bound takes the sum of their latencies.
    """
    rest, n = optimizer.estimate(size), size.n_val
    runs = rest.runs + Range.exactly(n)
    calls, tokens = zero_shot.calls / n, zero_shot.tokens / n
    alone = max(zero_shot.latency_s, seconds) / n
    high = rest.teacher_runs.high * alone + (rest.student_runs.high + n) * seconds / n
    low = runs.low * seconds / n
    each = zero_shot.cost_usd
    cost = (
        "unknown" if each is None else f"{usd(runs.low * each / n)} to {usd(runs.high * each / n)}"
    )
    return [
        f"  measured: {calls:.1f} calls, {tokens:,.0f} tokens and {seconds / n:.2f} s a question",
        f"  still to come: {runs} runs, about {runs.low * calls:,.0f} to {runs.high * calls:,.0f} "
        f"calls, {_span(low)} to {_span(high)}, cost {cost}; prompt model and demonstrations extra",
    ]


def _most_demos(optimizer: Optimizer) -> int:
    names = ("bootstrapped", "labeled", "demos", "k")
    return max((int(getattr(optimizer.knobs, name, 0)) for name in names), default=0)


def _time(calls: Range, seconds_per_call: float | None) -> str:
    if seconds_per_call is None:
        return "known once the first questions are answered, or give --seconds-per-call"
    low, high = calls.low * seconds_per_call, calls.high * seconds_per_call
    return f"{_span(low)} to {_span(high)}, one call after another"


def _cost(pricing: Any, tokens: Range, writing: str) -> str:
    counts = (tokens.low, tokens.high)
    bounds = [priced(pricing, None, n, 0) if pricing else None for n in counts]
    if None in bounds:
        return "unknown: no price is known for this LM; give --price"
    low, high = (float(bound or 0.0) for bound in bounds)
    if high == 0:
        return "$0: the model runs here"
    return f"{usd(low)} to {usd(high)} for prompt tokens{writing}; replies cost extra"


def usd(amount: float) -> str:
    """`amount` US dollars, with more digits where it is small."""
    return f"${amount:,.2f}" if amount >= 0.01 or amount == 0 else f"${amount:.4f}"


def _span(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
