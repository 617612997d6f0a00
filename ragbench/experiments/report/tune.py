"""A search over knobs as people read it."""

from __future__ import annotations

from rich import box
from rich.table import Table

from ragbench.experiments.artifacts import read_sidecar
from ragbench.experiments.report.compiled import by_choosing, difference
from ragbench.experiments.report.tables import console, plain, print_table
from ragbench.experiments.tune import Point, Tuned
from ragbench.metrics import Best


def print_tuned(tuned: Tuned) -> None:
    """Print the front, with the knobs as they were given below it."""
    out = console()
    print_table(_table(tuned), "front")
    given_up = f", {tuned.pruned} pruned" if tuned.pruned else ""
    out.print(
        plain(
            f"{tuned.trials} trials{given_up}; no other trial beats one of these on every objective"
        )
    )
    if tuned.best:
        out.print(plain(_corrected(tuned.best, next(iter(tuned.default.values)))), soft_wrap=True)
    out.print(
        plain(
            "chosen by the scores shown, which flatters them; on held-out questions: "
            f"ragbench eval --compiled {tuned.front[0].folder}"
        ),
        soft_wrap=True,
    )


def _table(tuned: Tuned) -> Table:
    table = Table(box=box.MARKDOWN)
    names = list(tuned.default.values)
    also = (f"{names[0]}, difference", "by choosing")
    for name in ("", *names, *also, "n", "failed", "knobs"):
        table.add_column(name, justify="left" if name in ("", "knobs") else "right")
    for point in tuned.front:
        card = read_sidecar(point.folder)
        luck = (difference(card), by_choosing(card, tuned.trials))
        table.add_row(f"front/{point.folder.name}", *_cells(point, names, luck))
    table.add_row("as given", *_cells(tuned.default, names, ("-", "-")))
    return table


def _corrected(best: Best, name: str) -> str:
    low, high = best.interval.low, best.interval.high
    return (
        f"the best {name} of {best.candidates} looks like {best.seen:.4g}; without the luck of "
        f"being chosen: {best.corrected:.4g}, 95 % interval [{low:.4g}, {high:.4g}]"
    )


def _cells(point: Point, names: list[str], luck: tuple[str, str]) -> list[str]:
    knobs = ", ".join(f"{name}={_short(value)}" for name, value in point.knobs.items())
    values = [f"{point.values[name]:.4g}{_half(point, name)}" for name in names]
    return [*values, *luck, str(point.n), str(point.failed), knobs or "-"]


def _half(point: Point, name: str) -> str:
    interval = point.intervals.get(name)
    return f" ±{(interval.high - interval.low) / 2:.2g}" if interval else ""


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
