"""Searches: an Optuna sampler draws the settings of each cell. The Pareto front is saved.

    study.db       Optuna's storage (SQLite); the same command continues a search
    front/00, ...  the best trade-offs, as compiled programs that `eval` loads

Each trial seeds the sampler with its number, so a resumed search proposes the same settings as an
uninterrupted one. Only training or validation questions are used.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from dspy import ContextWindowExceededError
from optuna.trial import FrozenTrial, TrialState

from ragbench import errors, metrics
from ragbench.experiments import artifacts
from ragbench.experiments.cells.cell import CELLS, Cell, Outcome, write_experiment
from ragbench.experiments.cells.scheduler import Scheduler
from ragbench.experiments.cells.tune_space import Space, make_space, with_settings
from ragbench.experiments.compare.paired import MEASURES
from ragbench.experiments.compile import OnMessage
from ragbench.experiments.config import RunConfig, TuneConfig
from ragbench.experiments.estimates import Estimate, estimate_run, in_all, question_cost, run_pilot
from ragbench.experiments.runs.clusters import clusters_among
from ragbench.experiments.runs.context import RunContext
from ragbench.experiments.runs.summary import Evaluation
from ragbench.experiments.store import is_claimed, locked, write_json
from ragbench.experiments.watch import SILENT, Watch
from ragbench.metrics.stats.estimates import Clusters
from ragbench.record import billed, total

ASKED = "tune.json"
STUDY = "study.db"
FRONT = "front"
#: Trials whose settings depend on no result.
STARTUP = 8
#: Objectives of cost, all to be made small, and their metrics.
COSTS = {name.partition(" ")[0]: measure for name, measure in MEASURES.items()}


@dataclass(frozen=True)
class Point:
    """Combination of settings. `scores` has a number per question for each objective."""

    knobs: Mapping[str, Any]
    scores: Mapping[str, Sequence[float]]
    failed: int
    folder: Path
    clusters: Clusters

    @property
    def n(self) -> int:
        return len(next(iter(self.scores.values())))

    @property
    def values(self) -> dict[str, float]:
        return {name: sum(scores) / len(scores) for name, scores in self.scores.items()}

    def interval(self, name: str) -> metrics.Interval | None:
        """Compute the 95 % interval of a mean; None for fewer than two questions."""
        bounds = objective(name).score_range
        return metrics.mean_interval(self.scores[name], bounds, self.clusters)


@dataclass(frozen=True)
class Tuned:
    """Pareto front, best first by the first objective.

    `default` is the program with the settings of the command. `best` is the score of the best
    trial,
    corrected for selection. `stopped` is the limit that ended the search, or "".
    """

    folder: Path
    front: Sequence[Point]
    default: Point
    trials: int
    best: metrics.Best | None = None
    stopped: str = ""


def objective(name: str) -> metrics.Metric:
    """Return the metric of the objective `name`."""
    return metrics.get_metric(COSTS.get(name, name))


def tune_folder(config: RunConfig) -> Path:
    """Return the folder of the search of `config`."""
    return config.out or Path("tuned") / config.name()


class Search:
    """Search with its space, its cells and their outcomes."""

    def __init__(self, config: RunConfig, settings: TuneConfig, watch: Watch = SILENT) -> None:
        """Check the search; sends no request and writes nothing.

        Raises:
            RagbenchError: The split, the program, an objective or the space does not fit.
        """
        _check(config, settings)
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.config = config
        self.settings = settings
        self.folder = tune_folder(config)
        self.outcomes: dict[Path, Outcome] = {}
        self._scheduler = Scheduler(watch)
        program = type(self._scheduler.build(Cell("as given", config)).program)
        self._program = program
        self.defaults = program.resolve_knobs(config.set)
        self.space: Space = make_space(
            program, config.set, narrowed=settings.space, only=settings.only
        )

    def cell(self, drawn: Mapping[str, Any]) -> Cell:
        """Return the cell of a combination. Its folder is decided by its settings."""
        label = ", ".join(f"{name}={_short(value)}" for name, value in drawn.items()) or "as given"
        config = with_settings(self.config, drawn, out=None)
        knobs = self._program.resolve_knobs(config.set)  # Equal combinations share a cell.
        config = config.but(set=knobs.model_dump(mode="json"))
        folder = self.folder / CELLS / config.name()
        return Cell(label, config.but(out=folder), arm=label)

    def built(self, drawn: Mapping[str, Any]) -> RunContext:
        """Load the data, retriever and program of a combination."""
        return self._scheduler.build(self.cell(drawn))

    def run(self, drawn: Mapping[str, Any]) -> Point:
        """Run or continue a combination.

        Raises:
            StoppedError: A limit was reached.
            KnobError: The settings contradict each other.
        """
        cell = self.cell(drawn)
        outcome = self._scheduler.run(cell, cell.label)
        self.outcomes[cell.folder] = outcome
        evaluation = outcome.finished()
        _check_lm(evaluation)
        return self.point(drawn, evaluation)

    def point(self, drawn: Mapping[str, Any], evaluation: Evaluation) -> Point:
        """Score the records of a combination."""
        records = list(evaluation.records.values())
        clusters = clusters_among(records)
        scores = {}
        for name in self.settings.objective:
            values = [objective(name).score(record) for record in records]
            scores[name] = [value for value in values if value is not None]
            if len(scores[name]) < len(records):
                fix = "give --price" if name == "cost" else "choose another --objective"
                raise errors.RunError(
                    f"objective {name} is unknown for {values.count(None)} of {len(records)} "
                    f"questions; {fix}"
                )
        return Point(
            knobs=drawn,
            scores=scores,
            failed=sum(record.failed for record in records),
            folder=evaluation.folder,
            clusters=[clusters.get(record.qid, record.qid) for record in records],
        )

    def identity(self) -> dict[str, Any]:
        """Return all that decides the search, JSON-ready."""
        distributions = {}
        for name, values in self.space.items():
            distributions[name] = optuna.distributions.distribution_to_json(values)
        run_context = self.built({})
        return {
            "config": run_context.config.identity(),
            "limit": self.config.limit,
            "data": run_context.dataset.digest,
            "how": self.settings.model_dump(mode="json", exclude={"trials"}),
            "space": distributions,
        }


def _check(config: RunConfig, settings: TuneConfig) -> None:
    if config.split in ("test", "all"):
        raise errors.DataError(
            f"tune asks training or validation questions; leave out --split {config.split}"
        )
    if config.compiled is not None or config.form or config.votes > 1:
        raise errors.ConfigError(
            "tune starts from an uncompiled program; leave --compiled and controls out"
        )
    choices = [*COSTS, *metrics.metric_names()]
    for name in settings.objective:
        if name.isidentifier() and name not in choices:
            raise errors.UnknownNameError("objective", name, choices)
        objective(name)


def _check_lm(evaluation: Evaluation) -> None:
    """Do nothing unless every question failed by the LM.

    A prompt that is too long is the fault of the settings, and a bad score. An LM that is down is
    neither.
    """
    failure = None
    for record in evaluation.records.values():
        failure = record.failure
        too_long = failure and failure.error == ContextWindowExceededError.__name__
        if failure is None or failure.boundary != "provider" or too_long:
            return
    if failure is not None:
        raise errors.RunError(
            f"every question failed by the LM ({failure.message[:100]}); when it answers, give the "
            "same command again"
        )


def tune(
    config: RunConfig, settings: TuneConfig, *, on_message: OnMessage = print, watch: Watch = SILENT
) -> Tuned:
    """Search, or continue a search, and write the front.

    Args:
        config: The run.
        settings: The search.
        on_message: The receiver of a line for each trial.
        watch: The receiver of progress.

    Raises:
        StoppedError: A limit was reached before the first trial ended.
    """
    search = Search(config, settings, watch)
    stopped = ""
    with locked(search.folder):
        identity = search.identity()
        if not is_claimed(search.folder / ASKED, identity, "a search"):
            write_json(search.folder / ASKED, identity)
        on_message(f"knobs: {', '.join(search.space)}")
        default = search.run({})
        study = _study(search)
        points: dict[int, Point] = {}
        try:
            for trial in _ended(study):  # Reuse the records of earlier trials.
                if trial.state == TrialState.COMPLETE:
                    points[trial.number] = search.run(trial.params)
            while (number := len(_ended(study))) < settings.trials:
                words = _step(search, study, number, points)
                on_message(f"trial {number + 1} of {settings.trials}: {words}")
                watch.count("trials", number + 1, settings.trials, words)
        except errors.StoppedError as stop:
            if not points:
                raise
            stopped = str(stop)
        if not points:
            raise errors.RunError("no combination of knobs was allowed; narrow them with --space")
        front = _write_front(search, study, points, default)
        best = _best(list(points.values()), settings.objective[0])
        results = {"front": [point.folder.name for point in front], "values": default.values}
        write_experiment(
            search.folder, "tune", list(search.outcomes.values()), results, stopped or None
        )
        return Tuned(search.folder, front, default, len(_ended(study)), best, stopped)


def _study(search: Search) -> optuna.Study:
    directions = []
    for name in search.settings.objective:
        directions.append("maximize" if objective(name).higher_is_better else "minimize")
    study = optuna.create_study(
        study_name="tune",
        storage=f"sqlite:///{search.folder / STUDY}",
        load_if_exists=True,
        directions=directions,
    )
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):  # a kill's
        study.tell(trial.number, state=TrialState.FAIL)
    if not study.get_trials(deepcopy=False):
        start = {}
        for name, values in search.space.items():
            start[name] = getattr(search.defaults, name, None)
            try:
                fits = values._contains(values.to_internal_repr(start[name]))
            except (ValueError, TypeError):  # a choice that the space does not have
                fits = False
            if not fits:
                return study
        study.enqueue_trial(start)
    return study


def _ended(study: optuna.Study) -> list[FrozenTrial]:
    """List the completed trials and the trials with refused settings."""
    ended = []
    for trial in study.get_trials(deepcopy=False):
        if trial.state == TrialState.COMPLETE or "refused" in trial.user_attrs:
            ended.append(trial)
    return ended


def _step(search: Search, study: optuna.Study, number: int, points: dict[int, Point]) -> str:
    """Run one trial and describe its result."""
    seed = search.settings.tune_seed * 100_003 + number
    study.sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP)
    trial = study.ask(search.space)
    knobs = ", ".join(f"{name}={_short(value)}" for name, value in trial.params.items())
    try:
        point = search.run(trial.params)
    except errors.KnobError as error:
        trial.set_user_attr("refused", str(error))
        study.tell(trial, state=TrialState.FAIL)
        return f"not allowed ({knobs})"
    points[trial.number] = point
    study.tell(trial, list(point.values.values()))
    words = ", ".join(f"{name} {value:.4g}" for name, value in point.values.items())
    return f"{words} ({knobs})"


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _write_front(
    search: Search, study: optuna.Study, points: Mapping[int, Point], default: Point
) -> list[Point]:
    """Write the Pareto-optimal trials as compiled programs, best first, without ties."""
    shutil.rmtree(search.folder / FRONT, ignore_errors=True)
    sign = _sign(search.settings.objective[0])
    numbers: dict[tuple[float, ...], int] = {}
    for trial in sorted(study.best_trials, key=lambda trial: trial.number):
        numbers.setdefault(tuple(trial.values), trial.number)
    order = sorted(numbers, key=lambda values: (-sign * values[0], values))
    front = []
    for place, values in enumerate(order):
        number = numbers[values]
        folder = search.folder / FRONT / f"{place:02d}"
        _save_point(search, points[number], default, folder, number)
        front.append(replace(points[number], folder=folder))
    return front


def _save_point(search: Search, point: Point, default: Point, folder: Path, number: int) -> None:
    """Write trial `number` to `folder` as a compiled program."""
    settings = search.settings
    run_context = search.built(point.knobs)
    dataset = run_context.dataset
    name = settings.objective[0]
    split = search.config.split
    sides = [run_context.examples if split == side else [] for side in ("train", "validation")]
    gain = metrics.paired_interval(
        default.scores[name], point.scores[name], objective(name).score_range, point.clusters
    )
    calls = []
    for outcome in search.outcomes.values():
        for record in outcome.finished().records.values():
            calls.extend(record.ledger.calls)
    sidecar = artifacts.Sidecar(
        format=artifacts.FORMAT,
        program=run_context.program.name,
        variant=run_context.program.knobs.variant,
        knobs=run_context.program.knobs.model_dump(mode="json"),
        predictors=artifacts.fields_of(run_context.program),
        program_sha256=artifacts.save_program(run_context.program, folder / artifacts.PROGRAM),
        data=artifacts.data_card(dataset.name, dataset.digest, *sides),
        optimizer={"name": "tune", "seed": settings.tune_seed, **settings.model_dump(mode="json")},
        config=run_context.config.identity(),
        given=search.config.sources(),
        lms={
            "student": run_context.lm.metered.identity,
            "adapter": type(run_context.adapter).__name__,
        },
        versions=artifacts.versions(),
        scores={
            "metric": name,
            "split": split,
            "n": point.n,
            "zero_shot": _scored(default, name),
            "compiled": _scored(point, name),
            "difference": point.values[name] - default.values[name],
            "interval": asdict(gain) if gain else None,
            "selected_on_these_questions": True,
        },
        cost={"as_if": {"all": asdict(total(calls))}, "billed": {"all": asdict(billed(calls))}},
        notes={"trial": number, "objectives": point.values, "settings": dict(point.knobs)},
    )
    artifacts.write_sidecar(folder, sidecar)


def _scored(point: Point, name: str) -> dict[str, Any]:
    interval = point.interval(name)
    ends = asdict(interval) if interval else None
    return {"mean": point.values[name], "failed": point.failed, "interval": ends}


def _sign(name: str) -> int:
    return 1 if objective(name).higher_is_better else -1


def _best(points: Sequence[Point], name: str) -> metrics.Best | None:
    """Correct the best mean for selection. Points of one run count once.

    Returns None for a single run, or for too few questions.
    """
    runs = list({point.folder: point for point in points}.values())
    if len(runs) < 2:
        return None
    kind = objective(name)
    return metrics.corrected_best(
        np.array([point.scores[name] for point in runs]),
        kind.score_range,
        clusters=runs[0].clusters,
        higher_is_better=kind.higher_is_better,
    )


def estimate_tune(
    config: RunConfig, settings: TuneConfig, *, pilot: int | None = None, watch: Watch = SILENT
) -> Estimate:
    """Estimate the trials that are left; a combination that was run before is free.

    Args:
        config: The run.
        settings: The search.
        pilot: Questions to run first, with the settings as given.
        watch: The receiver of the pilot's progress.
    """
    search = Search(config, settings)
    ended = 0
    path = search.folder / STUDY
    if is_claimed(search.folder / ASKED, search.identity(), "a search") and path.is_file():
        ended = len(_ended(optuna.load_study(study_name="tune", storage=f"sqlite:///{path}")))
    run_context = search.built({})
    if pilot:
        run_pilot(run_context, pilot, watch)
    n = len(run_context.examples)
    trials = question_cost(run_context).times(0, max(0, settings.trials - ended) * n)
    title = f"{settings.trials} trials of {n} questions each"
    baseline = estimate_run(run_context)
    notes = [*baseline.notes, "a trial counts as much as one with the settings as given"]
    return in_all(f"{title}, {ended} done before" if ended else title, [baseline, trials], notes)
