"""A command's limits over everything it spends, and how far a run came under them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ragbench.errors import ConfigError, RunError, StoppedError
from ragbench.experiments.records import (
    CALLS,
    RECORDS,
    Loaded,
    lost_calls,
    read_calls,
    recorded_calls,
)
from ragbench.ledger import OpenLedger
from ragbench.lms.calls import Limits, Spent, spending, stopped_by, wait_for_calls
from ragbench.record import Call, was_sent


@contextmanager
def limited(limits: Limits, *folders: Path) -> Iterator[Spent]:
    """Keep `limits` inside the block, counting what earlier processes billed under `folders`.

    Raises:
        ConfigError: a limit on cost, and an earlier call without a known price.
    """
    with spending(limits) as spent:
        for folder in folders if limits else ():
            calls = list(billed_under(folder))
            if limits.cost is not None and any(_unpriced(call) for call in calls):
                raise ConfigError(
                    f"{folder} holds calls without a known price, so {limits.option('cost')} "
                    "cannot be kept; give --max-total-tokens or --max-calls instead"
                )
            spent.count(calls)
        yield spent


def _unpriced(call: Call) -> bool:
    return was_sent(call) and call.cost_usd is None and call.error is None


def billed_under(folder: Path) -> Iterator[Call]:
    """The calls to servers of every run and compile in `folder` and the folders in it.

    Those of questions that were asked again, or that a kill kept from leaving a record, are among
    them. What scoring asked is not.

    Raises:
        RunError: records cannot be read.
    """
    for path in sorted(folder.rglob(RECORDS)):
        yield from recorded_calls(path.parent)
        yield from lost_calls(path.parent)
    for path in sorted(folder.rglob(CALLS)):
        yield from filter(was_sent, read_calls(path))


@dataclass(frozen=True)
class Progress:
    """How many of a run's questions came to what; None for all where a run does not say."""

    answered: int
    failed: int
    cut_off: int
    questions: int | None = None

    @classmethod
    def of(cls, loaded: Loaded, questions: int | None) -> Progress:
        """The progress that the records show."""
        answered = len(loaded.finished)
        cut_off = set(loaded.cut_off.qids) - set(loaded.records)
        return cls(answered, len(loaded.records) - answered, len(cut_off), questions)

    @property
    def not_asked(self) -> int:
        """Questions that were not begun."""
        return max(0, (self.questions or 0) - self.answered - self.failed - self.cut_off)

    @property
    def complete(self) -> bool:
        """Whether every question came to its end."""
        return not self.cut_off and not self.not_asked

    def words(self) -> str:
        """Such as "37 of 100 answered, 1 failed, 2 cut off, 60 not asked"."""
        parts = [f"{self.answered} of {self.questions} answered"]
        for n, what in (
            (self.failed, "failed"),
            (self.cut_off, "cut off"),
            (self.not_asked, "not asked"),
        ):
            parts += [f"{n} {what}"] if n else []
        return ", ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {**asdict(self), "not_asked": self.not_asked}


#: Of a run whose records do not say.
WHOLE = Progress(0, 0, 0)


def stop_lines(stopped_by: str, progress: Progress) -> list[str]:
    """What a partial table must say; nothing for one that is whole."""
    if progress.complete:
        return []
    what = f"stopped by {stopped_by}" if stopped_by else "not finished"
    return [f"{what}: {progress.words()}; the scores are of those that were answered or failed"]


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
