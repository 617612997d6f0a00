"""The Pareto front of a search, kept as folders that `eval --compiled` loads."""

from collections.abc import Hashable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from numpy.typing import ArrayLike
from optuna.trial import FrozenTrial

from ragbench.experiments.artifacts import (
    FORMAT,
    PROGRAM,
    Sidecar,
    cards_of,
    data_card,
    save_program,
    versions,
    write_sidecar,
)
from ragbench.experiments.store import read_records
from ragbench.experiments.tune.search import (
    Point,
    Search,
    bounds_of,
    direction,
    objective,
    objective_of_each,
)
from ragbench.metrics import (
    Best,
    Interval,
    cluster_of,
    corrected_best,
    estimate_mean,
    paired_interval,
    usable_clusters,
)
from ragbench.record import Totals, billed, total


def best_trials(search: Search, study: optuna.Study) -> list[FrozenTrial]:
    """The trials that none beats, best first; of equals the one that takes fewest tokens."""
    best: dict[tuple[float, ...], tuple[float, FrozenTrial]] = {}
    for trial in study.best_trials:
        tokens = objective("tokens", search.records(trial.params))
        kept = best.get(tuple(trial.values))
        if kept is None or tokens < kept[0]:
            best[tuple(trial.values)] = (tokens, trial)
    sign = -1 if direction(search.settings.objectives[0]) == "maximize" else 1
    return sorted((t for _, t in best.values()), key=lambda t: (sign * t.values[0], t.number))


def save_point(search: Search, point: Point, default: Point, *, folder: Path, number: int) -> None:
    """Write trial `number` to `folder` as a compiled program, with the demonstrations it showed."""
    run_context, settings = search.run_context, search.settings
    made = search.made(point.knobs)
    program = made.program
    digest = save_program(program, folder / PROGRAM)
    asked = {"train": [], "validation": [], run_context.config.data.split: run_context.examples}
    data = data_card(
        run_context.dataset.name, run_context.dataset.digest, asked["train"], asked["validation"]
    )
    if made.compiled and search.pool:
        data = data.model_copy(update={"train": search.pool.sidecar.data.train})
    write_sidecar(
        folder,
        Sidecar(
            format=FORMAT,
            program=program.name,
            variant=program.knobs.variant,
            knobs=program.knobs.model_dump(mode="json"),
            predictors=cards_of(program),
            program_sha256=digest,
            data=data,
            optimizer={
                "name": "tune",
                "seed": settings.tune_seed,
                **settings.model_dump(mode="json"),
            },
            config=made.config.identity(),
            lms={"student": run_context.lm.model, "adapter": type(run_context.adapter).__name__},
            versions=versions(),
            scores=_scores(search, point, default),
            cost=_cost(search),
            inflation={},
            notes={"trial": number, "objectives": dict(point.values)},
        ),
    )


def _scores(search: Search, point: Point, default: Point) -> dict[str, Any]:
    """The first objective, against the knobs as they were given."""
    name = search.settings.objectives[0]
    records = search.records(point.knobs)
    before, after = (
        objective_of_each(name, rows) for rows in (search.records(default.knobs), records)
    )
    clusters = usable_clusters([cluster_of(record) for record in records])
    interval = paired_interval(before, after, bounds_of(name), clusters)
    return {
        "metric": name,
        "split": search.run_context.config.data.split,
        "n": len(after),
        "zero_shot": _scored(default, name),
        "compiled": _scored(point, name),
        "difference": point.values[name] - default.values[name],
        "interval": asdict(interval) if interval else None,
        "selected_on_these_questions": True,
    }


def _scored(point: Point, name: str) -> dict[str, Any]:
    interval = point.intervals.get(name)
    return {
        "mean": point.values[name],
        "failed": point.failed,
        "interval": asdict(interval) if interval else None,
    }


def corrected(search: Search, trials: Sequence[FrozenTrial]) -> Best | None:
    """The best of `trials` by the first objective, without the luck of being chosen.

    Trials that came to the same run count once. None for one run, or one question.
    """
    name = search.settings.objectives[0]
    sign = 1 if direction(name) == "maximize" else -1
    runs = {search.config(trial.params).folder(): trial.params for trial in trials}
    records = [search.records(params) for params in runs.values()]
    rows = np.array([objective_of_each(name, each) for each in records])
    if rows.ndim != 2 or len(rows) < 2 or rows.shape[1] < 2:
        return None
    best = corrected_best(sign * rows)
    clusters = usable_clusters([cluster_of(record) for record in records[best.index]])
    luck = sign * (best.seen - best.corrected)
    found = without_luck(rows[best.index], luck, bounds_of(name), clusters)
    return replace(
        best,
        seen=sign * best.seen,
        corrected=sign * best.corrected,
        interval=found or best.interval,
    )


def without_luck(
    scores: ArrayLike,
    luck: float,
    bounds: tuple[float, float] | None,
    clusters: Sequence[Hashable] | None = None,
) -> Interval | None:
    """The interval of the mean of `scores`, of which `luck` is ahead by chance.

    It holds the plus-two intervals with the luck taken off and left in, for how much of it there
    is is itself an estimate (which takes off too much where many candidates are nearly always
    right). Measured coverage: see docs/verdicts.md. None for fewer than two scores.
    """
    estimate = estimate_mean(scores, bounds, clusters)
    if estimate is None:
        return None
    ends = [estimate.interval(), replace(estimate, centre=estimate.centre - luck).interval()]
    return Interval(min(end.low for end in ends), max(end.high for end in ends))


def _cost(search: Search) -> dict[str, Any]:
    """What all trials together took, and the drawing of demonstrations if there was one."""
    calls = [
        call
        for folder in sorted((search.folder / "trials").iterdir())
        for record in read_records(folder).values()
        for call in record.ledger.calls
    ]
    costs: dict[str, Any] = {}
    for name, trials in (("as_if", total(calls)), ("billed", billed(calls))):
        costs[name] = {"all": asdict(trials)}
        if search.pool:
            demos = Totals(**search.pool.sidecar.cost[name]["all"])
            costs[name] = {"all": asdict(trials + demos), "demos": asdict(demos)}
    return costs
