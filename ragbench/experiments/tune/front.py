"""A point of the front as a folder that `eval --compiled` loads, and what its score is worth."""

from collections.abc import Hashable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

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
from ragbench.experiments.tune.search import Point, Search, bounds_of, direction
from ragbench.metrics import Best, Interval, corrected_best, estimate_mean, paired_interval
from ragbench.record import billed, total


def save_point(search: Search, point: Point, default: Point, *, folder: Path, number: int) -> None:
    """Write trial `number` to `folder` as a compiled program."""
    run_context, settings = search.run_context, search.settings
    made = search.made(point.knobs)
    asked = {"train": [], "validation": [], run_context.config.data.split: run_context.examples}
    sidecar = Sidecar(
        format=FORMAT,
        program=made.program.name,
        variant=made.program.knobs.variant,
        knobs=made.program.knobs.model_dump(mode="json"),
        predictors=cards_of(made.program),
        program_sha256=save_program(made.program, folder / PROGRAM),
        data=data_card(
            run_context.dataset.name,
            run_context.dataset.digest,
            asked["train"],
            asked["validation"],
        ),
        optimizer={"name": "tune", "seed": settings.tune_seed, **settings.model_dump(mode="json")},
        config=made.config.identity(),
        given=run_context.config.sources(),
        lms={"student": run_context.lm.model, "adapter": type(run_context.adapter).__name__},
        versions=versions(),
        scores=_scores(search, point, default),
        cost=_cost(search),
        inflation={},
        notes={"trial": number, "objectives": point.values},
    )
    write_sidecar(folder, sidecar)


def _scores(search: Search, point: Point, default: Point) -> dict[str, Any]:
    """The first objective, against the knobs as they were given."""
    name = search.settings.objectives[0]
    before, after = default.scores[name], point.scores[name]
    interval = paired_interval(before, after, bounds_of(name), point.clusters)
    return {
        "metric": name,
        "split": search.run_context.config.data.split,
        "n": point.n,
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


def _cost(search: Search) -> dict[str, Any]:
    """What all trials together took."""
    calls = [
        call
        for folder in sorted((search.folder / "trials").iterdir())
        for record in read_records(folder).values()
        for call in record.ledger.calls
    ]
    return {"as_if": {"all": asdict(total(calls))}, "billed": {"all": asdict(billed(calls))}}


def best_of_all(points: Sequence[Point], name: str) -> Best | None:
    """The best of `points` by the objective `name`, without the luck of being chosen.

    Points of one run count once. None for one run, or one question.
    """
    sign = 1 if direction(name) == "maximize" else -1
    runs = list({point.folder: point for point in points}.values())
    rows = np.array([point.scores[name] for point in runs])
    if len(rows) < 2 or rows.shape[1] < 2:
        return None
    best = corrected_best(sign * rows)
    luck = sign * (best.seen - best.corrected)
    found = without_luck(rows[best.index], luck, bounds_of(name), runs[best.index].clusters)
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
    right). None for fewer than two scores.
    """
    estimate = estimate_mean(scores, bounds, clusters)
    if estimate is None:
        return None
    ends = [estimate.interval(), replace(estimate, centre=estimate.centre - luck).interval()]
    return Interval(min(end.low for end in ends), max(end.high for end in ends))
