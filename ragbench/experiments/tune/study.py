"""Searches a program's knobs with Optuna, and keeps the Pareto front as folders that `eval` loads.

    tune.json      what was asked for
    demos/         the compile that drew demonstrations, if some may be shown
    study.db       Optuna's storage (SQLite); a search that was cut off goes on from it
    trials/        one run folder per combination of knobs
    front/00, ...  the best trade-offs, as compiled programs: knobs, and demonstrations if any

The sampler is seeded anew for each trial by its number, so a search that was killed proposes the
same knobs as one that was not. Training or validation questions alone are asked.
"""

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from ragbench.errors import (
    ConfigError,
    DataError,
    KnobError,
    RunError,
    StoppedError,
    UnknownNameError,
)
from ragbench.experiments.compile import OnMessage
from ragbench.experiments.config import CompileConfig, RunConfig, TuneConfig
from ragbench.experiments.estimates import duration
from ragbench.experiments.runs import build
from ragbench.experiments.store import is_claimed as is_folder_of, locked, write_json
from ragbench.experiments.tune.demos import DEMOS, draw_demos, drawing
from ragbench.experiments.tune.front import best_trials, corrected, save_point
from ragbench.experiments.tune.search import COSTS, Point, Search, direction
from ragbench.experiments.tune.search_space import describe, make_space
from ragbench.metrics import Best, metric_names

ASKED, STUDY, FRONT = "tune.json", "study.db", "front"
#: Trials whose knobs depend on no result, and those that are not given up early.
STARTUP, NEVER_PRUNED = 8, 4


@dataclass(frozen=True)
class Tuned:
    """The front, best first by the first objective; `default` is the program as it was given."""

    folder: Path
    front: Sequence[Point]
    default: Point
    trials: int
    pruned: int
    #: The best of all complete trials by the first objective, without the luck of the choice.
    best: Best | None = None
    stopped: str = ""  # what ended the search before all trials, where a limit did


def tune(config: RunConfig, settings: TuneConfig, *, on_message: OnMessage = print) -> Tuned:
    """Search, or continue a search that was cut off, and write the front.

    RagbenchError for what the user can mend, as the test split given; StoppedError where a limit of
    spending was reached before there was a front.
    """
    search = prepare(config, settings)
    with locked(search.folder):
        if not is_claimed(search):
            write_json(search.folder / ASKED, _asked(search), sealed=True)
        search = _with_demos(search, on_message)
        for line in describe(search.space):
            on_message(line)
        default = search.ask({})
        if default.values.get("cost") == 0:
            on_message("cost is $0 whatever the knobs, so it decides nothing; tokens would")
        study = _study(search)
        try:
            start, first = time.monotonic(), told(study)
            while (number := told(study)) < settings.trials:
                trial = _step(search, study, number)
                each = (time.monotonic() - start) / (number + 1 - first)
                left = f"about {duration(each * (settings.trials - number - 1))} left"
                line = f"trial {number + 1} of {settings.trials}: {_words(trial, settings)}"
                on_message(f"{line}; {_best(study, settings)}, {left}")
        except StoppedError as stop:
            if not study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
                raise
            return replace(_finish(search, study, default), stopped=str(stop))
        return _finish(search, study, default)


def prepare(config: RunConfig, settings: TuneConfig) -> Search:
    """The search, checked; asks no LM and writes nothing. RagbenchError as `tune`."""
    if config.data.split in ("test", "all"):
        raise DataError(
            f"tune asks training or validation questions; leave out --split {config.data.split}"
        )
    if config.policy is not None:
        raise ConfigError("a router has no knobs to tune; leave --policy out")
    if config.compiled is not None or config.form or config.votes > 1:
        raise ConfigError("tune starts from a program as it is; leave --compiled and controls out")
    for name in settings.objectives:
        if name not in COSTS and "@" not in name and name not in metric_names():
            raise UnknownNameError("objective", name, [*COSTS, *metric_names()])
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    run_context = build(config.but(out=None))
    program = type(run_context.program)
    space = make_space(program, config.set, narrowed=settings.space, only=settings.only)
    return Search(run_context, settings, tune_folder(config), space)


def _with_demos(search: Search, on_message: OnMessage) -> Search:
    """The search with a number of demonstrations as one more dimension, if that is asked for."""
    settings = search.settings
    if not settings.demos:
        return search
    pool = draw_demos(search.run_context, drawing_of(search), on_message)
    most = min(settings.demos, pool.most)
    return replace(search, pool=pool, space={**search.space, DEMOS: IntDistribution(0, most)})


def drawing_of(search: Search) -> CompileConfig:
    """The compile that draws the demonstrations of `search`."""
    most, seed = search.settings.demos, search.settings.tune_seed
    return drawing(search.run_context, most=most, seed=seed, folder=search.folder / DEMOS)


def tune_folder(config: RunConfig) -> Path:
    """Where the search goes."""
    return config.out or Path("tuned") / config.name()


def _step(search: Search, study: optuna.Study, number: int) -> FrozenTrial:
    settings, questions = search.settings, len(search.run_context.examples)
    study.sampler = sampler_of(settings, number)
    trial = study.ask(search.space)
    rungs = rungs_of(questions) if prunes(settings) else [questions]
    point = None
    try:
        for rung in rungs:
            point = search.ask(trial.params, rung)
            if len(rungs) > 1:
                trial.report(point.values[settings.objectives[0]], rung)
                if rung < rungs[-1] and trial.should_prune():
                    return study.tell(trial, state=TrialState.PRUNED)
    except KnobError as error:
        trial.set_user_attr("refused", str(error))
        return study.tell(trial, state=TrialState.FAIL)
    assert point is not None
    trial.set_user_attr("failed", point.failed)
    return study.tell(trial, [point.values[name] for name in settings.objectives])


def prunes(settings: TuneConfig) -> bool:
    """Whether bad trials are given up early."""
    return settings.prune and len(settings.objectives) == 1


def rungs_of(n: int) -> list[int]:
    """Numbers of questions after which a bad trial is given up."""
    return sorted({max(1, n // 4), max(1, n // 2), n})


def sampler_of(settings: TuneConfig, number: int) -> optuna.samplers.BaseSampler:
    """Who proposes the knobs of trial `number`, from 0; of the first `STARTUP` by a seed alone."""
    seed = settings.tune_seed * 100_003 + number
    if settings.sampler == "tpe":
        return optuna.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP)
    if settings.sampler == "nsga2":
        return optuna.samplers.NSGAIISampler(seed=seed, population_size=STARTUP)
    return optuna.samplers.RandomSampler(seed=seed)


def _study(search: Search) -> optuna.Study:
    study = optuna.create_study(
        study_name="tune",
        storage=storage_of(search.folder),
        load_if_exists=True,
        directions=[direction(name) for name in search.settings.objectives],
        pruner=optuna.pruners.MedianPruner(n_startup_trials=NEVER_PRUNED),
    )
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        study.tell(trial.number, state=TrialState.FAIL)
    waiting = study.get_trials(deepcopy=False, states=(TrialState.WAITING,))
    if not told(study) and not waiting and (first := first_trial(search)):
        study.enqueue_trial(first)
    return study


def storage_of(folder: Path) -> str:
    """The address of the study in the search's folder."""
    return f"sqlite:///{folder / STUDY}"


def first_trial(search: Search) -> dict[str, Any] | None:
    """The knobs as given, which are tried first; None where the space does not hold them."""
    defaults = type(search.run_context.program).resolve_knobs(search.run_context.config.set)
    first = {name: getattr(defaults, name, 0) for name in search.space}  # no demonstrations
    within = all(_within(search.space[name], value) for name, value in first.items())
    return first if within else None


def _within(distribution: BaseDistribution, value: Any) -> bool:
    try:
        return bool(distribution._contains(distribution.to_internal_repr(value)))
    except ValueError:
        return False


def told(study: optuna.Study) -> int:
    """Trials that came to an end by themselves; one that was cut off does not count."""
    ended = (TrialState.COMPLETE, TrialState.PRUNED)
    return sum(
        trial.state in ended or "refused" in trial.user_attrs
        for trial in study.get_trials(deepcopy=False)
    )


def _finish(search: Search, study: optuna.Study, default: Point) -> Tuned:
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if not complete:
        raise RunError("no combination of knobs was allowed; narrow them with --space")
    shutil.rmtree(search.folder / FRONT, ignore_errors=True)
    front = []
    for place, trial in enumerate(best_trials(search, study)):
        point = search.point(trial.params, search.records(trial.params))
        folder = search.folder / FRONT / f"{place:02d}"
        save_point(search, point, default, folder=folder, number=trial.number)
        front.append(replace(point, folder=folder))
    pruned = len(study.get_trials(deepcopy=False, states=(TrialState.PRUNED,)))
    return Tuned(search.folder, front, default, told(study), pruned, corrected(search, complete))


def is_claimed(search: Search) -> bool:
    """Whether the search was begun in its folder; RunError where that holds another search."""
    return is_folder_of(search.folder / ASKED, _asked(search), "a search")


def _asked(search: Search) -> dict[str, Any]:
    run_context, settings = search.run_context, search.settings
    return {
        "config": run_context.config.identity(),
        "limit": run_context.config.data.limit,
        "data": run_context.dataset.digest,
        "how": settings.model_dump(mode="json", exclude={"trials"}),
        "space": {k: optuna.distributions.distribution_to_json(d) for k, d in search.space.items()},
    }


def _best(study: optuna.Study, settings: TuneConfig) -> str:
    """The best value of the first objective so far."""
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    values = [trial.values[0] for trial in complete]
    if not values:
        return "none complete yet"
    best = max(values) if direction(settings.objectives[0]) == "maximize" else min(values)
    return f"best {settings.objectives[0]} {best:.4g}"


def _words(trial: FrozenTrial, settings: TuneConfig) -> str:
    knobs = ", ".join(f"{name}={value}" for name, value in trial.params.items())
    if trial.state == TrialState.PRUNED:
        return f"given up early ({knobs})"
    if trial.state == TrialState.FAIL:
        return f"not allowed ({knobs})"
    pairs = zip(settings.objectives, trial.values, strict=True)
    return ", ".join(f"{name} {value:.4g}" for name, value in pairs) + f" ({knobs})"
