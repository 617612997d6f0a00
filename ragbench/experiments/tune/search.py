"""What tuning searches: knobs of a program, objectives, and the run of each combination."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from dspy import ContextWindowExceededError

from ragbench.errors import RunError, StoppedError
from ragbench.experiments.compare.spending import MEASURES
from ragbench.experiments.config import RunConfig, TuneConfig
from ragbench.experiments.runs import RunContext, run
from ragbench.experiments.store import read_records
from ragbench.experiments.tune.demos import DEMOS, DemoPool
from ragbench.experiments.tune.search_space import Space
from ragbench.metrics import Interval, cluster_of, get_metric, mean_interval, usable_clusters
from ragbench.record import Failure, Record

#: Objectives of cost, all to be made small: name -> measure of a record.
COSTS = {name.partition(" ")[0]: measure for name, measure in MEASURES.items()}


@dataclass(frozen=True)
class Point:
    """One combination of knobs and what it came to over the questions; `values` by objective.

    `intervals` are the 95 % intervals of the values, for two questions or more.
    """

    knobs: Mapping[str, Any]
    values: Mapping[str, float]
    n: int
    failed: int
    folder: Path
    intervals: Mapping[str, Interval] = field(default_factory=dict)


@dataclass(frozen=True)
class Search:
    """What is searched, over what, and where its runs are."""

    run_context: RunContext
    settings: TuneConfig
    folder: Path
    space: Space
    pool: DemoPool | None = None

    def config(self, params: Mapping[str, Any]) -> RunConfig:
        """The run of one combination, in a folder that the knobs and demonstrations decide."""
        knobs = {**self.run_context.config.set, **params}
        shown = {DEMOS: n} if (n := knobs.pop(DEMOS, 0)) else {}
        resolved = type(self.run_context.program).resolve_knobs(knobs).model_dump(mode="json")
        text = json.dumps({**resolved, **shown}, sort_keys=True)
        out = self.folder / "trials" / hashlib.sha256(text.encode()).hexdigest()[:10]
        return self.run_context.config.but(set=resolved, out=out)

    def made(self, params: Mapping[str, Any]) -> RunContext:
        """What one combination runs on: its program, with its demonstrations.

        KnobError for knobs that do not go together.
        """
        config = self.config(params)
        program = type(self.run_context.program)(self.run_context.retriever, **config.set)
        shown = self.pool.show(program, params.get(DEMOS, 0)) if self.pool else ""
        return replace(self.run_context, config=config, program=program, compiled=shown)

    def ask(self, params: Mapping[str, Any], n: int | None = None) -> Point:
        """What the combination comes to over the first `n` questions; asks those not asked yet.

        KnobError for knobs that do not go together, RunError where the LM answers no question or a
        price is not known, StoppedError at a limit of spending.
        """
        done = run(replace(self.made(params), examples=self.run_context.examples[:n]))
        if done.stopped_by:
            raise StoppedError(f"{done.stopped_by} within a trial")
        rows = self.records(params)[:n]
        failures = [row.failure for row in rows if row.failure and _lm_is_down(row.failure)]
        if failures and len(failures) == len(rows):
            raise RunError(
                f"every question failed by the LM ({failures[0].message[:160]}); when it "
                "answers, give the same command again"
            )
        return self.point(params, rows)

    def records(self, params: Mapping[str, Any]) -> list[Record]:
        """The records of a combination, in the order of the questions; those that there are."""
        kept = read_records(self.config(params).folder())
        return [kept[e.qid] for e in self.run_context.examples if e.qid in kept]

    def point(self, params: Mapping[str, Any], records: Sequence[Record]) -> Point:
        """What `records` of a combination come to."""
        names = self.settings.objectives
        values = {name: objective(name, records) for name in names}
        clusters = usable_clusters([cluster_of(record) for record in records])
        intervals = {
            name: mean_interval(objective_of_each(name, records), bounds_of(name), clusters)
            for name in names
        }
        return Point(
            knobs=params,
            values=values,
            n=len(records),
            failed=sum(record.failure is not None for record in records),
            folder=self.config(params).folder(),
            intervals={name: interval for name, interval in intervals.items() if interval},
        )


def _lm_is_down(failure: Failure) -> bool:
    """Whether the LM's server failed, and not by a prompt too long, which is the knobs' doing."""
    too_long = ContextWindowExceededError.__name__
    return failure.boundary == "provider" and failure.error != too_long


def objective(name: str, records: Sequence[Record]) -> float:
    """The mean of `objective_of_each` over `records`."""
    values = objective_of_each(name, records)
    return sum(values) / len(values)


def objective_of_each(name: str, records: Sequence[Record]) -> list[float]:
    """A metric, or a measure of cost, of each of `records`; RunError where one is not known."""
    measure = COSTS.get(name) or get_metric(name).score
    taken = [measure(record) for record in records]
    known = [value for value in taken if value is not None]
    if len(known) < len(taken):
        raise RunError(
            f"objective {name} is unknown for {len(taken) - len(known)} of {len(taken)} questions; "
            + ("give --price, or take tokens" if name == "cost" else "choose another --objective")
        )
    return known


def bounds_of(name: str) -> tuple[float, float] | None:
    """What the objective `name` can be of one question; None without bounds."""
    return None if name in COSTS else get_metric(name).score_range


def direction(name: str) -> Literal["minimize", "maximize"]:
    """Which way the objective `name` is to go."""
    return "maximize" if name not in COSTS and get_metric(name).higher_is_better else "minimize"
