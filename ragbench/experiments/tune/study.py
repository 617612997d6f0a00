"""Searches a program's knobs with Optuna, and keeps the Pareto front as folders that `eval` loads.

    tune.json      what was asked for
    study.db       Optuna's storage (SQLite); a search that was cut off goes on from it
    trials/        one run folder per combination of knobs
    front/00, ...  the best trade-offs, as compiled programs

The sampler is seeded anew for each trial by its number, so a search that was killed proposes the
same knobs as one that was not. Training or validation questions alone are asked.
"""

import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from numpy.typing import ArrayLike
from optuna.distributions import distribution_to_json
from optuna.trial import FrozenTrial, TrialState

from ragbench import errors, metrics
from ragbench.experiments import artifacts
from ragbench.experiments.compile import OnMessage
from ragbench.experiments.config import RunConfig, TuneConfig
from ragbench.experiments.estimates import Estimate, estimate_run, in_all, question_cost, run_pilot
from ragbench.experiments.runs.context import build
from ragbench.experiments.store import is_claimed, locked, read_records, write_json
from ragbench.experiments.tune.search import COSTS, Point, Search, make_space, objective
from ragbench.experiments.watch import SILENT, Watch
from ragbench.metrics.stats.estimates import Bounds, Clusters, hull
from ragbench.record import billed, total

ASKED, STUDY, FRONT = "tune.json", "study.db", "front"
#: Trials whose knobs depend on no result, and those that are not given up early.
STARTUP, NEVER_PRUNED = 8, 4
_DIRECTION = {1: "maximize", -1: "minimize"}


@dataclass(frozen=True)
class Tuned:
    """The front, best first by the first objective; `default` is the program as it was given."""

    folder: Path
    front: Sequence[Point]
    default: Point
    trials: int
    pruned: int
    #: The best of all complete trials by the first objective, without the luck of the choice.
    best: metrics.Best | None = None
    stopped: str = ""  # what ended the search before all trials, where a limit did


def tune(
    config: RunConfig, settings: TuneConfig, *, on_message: OnMessage = print, watch: Watch = SILENT
) -> Tuned:
    """Search, or continue a search that was cut off, and write the front."""
    search = prepare(config, settings, watch)
    stopped = ""
    with locked(search.folder):
        if not is_claimed(search.folder / ASKED, _asked(search), "a search"):
            write_json(search.folder / ASKED, _asked(search))
        on_message(f"knobs: {', '.join(search.space)}")
        default = search.ask({})
        study = _study(search)
        try:
            while (number := _told(study)) < settings.trials:
                trial = _step(search, study, number)
                words = _words(trial, settings)
                on_message(f"trial {number + 1} of {settings.trials}: {words}")
                watch.count("trials", number + 1, settings.trials, words)
        except errors.StoppedError as stop:
            if not _in_state(study, TrialState.COMPLETE):
                raise
            stopped = str(stop)
        return _finish(search, study, default, stopped)


def prepare(config: RunConfig, settings: TuneConfig, watch: Watch) -> Search:
    """The search, checked; asks no LM and writes nothing."""
    if config.split in ("test", "all"):
        raise errors.DataError(
            f"tune asks training or validation questions; leave out --split {config.split}"
        )
    if config.compiled is not None or config.form or config.votes > 1:
        raise errors.ConfigError(
            "tune starts from a program as it is; leave --compiled and controls out"
        )
    choices = [*COSTS, *metrics.metric_names()]
    for name in settings.objective:
        if name.isidentifier() and name not in choices:
            raise errors.UnknownNameError("objective", name, choices)
        objective(name)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    run_context = build(config.but(out=None))
    program = type(run_context.program)
    space = make_space(program, config.set, narrowed=settings.space, only=settings.only)
    return Search(run_context, settings, tune_folder(config), space, watch)


def tune_folder(config: RunConfig) -> Path:
    """The folder of the search of `config`."""
    return config.out or Path("tuned") / config.name()


def _study(search: Search) -> optuna.Study:
    study = optuna.create_study(
        study_name="tune",
        storage=f"sqlite:///{search.folder / STUDY}",
        load_if_exists=True,
        directions=[_DIRECTION[_sign(name)] for name in search.settings.objective],
        pruner=optuna.pruners.MedianPruner(n_startup_trials=NEVER_PRUNED),
    )
    for trial in _in_state(study, TrialState.RUNNING):  # a kill cut it off
        study.tell(trial.number, state=TrialState.FAIL)
    if not _told(study) and not _in_state(study, TrialState.WAITING):
        # The knobs as given are tried first, if the space holds them.
        defaults = type(search.run_context.program).resolve_knobs(search.run_context.config.set)
        default_values = {}
        with suppress(ValueError):  # a choice that the space does not have
            for name, values in search.space.items():
                default_values[name] = getattr(defaults, name)
                if not values._contains(values.to_internal_repr(default_values[name])):
                    return study
            study.enqueue_trial(default_values)
    return study


def _step(search: Search, study: optuna.Study, number: int) -> FrozenTrial:
    settings = search.settings
    n = len(search.run_context.examples)
    seed = settings.tune_seed * 100_003 + number
    study.sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP)
    trial = study.ask(search.space)
    # With one objective a bad trial is given up after a quarter or half of the questions.
    rungs = {n}
    if len(settings.objective) == 1:
        rungs |= {max(1, n // 4), max(1, n // 2)}
    try:
        for rung in sorted(rungs):
            point = search.ask(trial.params, rung)
            if len(rungs) > 1:
                trial.report(point.values[settings.objective[0]], rung)
                if rung < n and trial.should_prune():
                    return study.tell(trial, state=TrialState.PRUNED)
    except errors.KnobError as error:
        trial.set_user_attr("refused", str(error))
        return study.tell(trial, state=TrialState.FAIL)
    return study.tell(trial, [point.values[name] for name in settings.objective])


def _in_state(study: optuna.Study, *states: TrialState) -> list[FrozenTrial]:
    trials: list[FrozenTrial] = study.get_trials(deepcopy=False, states=states)
    return trials


def _told(study: optuna.Study) -> int:
    """Trials that came to an end by themselves; one that was cut off does not count."""
    refused = ("refused" in trial.user_attrs for trial in _in_state(study, TrialState.FAIL))
    return len(_in_state(study, TrialState.COMPLETE, TrialState.PRUNED)) + sum(refused)


def _asked(search: Search) -> dict[str, Any]:
    run_context = search.run_context
    settings = search.settings
    return {
        "config": run_context.config.identity(),
        "limit": run_context.config.limit,
        "data": run_context.dataset.digest,
        "how": settings.model_dump(mode="json", exclude={"trials"}),
        "space": {name: distribution_to_json(values) for name, values in search.space.items()},
    }


def _words(trial: FrozenTrial, settings: TuneConfig) -> str:
    knobs = ", ".join(f"{name}={value}" for name, value in trial.params.items())
    words = "not allowed"
    if trial.state == TrialState.PRUNED:
        words = "given up early"
    elif trial.state == TrialState.COMPLETE:
        pairs = zip(settings.objective, trial.values, strict=True)
        words = ", ".join(f"{name} {value:.4g}" for name, value in pairs)
    return f"{words} ({knobs})"


def _finish(search: Search, study: optuna.Study, default: Point, stopped: str) -> Tuned:
    points = {t.number: search.point(t.params) for t in _in_state(study, TrialState.COMPLETE)}
    if not points:
        raise errors.RunError("no combination of knobs was allowed; narrow them with --space")
    shutil.rmtree(search.folder / FRONT, ignore_errors=True)
    name = search.settings.objective[0]
    # Trials that none beats, the best first; of equals the one with the fewest tokens.
    numbers: dict[tuple[float, ...], int] = {}
    for trial in sorted(study.best_trials, key=lambda t: (points[t.number].tokens, t.number)):
        numbers.setdefault(tuple(trial.values), trial.number)
    front = []
    order = sorted(numbers, key=lambda values: (-_sign(name) * values[0], values))
    for place, number in enumerate(map(numbers.__getitem__, order)):
        folder = search.folder / FRONT / f"{place:02d}"
        save_point(search, points[number], default, folder=folder, number=number)
        front.append(replace(points[number], folder=folder))
    best = best_of_all(list(points.values()), name)
    pruned = len(_in_state(study, TrialState.PRUNED))
    return Tuned(search.folder, front, default, _told(study), pruned, best, stopped)


def save_point(search: Search, point: Point, default: Point, *, folder: Path, number: int) -> None:
    """Write trial `number` to `folder` as a compiled program."""
    run_context = search.run_context
    dataset = run_context.dataset
    settings = search.settings
    tried = search.made(point.knobs)
    name = settings.objective[0]
    split = run_context.config.split
    sides = [run_context.examples if split == side else [] for side in ("train", "validation")]
    gain = metrics.paired_interval(
        default.scores[name], point.scores[name], objective(name).score_range, point.clusters
    )
    calls = []
    for trial in sorted((search.folder / "trials").iterdir()):
        for record in read_records(trial).values():
            calls.extend(record.ledger.calls)
    sidecar = artifacts.Sidecar(
        format=artifacts.FORMAT,
        program=tried.program.name,
        variant=tried.program.knobs.variant,
        knobs=tried.program.knobs.model_dump(mode="json"),
        predictors=artifacts.fields_of(tried.program),
        program_sha256=artifacts.save_program(tried.program, folder / artifacts.PROGRAM),
        data=artifacts.data_card(dataset.name, dataset.digest, *sides),
        optimizer={"name": "tune", "seed": settings.tune_seed, **settings.model_dump(mode="json")},
        config=tried.config.identity(),
        given=run_context.config.sources(),
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
        notes={"trial": number, "objectives": point.values},
    )
    artifacts.write_sidecar(folder, sidecar)


def _scored(point: Point, name: str) -> dict[str, Any]:
    interval = point.interval(name)
    ends = asdict(interval) if interval else None
    return {"mean": point.values[name], "failed": point.failed, "interval": ends}


def _sign(name: str) -> int:
    """1 where more of the objective `name` is better, else -1."""
    if objective(name).higher_is_better:
        return 1
    return -1


def best_of_all(points: Sequence[Point], name: str) -> metrics.Best | None:
    """The best of `points` by the objective `name`, without the luck of being chosen.

    Points of one run count once. None for one run, one question, or one cluster of questions.
    """
    sign = _sign(name)
    runs = list({point.folder: point for point in points}.values())
    rows = np.array([point.scores[name] for point in runs])
    clusters = runs[0].clusters
    best = metrics.corrected_best(sign * rows, clusters=clusters)
    if best is None or best.candidates < 2:
        return None
    luck = sign * (best.seen - best.corrected)
    bounds = objective(name).score_range
    interval = without_luck(rows[best.index], luck, bounds, clusters)
    return replace(
        best,
        seen=sign * best.seen,
        corrected=sign * best.corrected,
        interval=interval or best.interval,
    )


def without_luck(
    scores: ArrayLike,
    luck: float,
    bounds: Bounds,
    clusters: Clusters = None,
) -> metrics.Interval | None:
    """The interval of the mean of `scores`, of which `luck` is ahead by chance.

    It holds the plus-two intervals with the luck taken off and left in, for how much of it there
    is is itself an estimate (which takes off too much where many candidates are nearly always
    right). None for fewer than two scores.
    """
    estimate = metrics.estimate_mean(scores, bounds, clusters)
    if estimate is None:
        return None
    without = replace(estimate, centre=estimate.centre - luck)
    return hull([estimate.interval(), without.interval()])


def estimate_tune(
    config: RunConfig, settings: TuneConfig, *, pilot: int | None = None, watch: Watch = SILENT
) -> Estimate:
    """Estimate the trials that are left, of which a poor one ends early and a known one is free.

    Args:
        config: The run.
        settings: The search.
        pilot: Questions to run first, with the knobs as given.
        watch: The receiver of the pilot's progress.
    """
    search = prepare(config, settings, SILENT)
    done = 0
    path = search.folder / STUDY
    if is_claimed(search.folder / ASKED, _asked(search), "a search") and path.is_file():
        done = _told(optuna.load_study(study_name="tune", storage=f"sqlite:///{path}"))
    run_context = search.made({})
    if pilot:
        run_pilot(run_context, pilot, watch)
    n = len(run_context.examples)
    trials = question_cost(run_context).times(0, max(0, settings.trials - done) * n)
    title = f"{settings.trials} trials of {n} questions each"
    baseline = estimate_run(run_context)
    notes = [*baseline.notes, "a trial counts as much as one with the knobs as given"]
    return in_all(f"{title}, {done} done before" if done else title, [baseline, trials], notes)
