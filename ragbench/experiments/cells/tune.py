"""Searches: an Optuna sampler draws the settings of each cell. The Pareto front is saved.

    study.db       Optuna's storage (SQLite); the same command continues a search
    front/00, ...  the best trade-offs, as compiled programs that `eval` loads

Each trial seeds the sampler with its number, so a resumed search proposes the same settings as an
uninterrupted one. Only training or validation questions are used.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from dspy import ContextWindowExceededError
from optuna.distributions import CategoricalDistribution
from optuna.trial import FrozenTrial, TrialState

from ragbench import errors, metrics
from ragbench.experiments import artifacts
from ragbench.experiments.cells.cell import CELLS, Cell, Outcome, write_experiment
from ragbench.experiments.cells.scheduler import Scheduler
from ragbench.experiments.cells.tune_space import make_space, with_settings
from ragbench.experiments.compare.paired import MEASURES, Floats, groups_of
from ragbench.experiments.config import RunConfig, TuneConfig
from ragbench.experiments.estimates import Estimate, estimate_run, in_all, question_cost, run_pilot
from ragbench.experiments.progress import SILENT, ProgressListener
from ragbench.experiments.runs.clusters import clusters_of, mean_of_run
from ragbench.experiments.runs.summary import Evaluation
from ragbench.experiments.store import is_claimed, locked, write_json
from ragbench.metrics.stats.estimates import Clusters
from ragbench.record import add_up

ASKED = "tune.json"
STUDY = "study.db"
FRONT = "front"
#: Trials whose settings depend on no result.
STARTUP = 8
#: Objectives of cost, all to be made small, and their metrics.
COSTS = {name.partition(" ")[0]: measure for name, measure in MEASURES.items()}
_TOO_LONG = f"provider/{ContextWindowExceededError.__name__}"


@dataclass(frozen=True)
class Point:
    """A combination of settings, its run, and the mean of each objective."""

    settings: Mapping[str, Any]
    run: Evaluation
    means: Mapping[str, metrics.Mean]

    def scored(self, name: str) -> dict[str, Any]:
        """Return the mean of the objective `name` in the format of a sidecar."""
        mean = self.means[name]
        return {"mean": mean.mean, "interval": asdict(mean.interval) if mean.interval else None}

    def scores(self, name: str) -> tuple[Floats, Clusters]:
        """Return the objective `name` of each question by id, and the clusters of the questions."""
        column = self.run.records.column(objective(name).score)
        qids = sorted(column)
        scores = np.array([column[qid] for qid in qids], dtype=np.float64)
        return scores, groups_of(clusters_of(self.run.records), qids)


@dataclass(frozen=True)
class TuneResult:
    """Pareto front, best first by the first objective. Point N is the folder `front/N`.

    `default` is the program with the settings of the command. `best` is the score of the best
    trial, corrected for selection. `stopped` is the limit that ended the search, or "".
    """

    folder: Path
    front: Sequence[Point]
    default: Point
    trials: int
    best: metrics.Best | None = None
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


@dataclass
class Search:
    """A search with its space and the outcomes of its cells."""

    config: RunConfig
    settings: TuneConfig
    watch: ProgressListener = SILENT
    outcomes: dict[Path, Outcome] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the search; sends no request and writes nothing.

        Raises:
            RagbenchError: The split, the program, an objective or the space does not fit.
        """
        config = self.config
        if config.split in ("test", "all"):
            raise errors.DataError(
                f"tune asks training or validation questions; leave out --split {config.split}"
            )
        if config.compiled is not None or config.form or config.votes > 1:
            raise errors.ConfigError(
                "tune starts from an uncompiled program; leave --compiled and controls out"
            )
        choices = [*COSTS, *metrics.metric_names()]
        for name in self.settings.objective:
            if name.isidentifier() and name not in choices:
                raise errors.UnknownNameError("objective", name, choices)
        first = objective(self.settings.objective[0])
        self.sign = 1 if first.higher_is_better else -1
        self.folder = tune_folder(config)
        self.scheduler = Scheduler(self.folder, "tune", self.watch)
        self.given = self.scheduler.build(Cell("as given", config))
        self.program = type(self.given.program)
        self.space = make_space(
            self.program, config.set, narrowed=self.settings.space, only=self.settings.only
        )
        optuna.logging.set_verbosity(optuna.logging.ERROR)

    def cell(self, drawn: Mapping[str, Any]) -> Cell:
        """Return the cell of a combination. Its folder is decided by its settings."""
        config = with_settings(self.config.but(out=None), drawn)
        knobs = self.program.resolve_knobs(config.set)  # Equal combinations share a cell.
        config = config.but(set=knobs.model_dump(mode="json"))
        label = in_words(drawn) or "as given"
        return Cell(label, config.but(out=self.folder / CELLS / config.name()), arm=label)

    def run(self, drawn: Mapping[str, Any], title: str) -> Point:
        """Run or continue a combination.

        Args:
            drawn: Its settings.
            title: Title of its progress.

        Raises:
            StoppedError: A limit was reached.
            KnobError: The settings contradict each other.
            RunError: The LM is down, or an objective is unknown for some questions.
        """
        cell = self.cell(drawn)
        outcome = self.outcomes[cell.folder] = self.scheduler.run(cell, f"{title}: {cell.label}")
        run = outcome.finished()
        kinds = run.summary.errors
        # A prompt that is too long is a bad score of the settings, not the fault of the LM.
        if run.all_failed and _TOO_LONG not in kinds and "provider/" in min(kinds):
            raise errors.RunError(
                f"every question failed by the LM ({min(kinds)}); when it answers, give the same "
                "command again"
            )
        means = {}
        for name in self.settings.objective:
            metric = objective(name)
            column = run.records.column(metric.score)
            mean = mean_of_run(run.records, column, metric.score_range)
            if mean is None or mean.n < len(column):
                fix = "give --price" if name == "cost" else "choose another --objective"
                raise errors.RunError(f"objective {name} is unknown for some questions; {fix}")
            means[name] = mean
        return Point(drawn, run, means)

    def identity(self) -> dict[str, Any]:
        """Return all that decides the search, JSON-ready."""
        distributions = {}
        for name, values in self.space.items():
            distributions[name] = optuna.distributions.distribution_to_json(values)
        return {
            "config": self.given.config.identity(),
            "limit": self.config.limit,
            "data": self.given.dataset.digest,
            "how": self.settings.model_dump(mode="json", exclude={"trials"}),
            "space": distributions,
        }

    def study(self) -> optuna.Study:
        """Open or create the study."""
        directions = []
        for name in self.settings.objective:
            directions.append("maximize" if objective(name).higher_is_better else "minimize")
        return optuna.create_study(
            study_name="tune",
            storage=f"sqlite:///{self.folder / STUDY}",
            load_if_exists=True,
            directions=directions,
        )

    def draw(self, study: optuna.Study, number: int) -> optuna.Trial:
        """Draw the settings of a trial. The first trial has the given settings, within the space.

        Args:
            study: Study of Optuna with the earlier trials.
            number: Number of the trial, from 0.
        """
        seed = self.settings.tune_seed * 100_003 + number
        study.sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP)
        if number == 0:
            start = {}
            for name, values in self.space.items():
                value = getattr(self.given.program.knobs, name, None)
                if isinstance(values, CategoricalDistribution):
                    if value in values.choices:
                        start[name] = value
                elif value is not None:
                    start[name] = min(max(value, values.low), values.high)
            study.enqueue_trial(start)
        return study.ask(self.space)


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
    stopped = ""
    with locked(search.folder):
        identity = search.identity()
        if not is_claimed(search.folder / ASKED, identity, "a search"):
            write_json(search.folder / ASKED, identity)
        watch.say(f"settings: {', '.join(search.space)}")
        default = search.run({}, "before the search")
        study = search.study()
        points: dict[int, Point] = {}
        try:
            for trial in _ended(study):
                if trial.state == TrialState.COMPLETE:  # Reuse its records.
                    points[trial.number] = search.run(trial.params, "earlier trial")
            for number in range(len(_ended(study)), settings.trials):
                drawn = search.draw(study, number)
                title = f"trial {number + 1} of {settings.trials}"
                try:
                    point = points[drawn.number] = search.run(drawn.params, title)
                    study.tell(drawn, [mean.mean for mean in point.means.values()])
                except errors.KnobError as error:
                    study.tell(drawn, state=TrialState.FAIL)
                    watch.say(f"{title}: refused: {error}")
        except errors.StoppedError as stop:
            if not points:
                raise
            stopped = str(stop)
        if not points:
            raise errors.RunError("no settings were allowed; narrow them with --space")
        best = _best(list(points.values()), search)
        front = [points[number] for number in _front(study, search.sign)]
        tuned = TuneResult(search.folder, front, default, len(_ended(study)), best, stopped)
        _write_front(search, tuned)
        outcomes = list(search.outcomes.values())
        write_experiment(search.folder, "tune", outcomes, tuned.to_dict(), stopped or None)
        return tuned


def _ended(study: optuna.Study) -> list[FrozenTrial]:
    """List the completed trials and the trials with refused settings, without a killed one."""
    return list(study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.FAIL)))


def _front(study: optuna.Study, sign: int) -> list[int]:
    """Return the numbers of the Pareto-optimal trials, best first, without ties."""
    numbers: dict[tuple[float, ...], int] = {}
    for trial in sorted(study.best_trials, key=lambda trial: trial.number):
        numbers.setdefault(tuple(trial.values), trial.number)
    order = sorted(numbers, key=lambda values: (-sign * values[0], values))
    return [numbers[values] for values in order]


def _write_front(search: Search, tuned: TuneResult) -> None:
    """Write each point as a compiled program. `eval` refuses the questions that selected it."""
    shutil.rmtree(search.folder / FRONT, ignore_errors=True)
    split = search.config.split
    first = search.settings.objective[0]
    spent = [outcome.finished().summary for outcome in search.outcomes.values()]
    costs = {
        "as_if": {"all": asdict(add_up(summary.as_if for summary in spent))},
        "billed": {"all": asdict(add_up(summary.billed for summary in spent))},
    }
    before, clusters = tuned.default.scores(first)
    for number, point in enumerate(tuned.front):
        folder = search.folder / FRONT / f"{number:02d}"
        run_context = search.scheduler.build(search.cell(point.settings))
        program = run_context.program
        dataset = run_context.dataset
        sides = [run_context.examples if split == side else [] for side in ("train", "validation")]
        after, _ = point.scores(first)
        gain = metrics.paired_interval(before, after, objective(first).score_range, clusters)
        sidecar = artifacts.Sidecar(
            format=artifacts.FORMAT,
            program=program.name,
            variant=program.knobs.variant,
            knobs=program.knobs.model_dump(mode="json"),
            predictors=artifacts.fields_of(program),
            program_sha256=artifacts.save_program(program, folder / artifacts.PROGRAM),
            data=artifacts.data_card(dataset.name, dataset.digest, *sides),
            optimizer={"name": "tune", "seed": search.settings.tune_seed},
            config=run_context.config.identity(),
            given=run_context.config.sources(),
            lms={"student": run_context.lm.metered.identity},
            versions=artifacts.versions(),
            scores={
                "metric": first,
                "n": len(after),
                "compiled": point.scored(first),
                "difference": point.means[first].mean - tuned.default.means[first].mean,
                "interval": asdict(gain) if gain else None,
            },
            cost=costs,
            notes={"settings": dict(point.settings)},
        )
        artifacts.write_sidecar(folder, sidecar)


def _best(points: Sequence[Point], search: Search) -> metrics.Best | None:
    """Correct the best mean for selection. Points of one run count once.

    Returns None for a single run, or for too few questions.
    """
    first = search.settings.objective[0]
    runs = {point.run.folder: point.scores(first) for point in points}
    if len(runs) < 2:
        return None
    rows = list(runs.values())
    return metrics.corrected_best(
        np.array([scores for scores, _ in rows]),
        objective(first).score_range,
        clusters=rows[0][1],
        higher_is_better=search.sign > 0,
    )


def estimate_tune(
    config: RunConfig,
    settings: TuneConfig,
    *,
    pilot: int | None = None,
    watch: ProgressListener = SILENT,
) -> Estimate:
    """Estimate the trials that are left. A combination that was run before is free.

    Args:
        config: The run.
        settings: The search.
        pilot: Questions to run first, with the settings as given.
        watch: The receiver of the pilot's progress.
    """
    search = Search(config, settings)
    ended = 0
    if is_claimed(search.folder / ASKED, search.identity(), "a search"):
        ended = len(_ended(search.study()))
    run_context = search.scheduler.build(search.cell({}))
    if pilot:
        run_pilot(run_context, pilot, watch)
    n = len(run_context.examples)
    trials = question_cost(run_context).times(0, max(0, settings.trials - ended) * n)
    title = f"{settings.trials} trials of {n} questions each"
    baseline = estimate_run(run_context)
    notes = [*baseline.notes, "a trial counts as much as one with the settings as given"]
    return in_all(f"{title}, {ended} done before" if ended else title, [baseline, trials], notes)
