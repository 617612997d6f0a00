"""The compiled programs in a folder, as a table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from ragbench.errors import RunError
from ragbench.experiments.artefact import SIDECAR, Sidecar, read_sidecar
from ragbench.experiments.compile import ASKED
from ragbench.experiments.report import console, money, plain, print_table


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
    found = {path.parent for name in (SIDECAR, ASKED) for path in folder.rglob(name)}
    return [_read(path) for path in sorted(found)]


def print_programs(shelf: list[Shelved]) -> None:
    """Print one row per program, then those that cannot be used."""
    out = console()
    rows = [row for row in shelf if row.sidecar is not None]
    if rows:
        print_table(Console(width=1000), _table(rows))  # as wide as it is: names matter here
        out.print(plain("scores and differences are on the questions that each was chosen by"))
    for row in shelf:
        if row.sidecar is None:
            out.print(plain(row.problem), soft_wrap=True)
    if not shelf:
        out.print(plain("no compiled program here"))


def _read(folder: Path) -> Shelved:
    try:
        return Shelved(folder, read_sidecar(folder))
    except RunError as error:
        return Shelved(folder, None, str(error))


def _table(rows: list[Shelved]) -> Table:
    table = Table(box=box.MARKDOWN)
    names = ("folder", "program", "optimizer", "LM", "score", "as it was", "difference", "cost $")
    for name in names:
        table.add_column(name, justify="left" if name in names[:4] else "right", no_wrap=True)
    for row in rows:
        assert row.sidecar is not None
        table.add_row(*map(plain, (row.folder, *_cells(row.sidecar))))
    return table


def _cells(card: Sidecar) -> list[str]:
    optimizer, scores = card.optimizer, card.scores
    interval = scores.get("interval")
    shown = f" [{interval['low']:+.3f}, {interval['high']:+.3f}]" if interval else ""
    preset = f" {optimizer['preset']}" if "preset" in optimizer else ""
    variant = f" ({card.variant})" if card.variant not in ("", "default") else ""
    return [
        card.program + variant,
        f"{optimizer.get('name')}{preset}, seed {optimizer.get('seed')}",
        str(card.lms.get("student")),
        f"{scores['metric']} {scores['compiled']['mean']:.3f} (n={scores['n']})",
        f"{scores['zero_shot']['mean']:.3f}",
        f"{scores['difference']:+.3f}{shown}",
        money(card.cost["as_if"]["all"]["cost_usd"]),
    ]
