"""What a compiled program takes against the same one not compiled, and when a compile pays back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ragbench.experiments.artifacts import Sidecar
from ragbench.experiments.runs import Evaluation


@dataclass(frozen=True)
class PayBack:
    """One unit of spending: of one compile, and per question before and after it.

    None: not known, since a price is not.
    """

    compile: float | None
    before: float | None
    after: float | None

    @property
    def saved(self) -> float | None:
        """Saved per question; negative where compiled takes more."""
        if self.before is None or self.after is None:
            return None
        return self.before - self.after

    @property
    def questions(self) -> int | None:
        """Questions after which the compile has paid for itself; None for never or not known."""
        if self.saved is None or self.compile is None or self.saved <= 0:
            return None
        return math.ceil(self.compile / self.saved)

    def words(self) -> str:
        """The break-even point in words."""
        if self.compile is None or self.saved is None:
            return "unknown: a price is unknown"
        if not (self.compile or self.before or self.after):
            return "nothing is spent"
        if self.questions is None:
            return "never pays back: compiled takes no less per question"
        return f"pays back after {self.questions:,} questions"


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
        before, after = self.tokens.before, self.tokens.after
        return after / before if before and after is not None else None

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

    def pay_back(*names: str) -> PayBack:
        return PayBack(
            _mean([_sum(cost, names) for cost in costs]),
            per_question([zero_shot], *names),
            per_question(compiled, *names),
        )

    def ratio(name: str) -> float | None:
        before, after = per_question([zero_shot], name), per_question(compiled, name)
        return after / before if before and after is not None else None

    return Spending(
        tokens=pay_back("prompt_tokens", "completion_tokens"),
        usd=pay_back("cost_usd"),
        prompt_ratio=ratio("prompt_tokens"),
        completion_ratio=ratio("completion_tokens"),
        seconds=_mean([cost["latency_s"] for cost in costs]) or 0.0,
        calls=_mean([cost["calls"] for cost in costs]) or 0.0,
    )


def per_question(runs: Sequence[Evaluation], *names: str, of: str = "as_if") -> float | None:
    """The mean of the sum of these totals of a summary; None where one is unknown.

    `of` is "as_if", at list price, or "billed".
    """
    return _mean(
        [
            None if total is None else total / max(run.summary.n, 1)
            for run in runs
            for total in [_sum(asdict(getattr(run.summary, of)), names)]
        ]
    )


def tokens_per_question(runs: Sequence[Evaluation]) -> float:
    """Prompt and completion tokens per question, the mean over runs."""
    return per_question(runs, "prompt_tokens", "completion_tokens") or 0.0


def _sum(totals: dict[str, Any], names: Sequence[str]) -> float | None:
    values = [totals[name] for name in names]
    return None if any(value is None for value in values) else float(sum(values))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None
