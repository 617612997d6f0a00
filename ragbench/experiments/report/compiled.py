"""Compiled programs as people read them: those in a folder, and the front of a `tune`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragbench.errors import RunError
from ragbench.experiments.artifacts import SIDECAR, Sidecar, read_sidecar
from ragbench.experiments.compile import ASKED
from ragbench.experiments.report.table import Column, Table, print_table, say, with_interval

if TYPE_CHECKING:
    from ragbench.experiments.tune import Tuned

_COLUMNS = (
    Column("folder"),
    Column("program"),
    Column("optimizer", drop=1),
    Column("seed", kind="number", drop=2),
    Column("lm", "LM", drop=3),
    Column("metric", drop=7),
    Column("n", kind="count", drop=6),
    Column("score", kind="score", interval=True),
    Column("difference", kind="gain", interval=True),
    Column("by_choosing", "by choosing", drop=5),
    Column("cost_usd", "cost $", "usd", drop=8),
)


def print_programs(folder: Path) -> None:
    """Print one row per compiled program under `folder`, then those that cannot be used."""
    if not folder.is_dir():
        raise RunError(f"no folder {folder}; `ragbench compile` makes compiled/")
    rows, problems = [], []
    for path in sorted({p.parent for name in (SIDECAR, ASKED) for p in folder.rglob(name)}):
        try:
            rows.append(_row(path, read_sidecar(path)))
        except RunError as error:
            problems.append(str(error))
    if rows:
        note = "scores are on the validation questions that each was selected on"
        print_table(Table("compiled", _COLUMNS, rows, notes=[note]))
    say(*problems)
    if not rows and not problems:
        say("no compiled programs found")


def _row(folder: Path, card: Sidecar) -> dict[str, Any]:
    optimizer = card.optimizer
    variant = f" ({card.variant})" if card.variant not in ("", "default") else ""
    return {
        "folder": str(folder),
        "program": card.program + variant,
        "optimizer": f"{optimizer.get('name')} {optimizer.get('preset', '')}".strip(),
        "seed": optimizer.get("seed"),
        "lm": str(card.lms.get("student")),
        **validated(card),
        "by_choosing": by_choosing(card),
        "cost_usd": card.cost["as_if"]["all"]["cost_usd"],
    }


def validated(card: Sidecar) -> dict[str, Any]:
    """Metric, n, score and gain of a compiled program on its validation questions, for a row."""
    scores, compiled = card.scores, card.scores["compiled"]
    return {
        "metric": scores["metric"],
        "n": scores["n"],
        **with_interval("score", compiled["mean"], compiled.get("interval")),
        **with_interval("difference", scores["difference"], scores.get("interval")),
    }


def by_choosing(card: Sidecar) -> str:
    """The score of the best candidate without the luck of being chosen, and its interval."""
    best = card.scores.get("corrected")
    if not best:
        return "-"
    low, high = best["interval"]["low"], best["interval"]["high"]
    return f"{best['corrected']:.3f} [{low:.3f}, {high:.3f}] of {best['candidates']}"


def print_tuned(tuned: Tuned) -> None:
    """Print the front, with the knobs as they were given below it."""
    names = list(tuned.default.values)
    rows = []
    for point in (*tuned.front, tuned.default):
        mine = point is not tuned.default
        shown = {k: f"{v:.3g}" if isinstance(v, float) else v for k, v in point.knobs.items()}
        row = {"point": f"front/{point.folder.name}" if mine else "as given", "n": point.n,
               "failed": point.failed, "knobs": ", ".join(f"{k}={v}" for k, v in shown.items()),
               **(validated(read_sidecar(point.folder)) if mine else {})}  # fmt: skip
        for name, value in point.values.items():
            row |= with_interval(name, value, point.interval(name))
        rows.append(row)
    columns = [
        Column("point", "program"),
        *(Column(name, kind="number", interval=True) for name in names),
        Column("difference", f"{names[0]}, difference", "gain", interval=True, drop=2),
        Column("n", kind="count", drop=4),
        Column("failed", kind="count", drop=5),
        Column("knobs", drop=1),
    ]
    print_table(Table("front", columns, rows))
    given_up = f", {tuned.pruned} pruned" if tuned.pruned else ""
    say(f"{tuned.trials} trials{given_up}; no other trial beats one of these on every objective")
    if best := tuned.best:
        say(
            f"the best {names[0]} of {best.candidates} looks like {best.seen:.4g}; without the "
            f"luck of being chosen: {best.corrected:.4g}, 95 % interval "
            f"[{best.interval.low:.4g}, {best.interval.high:.4g}]"
        )
    say(
        "chosen by the scores shown, which flatters them; on held-out questions: "
        f"ragbench eval --compiled {tuned.front[0].folder}"
    )
