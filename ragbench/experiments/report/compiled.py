"""The compiled programs in a folder, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from ragbench.errors import RunError
from ragbench.experiments.artifacts import SIDECAR, Sidecar, read_sidecar
from ragbench.experiments.compile import ASKED
from ragbench.experiments.report.means import half
from ragbench.experiments.report.tables import console, money, plain, print_table
from ragbench.metrics import expected_lead


@dataclass(frozen=True)
class Shelved:
    """One folder: its sidecar, or why there is none."""

    folder: Path
    sidecar: Sidecar | None
    problem: str = ""


def find_programs(folder: Path) -> list[Shelved]:
    """Every compiled program under `folder`, sorted by path, unfinished and broken ones too.

    Raises:
        RunError: there is no such folder.
    """
    if not folder.is_dir():
        raise RunError(f"no folder {folder}; `ragbench compile` makes compiled/")
    folders = {path.parent for name in (SIDECAR, ASKED) for path in folder.rglob(name)}
    return [_read(path) for path in sorted(folders)]


def print_programs(shelf: list[Shelved]) -> None:
    """Print one row per program, then those that cannot be used."""
    out = console()
    rows = [row for row in shelf if row.sidecar is not None]
    if rows:
        print_table(_table(rows), "compiled", drop=("cost $", "zero-shot", "LM", "optimizer"))
        out.print(plain("scores are on the validation questions that each was selected on"))
    for row in shelf:
        if row.sidecar is None:
            out.print(plain(row.problem), soft_wrap=True)
    if not shelf:
        out.print(plain("no compiled programs found"))


def _read(folder: Path) -> Shelved:
    try:
        return Shelved(folder, read_sidecar(folder))
    except RunError as error:
        return Shelved(folder, None, str(error))


def _table(rows: list[Shelved]) -> Table:
    table = Table(box=box.MARKDOWN)
    names = (
        "folder", "program", "optimizer", "LM", "score", "zero-shot", "difference",
        "by choosing", "cost $",
    )  # fmt: skip
    for name in names:
        table.add_column(name, justify="left" if name in names[:4] else "right", no_wrap=True)
    for row in rows:
        assert row.sidecar is not None
        table.add_row(*map(plain, (row.folder, *_cells(row.sidecar))))
    return table


def by_choosing(card: Sidecar, candidates: int) -> str:
    """The score of the best of `candidates` without the luck of being chosen, and its interval.

    Where the scores of each question are not known: how much of the difference the best of as many
    that are equal would show by chance.
    """
    best, interval = card.scores.get("corrected"), card.scores.get("interval")
    if best:
        low, high = best["interval"]["low"], best["interval"]["high"]
        return f"{best['corrected']:.3f} [{low:.3f}, {high:.3f}] of {best['candidates']}"
    if not interval or candidates < 2:
        return "-"
    standard_error = (interval["high"] - interval["low"]) / (2 * 1.96)
    return f"up to {expected_lead(candidates, standard_error):.3f} of {candidates}"


def difference(card: Sidecar) -> str:
    """The difference from the program as it was, with its interval."""
    interval = card.scores.get("interval")
    shown = f" [{interval['low']:+.3f}, {interval['high']:+.3f}]" if interval else ""
    return f"{card.scores['difference']:+.3f}{shown}"


def _mean(scored: Mapping[str, Any]) -> str:
    """A mean with half the width of its interval, which older sidecars do not have."""
    interval = scored.get("interval")
    return f"{scored['mean']:.3f}{half((interval['low'], interval['high']) if interval else None)}"


def _cells(card: Sidecar) -> list[str]:
    optimizer, scores = card.optimizer, card.scores
    preset = f" {optimizer['preset']}" if "preset" in optimizer else ""
    variant = f" ({card.variant})" if card.variant not in ("", "default") else ""
    return [
        card.program + variant,
        f"{optimizer.get('name')}{preset}, seed {optimizer.get('seed')}",
        str(card.lms.get("student")),
        f"{scores['metric']} {_mean(scores['compiled'])} (n={scores['n']})",
        _mean(scores["zero_shot"]),
        difference(card),
        by_choosing(card, len(card.notes.get("candidates", ()))),
        money(card.cost["as_if"]["all"]["cost_usd"]),
    ]
