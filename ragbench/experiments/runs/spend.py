"""A command's limits over everything it spends."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
    spent = Spent(Limits())
    spent.count(billed_under(folder))
    return spent.total


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
