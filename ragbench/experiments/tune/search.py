"""What tuning asks: the space of knobs, the run of each combination, and what it comes to."""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from dspy import ContextWindowExceededError
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from pydantic.fields import FieldInfo

from ragbench.errors import ConfigError, RunError, StoppedError
from ragbench.experiments.compare.paired import MEASURES
from ragbench.experiments.config import TuneConfig
from ragbench.experiments.runs.clusters import clusters_among
from ragbench.experiments.runs.context import RunContext
from ragbench.experiments.runs.runner import run
from ragbench.experiments.store import read_records
from ragbench.experiments.watch import Watch
from ragbench.metrics import Interval, Metric, get_metric, mean_interval
from ragbench.metrics.stats.estimates import Clusters
from ragbench.programs.core import RAGProgram
from ragbench.record import Record

#: Objectives of cost, all to be made small, and their metrics.
COSTS = {name.partition(" ")[0]: measure for name, measure in MEASURES.items()}

#: Never searched unless asked for: which method it is, and limits that only cut off.
LEFT_OUT = frozenset({"variant", "max_calls", "max_retrievals"})

Space = dict[str, BaseDistribution]


@dataclass(frozen=True)
class Point:
    """One combination of knobs; `scores` has a number per question for each objective."""

    knobs: Mapping[str, Any]
    scores: Mapping[str, Sequence[float]]
    tokens: float
    failed: int
    folder: Path
    clusters: Clusters

    @property
    def n(self) -> int:
        return len(next(iter(self.scores.values())))

    @property
    def values(self) -> dict[str, float]:
        return {name: sum(scores) / len(scores) for name, scores in self.scores.items()}

    def interval(self, name: str) -> Interval | None:
        """The 95 % interval of a mean, where there are two questions or more."""
        return mean_interval(self.scores[name], objective(name).score_range, self.clusters)


@dataclass(frozen=True)
class Search:
    """What is searched, over what, and where its runs are."""

    run_context: RunContext
    settings: TuneConfig
    folder: Path
    space: Space
    watch: Watch

    def made(self, knobs: Mapping[str, Any]) -> RunContext:
        """What one combination runs on, its records in a folder that the knobs decide."""
        context = self.run_context
        kind = type(context.program)
        resolved = kind.resolve_knobs({**context.config.set, **knobs}).model_dump(mode="json")
        digest = hashlib.sha256(json.dumps(resolved, sort_keys=True).encode()).hexdigest()
        config = context.config.but(set=resolved, out=self.folder / "trials" / digest[:10])
        return replace(context, config=config, program=kind(context.retriever, **config.set))

    def ask(self, knobs: Mapping[str, Any], n: int | None = None) -> Point:
        """What the combination comes to over the first `n` questions; asks those not asked yet.

        KnobError for knobs that do not go together, StoppedError at a limit of spending.
        """
        examples = self.run_context.examples[:n]
        done = run(replace(self.made(knobs), examples=examples), watch=self.watch, title="")
        if done.stopped_by:
            raise StoppedError(f"{done.stopped_by} within a trial")
        # A prompt too long is the knobs' doing, and a bad score; an LM that is down is neither.
        too_long = ContextWindowExceededError.__name__
        failure = None
        for record in self._records(knobs, n):
            failure = record.failure
            if failure is None or failure.boundary != "provider" or failure.error == too_long:
                return self.point(knobs, n)
        message = failure.message[:160] if failure else ""
        raise RunError(
            f"every question failed by the LM ({message}); when it answers, "
            "give the same command again"
        )

    def point(self, knobs: Mapping[str, Any], n: int | None = None) -> Point:
        """What the records of a combination come to."""
        records = self._records(knobs, n)
        clusters = clusters_among(records)
        return Point(
            knobs=knobs,
            scores={name: _each(name, records) for name in self.settings.objective},
            tokens=sum(_each("tokens", records)),
            failed=sum(record.failed for record in records),
            folder=self.made(knobs).config.folder(),
            clusters=[clusters.get(record.qid, record.qid) for record in records],
        )

    def _records(self, knobs: Mapping[str, Any], n: int | None) -> list[Record]:
        stored = read_records(self.made(knobs).config.folder())
        qids = [example.qid for example in self.run_context.examples[:n]]
        return list(stored.only(qids).values())


def objective(name: str) -> Metric:
    """The metric of the objective `name`."""
    return get_metric(COSTS.get(name, name))


def _each(name: str, records: Sequence[Record]) -> list[float]:
    values = [score for score in map(objective(name).score, records) if score is not None]
    if len(values) < len(records):
        raise RunError(
            f"objective {name} is unknown for {len(records) - len(values)} of {len(records)} "
            "questions; "
            + ("give --price, or take tokens" if name == "cost" else "choose another --objective")
        )
    return values


def make_space(
    program: type[RAGProgram],
    fixed: Mapping[str, Any],
    *,
    narrowed: Mapping[str, str],
    only: Collection[str] = (),
) -> Space:
    """The knobs of `program` to search, by name; those of `fixed` are left out.

    Every bool, Literal and bounded number is searched, or those named in `only`. Numbers go from a
    quarter of their default to four times it, within their bounds; a fraction of 1 goes through all
    of them. `narrowed` says otherwise for a knob: `low:high`, or choices separated by commas.
    """
    defaults = program.resolve_knobs(fixed)
    fields = program.Knobs.model_fields
    for name in (*only, *narrowed):
        if name in fixed:
            raise ConfigError(f"knob {name} is fixed by --set {name}={fixed[name]}; leave one out")
        program.resolve_knobs({**fixed, name: getattr(defaults, name, None)})  # names the near ones
        if name in program.unread:
            value = narrowed.get(name, getattr(defaults, name))
            raise program.unread_error(name, value, program.unread)
    searched = fields.keys() - LEFT_OUT - program.unread.keys()
    names_searched = {*(only or searched), *narrowed} - fixed.keys()
    space: Space = {}
    for name in filter(names_searched.__contains__, fields):
        if name in narrowed:
            space[name] = _narrowed(program, fixed, name, narrowed[name])
        elif distribution := _of_field(fields[name], getattr(defaults, name)):
            space[name] = distribution
        elif only:
            raise ConfigError(f"knob {name} has no bounds to search; give --space {name}=A,B")
    if not space:
        raise ConfigError(f"no knob of {program.name} is left to search; leave out a --set")
    return space


def _of_field(field: FieldInfo, default: Any) -> BaseDistribution | None:
    kind: Any = field.annotation
    if kind is bool:
        return CategoricalDistribution([False, True])
    if get_origin(kind) is Literal:
        return CategoricalDistribution(list(get_args(kind)))
    low: Any = None
    high: Any = None
    for bound in field.metadata:
        low = getattr(bound, "ge", low)
        high = getattr(bound, "le", high)
    if kind not in (int, float) or None in (low, high, default):
        return None
    if kind is float and high <= 1:
        return FloatDistribution(low, high)
    quarter = default // 4 if kind is int else default / 4
    return _numbers(kind, max(low, quarter), min(high, 4 * (default or 1)))


def _numbers(kind: Any, low: float, high: float) -> BaseDistribution:
    wide = low > 0 and high / low >= 10
    if kind is int:
        return IntDistribution(int(low), int(high), log=wide)
    return FloatDistribution(float(low), float(high), log=wide)


def _narrowed(
    program: type[RAGProgram], fixed: Mapping[str, Any], name: str, text: str
) -> BaseDistribution:
    is_range = ":" in text
    values = []
    for value in text.split(":", 1) if is_range else text.split(","):
        values.append(getattr(program.resolve_knobs({**fixed, name: value.strip()}), name))
    if not is_range:
        return CategoricalDistribution(values)
    kind: Any = program.Knobs.model_fields[name].annotation
    if kind not in (int, float) or values[0] > values[1]:
        raise ConfigError(f"{text!r} is no range of knob {name}; give --space {name}=LOW:HIGH, or "
                          f"{name}=A,B")  # fmt: skip
    return _numbers(kind, *values)
