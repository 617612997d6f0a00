"""A command's limits over everything it spends."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ragbench.errors import ConfigError, RunError, StoppedError
from ragbench.experiments.store import CALLS, DATABASE, billed_calls
from ragbench.ledger import OpenLedger
from ragbench.lms.calls import Amount, Limits, Spent, spending, stopped_by, wait_for_calls
from ragbench.record import Call, billed, was_sent


@contextmanager
def limited(limits: Limits, *folders: Path) -> Iterator[Spent]:
    """Keep `limits` inside the block, counting what earlier processes billed under `folders`.

    Raises:
        ConfigError: a limit on cost, and an earlier call without a known price.
    """
    with spending(limits) as spent:
        for folder in folders if limits else ():
            calls = list(billed_under(folder))
            unpriced = (was_sent(call) and billed([call]).cost_usd is None for call in calls)
            if limits.cost is not None and any(unpriced):
                raise ConfigError(
                    f"{folder} holds calls without a known price, so {limits.option('cost')} "
                    "cannot be kept; give --max-total-tokens or --max-calls instead"
                )
            spent.count(calls)
        yield spent


def billed_under(folder: Path) -> Iterator[Call]:
    """The calls to servers of every run and compile in `folder` and the folders in it.

    Those of questions that were asked again, or that a kill kept from leaving a record, are among
    them. What scoring asked is not.

    Raises:
        RunError: records cannot be read.
    """
    for path in sorted([*folder.rglob(DATABASE), *folder.rglob(CALLS)]):
        yield from billed_calls(path)


def spent_under(folder: Path) -> Amount:
    """What `billed_under` comes to; an unknown cost is infinite."""
    total = Amount(calls=0)
    for call in billed_under(folder):
        took = billed([call])
        cost = math.inf if took.cost_usd is None else took.cost_usd
        total += Amount(call.attempts, took.tokens, cost)
    return total


def shares_of(amount: Amount, n: int) -> list[Amount]:
    """`amount` in `n` parts, as equal as whole calls and tokens allow."""

    def part(total: float, number: int) -> float:
        return total if math.isinf(total) else total // n + (number < total % n)

    return [
        Amount(part(amount.calls, i), part(amount.tokens, i), amount.cost / n)  # type: ignore[arg-type]
        for i in range(n)
    ]


def is_limited(amount: Amount) -> bool:
    """Whether anything of `amount` is finite."""
    return any(map(math.isfinite, (amount.calls, amount.tokens, amount.cost)))


def minus(a: Amount, b: Amount) -> Amount:
    """What is left of `a` after `b`, at least nothing."""
    return Amount(
        max(0, a.calls - b.calls),
        max(0, a.tokens - b.tokens),
        max(0.0, a.cost - b.cost) if math.isfinite(a.cost) else a.cost,
    )


def as_limits(amount: Amount, minutes: float | None) -> Limits:
    """`amount` as limits; infinity is none."""

    def limit(value: float) -> Any:
        return value if math.isfinite(value) else None

    return Limits(limit(amount.cost), limit(amount.tokens), limit(amount.calls), minutes)


def stop_if_refused(ledger: OpenLedger, *, failed: bool) -> None:
    """Do nothing if no call of a compile was refused, or it `failed` by a dead LM anyway.

    Raises:
        StoppedError: a limit of spending refused a call.
        RunError: a dead LM did, and the optimizer went on without it.
    """
    wait_for_calls()  # threads of the optimizer end by themselves: what they took is filed
    if ledger.refused and (limit := stopped_by()):
        raise StoppedError(f"{limit} while compiling")
    if ledger.refused and not failed:
        raise RunError("the LM is down; when it answers, give the same command again")
