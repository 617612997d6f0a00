"""Searches: an Optuna sampler draws the settings of each cell. The Pareto front is saved.

    front/00, ...  the best trade-offs, as compiled programs that `eval` loads

The sampler of a trial is seeded with the trial's number, and it depends on nothing but the records
of earlier trials. So the same command continues a search: it draws the same cells, and those that
are finished cost nothing. Only training or validation questions are used.
"""

import operator
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import TrialState

from ragbench import errors, metrics
from ragbench.experiments import artifacts
from ragbench.experiments.cells.cell import CELLS, Cell
from ragbench.experiments.cells.estimate import estimate_cells
from ragbench.experiments.cells.scheduler import Scheduler
from ragbench.experiments.cells.tune_space import make_space, with_settings
from ragbench.experiments.compare.paired import MEASURES, Shared
from ragbench.experiments.config import RunConfig, TuneConfig
from ragbench.experiments.outcomes import described
from ragbench.experiments.progress import SILENT, ProgressListener
from ragbench.experiments.runs.clusters import mean_of_run
from ragbench.experiments.runs.summary import Evaluation
from ragbench.record import add_up

FRONT = "front"
#: Trials whose settings depend on no result.
STARTUP = 8
#: Objectives of cost, all to be made small, and their metrics.
COSTS = {name.partition(" ")[0]: measure for name, measure in MEASURES.items()}


@dataclass(frozen=True)
class Point:
    """A combination of settings, its run, and the mean of each objective.

    `gain` is the first objective compared with the settings as given.
    """

    settings: Mapping[str, Any]
    run: Evaluation
    means: Mapping[str, metrics.Mean]
    gain: metrics.Comparison | None = None


@dataclass(frozen=True)
class TuneResult:
    """Pareto front, best first by the first objective. Point N is the folder `front/N`.

    `default` is the program with the settings of the command. `stopped` is the limit that ended the
    search, or "".
    """

    folder: Path
    front: Sequence[Point]
    default: Point
    trials: int
    stopped: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the settings and means of each point as JSON; the first one is as given."""
        rows = []
        for point in (self.default, *self.front):
            means = {name: mean.mean for name, mean in point.means.items()}
            rows.append({"settings": point.settings, "means": means})
        return {"points": rows, "trials": self.trials}


def objective(name: str) -> metrics.Metric:
    """Return the metric of the objective `name`."""
    return metrics.get_metric(COSTS.get(name, name))


def tune_folder(config: RunConfig) -> Path:
    """Return the folder of the search of `config`."""
    return config.out or Path("tuned") / config.name()


class Search:
    """A search: its space, and the cells that it runs."""

    def __init__(
        self, config: RunConfig, settings: TuneConfig, watch: ProgressListener = SILENT
    ) -> None:
        """Check the search; sends no request and writes nothing.

        Args:
            config: The run.
            settings: The search.
            watch: The receiver of progress.

        Raises:
            RagbenchError: The split, the program, an objective or the space does not fit.
        """
        if config.split in ("test", "all"):
            raise errors.DataError(
                f"tune asks training or validation questions; leave out --split {config.split}"
            )
        if config.compiled is not None or config.form or config.votes > 1:
            raise errors.ConfigError(
                "tune starts from an uncompiled program; leave --compiled and controls out"
            )
        self.config = config
        self.objectives = {name: objective(name) for name in settings.objective}
        self.scheduler = Scheduler(tune_folder(config), "tune", watch)
        self.given = self.scheduler.build(Cell("as given", config)).program
        self.space = make_space(
            type(self.given), config.set, narrowed=settings.space, only=settings.only
        )
        optuna.logging.set_verbosity(optuna.logging.ERROR)

    def cell(self, drawn: Mapping[str, Any]) -> Cell:
        """Return the cell of a combination. Its folder is decided by its settings."""
        config = with_settings(self.config.but(out=None), drawn)
        knobs = self.given.resolve_knobs(config.set)  # Equal combinations share a cell.
        config = config.but(set=knobs.model_dump(mode="json"))
        label = in_words(drawn) or "as given"
        out = self.scheduler.folder / CELLS / config.name()
        return Cell(label, config.but(out=out), arm=label)

    def run(self, drawn: Mapping[str, Any], title: str) -> Point | None:
        """Run or continue a combination.

        Args:
            drawn: Its settings.
            title: Title of its progress.

        Returns:
            None if the settings contradict each other, or if every question failed.

        Raises:
            StoppedError: A limit was reached.
            RunError: The LM is down, or an objective is unknown for some questions.
        """
        cell = self.cell(drawn)
        outcome = self.scheduler.run(cell, f"{title}: {cell.label}")
        if isinstance(outcome.error, errors.KnobError):
            return None
        run = outcome.finished()
        if run.all_failed:
            return None
        means = {}
        for name, metric in self.objectives.items():
            column = run.records.column(metric.score)
            mean = mean_of_run(run.records, column, metric.score_range)
            if mean is None or mean.n < len(column):
                fix = "give --price" if name == "cost" else "choose another --objective"
                raise errors.RunError(f"objective {name} is unknown for some questions; {fix}")
            means[name] = mean
        return Point(drawn, run, means)


def in_words(settings: Mapping[str, Any]) -> str:
    """Return the settings as NAME=VALUE, separated by commas."""
    words = []
    for name, value in settings.items():
        words.append(f"{name}={value:.3g}" if isinstance(value, float) else f"{name}={value}")
    return ", ".join(words)


def tune(config: RunConfig, settings: TuneConfig, watch: ProgressListener = SILENT) -> TuneResult:
    """Search, or continue a search, and write the front.

    Args:
        config: The run.
        settings: The search.
        watch: The receiver of progress.

    Raises:
        StoppedError: A limit was reached before the first trial ended.
    """
    search = Search(config, settings, watch)
    folder = search.scheduler.folder
    objectives = list(search.objectives.values())
    ways = ["maximize" if metric.higher_is_better else "minimize" for metric in objectives]
    study = optuna.create_study(directions=ways)
    trials = 0
    stopped = ""
    with search.scheduler.working():
        watch.say(f"settings: {', '.join(search.space)}")
        default = search.run({}, "before the search")
        if default is None:
            raise errors.RunError("every question failed; run `ragbench eval` to see why")
        points = [default]
        try:
            while trials < settings.trials:
                seed = settings.tune_seed * 100_003 + trials
                study.sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP)
                trial = study.ask(search.space)
                point = search.run(trial.params, f"trial {trials + 1} of {settings.trials}")
                trials += 1
                if point:
                    points.append(point)
                    study.tell(trial, [mean.mean for mean in point.means.values()])
                else:
                    study.tell(trial, state=TrialState.FAIL)
        except errors.StoppedError as stop:
            if not trials:
                raise
            stopped = str(stop)
        front = []
        for point in _front(points, [1 if way == "maximize" else -1 for way in ways]):
            shared = Shared.by((default.run, point.run), common=False)
            gain = shared.compare([default.run], [point.run], objectives[0].name)
            front.append(replace(point, gain=gain))
        tuned = TuneResult(folder, front, default, trials, stopped)
        _write_front(search, tuned, settings)
        search.scheduler.write(tuned.to_dict(), stopped or None)
        return tuned


def _front(points: Sequence[Point], signs: Sequence[int]) -> list[Point]:
    """Return the Pareto-optimal points, best first by the first objective, without ties."""
    of_values: dict[tuple[float, ...], Point] = {}
    for point in points:
        means = zip(signs, point.means.values(), strict=True)
        of_values.setdefault(tuple(sign * mean.mean for sign, mean in means), point)
    front: list[Point] = []
    best: list[tuple[float, ...]] = []
    for values in sorted(of_values, reverse=True):  # What dominates a point comes before it.
        if not any(all(map(operator.ge, other, values)) for other in best):
            best.append(values)
            front.append(of_values[values])
    return front


def _write_front(search: Search, tuned: TuneResult, settings: TuneConfig) -> None:
    """Write each point as a compiled program. `eval` refuses the questions that selected it."""
    shutil.rmtree(tuned.folder / FRONT, ignore_errors=True)
    first = settings.objective[0]
    runs = (outcome.run for outcome in search.scheduler.outcomes.values())
    spent = [run.summary for run in runs if run]
    costs = {
        "as_if": {"all": asdict(add_up(summary.as_if for summary in spent))},
        "billed": {"all": asdict(add_up(summary.billed for summary in spent))},
    }
    for number, point in enumerate(tuned.front):
        folder = tuned.folder / FRONT / f"{number:02d}"
        run_context = search.scheduler.build(search.cell(point.settings))
        program = run_context.program
        dataset = run_context.dataset
        sides = []
        for side in ("train", "validation"):
            sides.append(run_context.examples if search.config.split == side else [])
        mean = point.means[first]
        interval = point.gain.interval if point.gain else None
        sidecar = artifacts.Sidecar(
            **described(run_context, program),
            program_sha256=artifacts.save_program(program, folder / artifacts.PROGRAM),
            data=artifacts.data_card(dataset.name, dataset.digest, *sides),
            optimizer={"name": "tune", "seed": settings.tune_seed},
            lms={"student": run_context.lm.metered.identity},
            scores={
                "metric": first,
                "n": mean.n,
                "compiled": asdict(mean),
                "difference": mean.mean - tuned.default.means[first].mean,
                "interval": asdict(interval) if interval else None,
            },
            cost=costs,
            notes={"settings": dict(point.settings)},
        )
        artifacts.write_sidecar(folder, sidecar)


def estimate_tune(
    config: RunConfig,
    settings: TuneConfig,
    *,
    pilot: int | None = None,
    watch: ProgressListener = SILENT,
) -> Iterator[str]:
    """Estimate a search at most, in lines to print. Cells that are finished cost nothing again.

    Args:
        config: The run.
        settings: The search.
        pilot: Questions to run first, with the settings as given.
        watch: The receiver of the pilot's progress.
    """
    cells = [Search(config, settings).cell({})]
    return estimate_cells(cells, pilot=pilot, watch=watch, draws=settings.trials)
