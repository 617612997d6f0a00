"""Searches a program's knobs with Optuna, and keeps the Pareto front as folders that `eval` loads.

    tune.json      what was asked for
    study.db       Optuna's storage (SQLite); a search that was cut off goes on from it
    trials/        one run folder per combination of knobs
    front/00, ...  the best trade-offs, as compiled programs

The sampler is seeded anew for each trial by its number, so a search that was killed proposes the
same knobs as one that was not. Training or validation questions alone are asked.
"""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import optuna
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
from ragbench.experiments.config import RunConfig, TuneConfig
from ragbench.experiments.estimates import Estimate, estimate_run, in_all
from ragbench.experiments.runs import build
from ragbench.experiments.store import is_claimed, locked, write_json
from ragbench.experiments.tune.front import best_of_all, save_point
from ragbench.experiments.tune.search import COSTS, Point, Search, describe, direction, make_space
from ragbench.experiments.watch import Watch
from ragbench.metrics import Best, metric_names
from ragbench.ranges import Range

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


def tune(
    config: RunConfig,
    settings: TuneConfig,
    *,
    on_message: OnMessage = print,
    watch: Watch | None = None,
) -> Tuned:
    """Search, or continue a search that was cut off, and write the front.

    Raises:
        StoppedError: a limit of spending was reached before there was a front.
        RagbenchError: something else the user can mend, such as the test split given.
    """
    watch = watch or Watch()
    search = prepare(config, settings, watch)
    with locked(search.folder):
        if not _is_begun(search):
            write_json(search.folder / ASKED, _asked(search), sealed=True)
        for line in describe(search.space):
            on_message(line)
        default = search.ask({})
        study = _study(search)
        stopped = ""
        try:
            while (number := _told(study)) < settings.trials:
                trial = _step(search, study, number)
                on_message(f"trial {number + 1} of {settings.trials}: {_words(trial, settings)}")
                values = [t.values[0] for t in _in_state(study, TrialState.COMPLETE)]
                better = max if direction(settings.objectives[0]) == "maximize" else min
                best = f"best {settings.objectives[0]} {better(values):.4g}" if values else ""
                watch.count("trials", number + 1, settings.trials, best)
        except StoppedError as stop:
            if not _in_state(study, TrialState.COMPLETE):
                raise
            stopped = str(stop)
        return replace(_finish(search, study, default), stopped=stopped)


def prepare(config: RunConfig, settings: TuneConfig, watch: Watch) -> Search:
    """The search, checked; asks no LM and writes nothing.

    Raises:
        RagbenchError: what cannot be searched, or not over these questions.
    """
    if config.data.split in ("test", "all"):
        raise DataError(
            f"tune asks training or validation questions; leave out --split {config.data.split}"
        )
    if config.policy is not None:
        raise ConfigError("a router has no knobs to tune; leave --policy out")
    if config.compiled is not None or config.form or config.votes > 1:
        raise ConfigError("tune starts from a program as it is; leave --compiled and controls out")
    for name in settings.objectives:
        if name not in COSTS and "@" not in name and ":" not in name and name not in metric_names():
            raise UnknownNameError("objective", name, [*COSTS, *metric_names()])
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    run_context = build(config.but(out=None))
    program = type(run_context.program)
    space = make_space(program, config.set, narrowed=settings.space, only=settings.only)
    return Search(run_context, settings, tune_folder(config), space, watch)


def tune_folder(config: RunConfig) -> Path:
    """The folder of the search of `config`."""
    return config.out or Path("tuned") / config.name()


def _step(search: Search, study: optuna.Study, number: int) -> FrozenTrial:
    settings, questions = search.settings, len(search.run_context.examples)
    study.sampler = _sampler(settings, number)
    trial = study.ask(search.space)
    rungs = _rungs(questions) if _prunes(settings) else [questions]
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
    return study.tell(trial, [point.values[name] for name in settings.objectives])


def _prunes(settings: TuneConfig) -> bool:
    return settings.prune and len(settings.objectives) == 1


def _rungs(n: int) -> list[int]:
    """Numbers of questions after which a bad trial is given up."""
    return sorted({max(1, n // 4), max(1, n // 2), n})


def _sampler(settings: TuneConfig, number: int) -> optuna.samplers.BaseSampler:
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
        storage=_storage(search.folder),
        load_if_exists=True,
        directions=[direction(name) for name in search.settings.objectives],
        pruner=optuna.pruners.MedianPruner(n_startup_trials=NEVER_PRUNED),
    )
    for trial in _in_state(study, TrialState.RUNNING):  # a kill cut it off
        study.tell(trial.number, state=TrialState.FAIL)
    if not _told(study) and not _in_state(study, TrialState.WAITING):
        _enqueue_first(search, study)
    return study


def _storage(folder: Path) -> str:
    return f"sqlite:///{folder / STUDY}"


def _enqueue_first(search: Search, study: optuna.Study) -> None:
    """Let the knobs as given be tried first, if the space holds them."""
    defaults = type(search.run_context.program).resolve_knobs(search.run_context.config.set)
    first = {name: getattr(defaults, name) for name in search.space}
    try:
        within = (d._contains(d.to_internal_repr(first[name])) for name, d in search.space.items())
        if all(within):
            study.enqueue_trial(first)
    except ValueError:  # a choice that the space does not have
        return


def _in_state(study: optuna.Study, *states: TrialState) -> list[FrozenTrial]:
    found: list[FrozenTrial] = study.get_trials(deepcopy=False, states=states)
    return found


def _told(study: optuna.Study) -> int:
    """Trials that came to an end by themselves; one that was cut off does not count."""
    refused = ("refused" in trial.user_attrs for trial in _in_state(study, TrialState.FAIL))
    return len(_in_state(study, TrialState.COMPLETE, TrialState.PRUNED)) + sum(refused)


def _finish(search: Search, study: optuna.Study, default: Point) -> Tuned:
    points = {t.number: search.point(t.params) for t in _in_state(study, TrialState.COMPLETE)}
    if not points:
        raise RunError("no combination of knobs was allowed; narrow them with --space")
    shutil.rmtree(search.folder / FRONT, ignore_errors=True)
    front = []
    for place, number in enumerate(_front(study.best_trials, points, search.settings)):
        folder = search.folder / FRONT / f"{place:02d}"
        save_point(search, points[number], default, folder=folder, number=number)
        front.append(replace(points[number], folder=folder))
    best = best_of_all(list(points.values()), search.settings.objectives[0])
    pruned = len(_in_state(study, TrialState.PRUNED))
    return Tuned(search.folder, front, default, _told(study), pruned, best)


def _front(
    trials: Iterable[FrozenTrial], points: Mapping[int, Point], settings: TuneConfig
) -> list[int]:
    """Numbers of the trials that none beats, best first; of equals that with the fewest tokens."""
    kept: dict[tuple[float, ...], int] = {}
    for trial in sorted(trials, key=lambda t: (points[t.number].tokens, t.number)):
        kept.setdefault(tuple(trial.values), trial.number)
    sign = -1 if direction(settings.objectives[0]) == "maximize" else 1
    return [number for _, number in sorted(kept.items(), key=lambda one: (sign * one[0][0], one))]


def _is_begun(search: Search) -> bool:
    """Whether the search was begun in its folder; RunError where that holds another search."""
    return is_claimed(search.folder / ASKED, _asked(search), "a search")


def _asked(search: Search) -> dict[str, Any]:
    run_context, settings = search.run_context, search.settings
    return {
        "config": run_context.config.identity(),
        "limit": run_context.config.data.limit,
        "data": run_context.dataset.digest,
        "how": settings.model_dump(mode="json", exclude={"trials"}),
        "space": {k: optuna.distributions.distribution_to_json(d) for k, d in search.space.items()},
    }


def _words(trial: FrozenTrial, settings: TuneConfig) -> str:
    knobs = ", ".join(f"{name}={value}" for name, value in trial.params.items())
    if trial.state == TrialState.PRUNED:
        return f"given up early ({knobs})"
    if trial.state == TrialState.FAIL:
        return f"not allowed ({knobs})"
    pairs = zip(settings.objectives, trial.values, strict=True)
    return ", ".join(f"{name} {value:.4g}" for name, value in pairs) + f" ({knobs})"


def estimate_tune(config: RunConfig, settings: TuneConfig) -> Estimate:
    """What the trials still to come are expected to spend; asks no server.

    The first trials are drawn whatever comes of them: they are drawn here too and rehearsed, and no
    trial is taken to be dearer than the dearest of them. It may cost nothing: a combination that
    comes again is not asked again, and a poor one is given up early.

    Raises:
        RagbenchError: something that the user can mend.
    """
    search = prepare(config, settings, Watch())
    done = 0
    if _is_begun(search) and (search.folder / STUDY).is_file():
        done = _told(optuna.load_study(study_name="tune", storage=_storage(search.folder)))
    given = search.made({})
    sample = [estimate_run(given, afresh=True)]
    study = optuna.create_study(directions=[direction(name) for name in settings.objectives])
    _enqueue_first(search, study)
    for number in range(min(settings.trials, STARTUP)):
        study.sampler = _sampler(settings, number)
        trial = study.ask(search.space)
        study.tell(trial, [0.0] * len(settings.objectives))
        with suppress(KnobError):
            sample.append(estimate_run(search.made(trial.params), afresh=True))
    left, costs = max(0, settings.trials - done), [each.cost for each in sample]
    known = [cost[1] for cost in costs if cost is not None]
    trials = Estimate(
        title="",
        calls=Range(0, left * max(each.calls.high for each in sample)),
        tokens=Range(0, left * max(each.tokens.high for each in sample)),
        cost=(0.0, left * max(known)) if len(known) == len(sample) else None,
    )
    title = f"{settings.trials} trials of {len(search.run_context.examples)} questions each"
    notes = [
        *sample[0].notes,
        "a combination of knobs that comes again is not asked again",
        f"a trial is taken to be as dear as the dearest of the first {STARTUP} at the most",
    ]
    parts = [estimate_run(given), trials]
    return in_all(f"{title}, {done} done before" if done else title, parts, notes)
