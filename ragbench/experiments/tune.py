"""Searches a program's knobs with Optuna, and keeps the Pareto front as folders that `eval` loads.

    tune.json      what was asked for
    study.log      Optuna's journal; a search that was cut off goes on from it
    trials/        one run folder per combination of knobs
    front/00, ...  the best trade-offs, as compiled programs: knobs, and prompts as they are

The sampler is seeded anew for each trial by its number, so a search that was killed proposes the
same knobs as one that was not. Training or validation questions alone are asked.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import optuna
from optuna.distributions import BaseDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState
from pydantic import Field

from ragbench.errors import ConfigError, DataError, KnobError, RunError, UnknownNameError
from ragbench.experiments.artefact import (
    FORMAT,
    PROGRAM,
    Sidecar,
    cards_of,
    data_card,
    read_json,
    save_program,
    versions,
    write_sidecar,
)
from ragbench.experiments.compare import MEASURES
from ragbench.experiments.compile import Say
from ragbench.experiments.config import RunConfig
from ragbench.experiments.records import Record, read_records
from ragbench.experiments.rundir import RunDir, write_json
from ragbench.experiments.runner import run
from ragbench.experiments.setup import Bench, build
from ragbench.experiments.space import Space, describe, make_space
from ragbench.knobs import Knobs
from ragbench.ledger import Ledger, total
from ragbench.metrics import get_metric, metric_names
from ragbench.metrics.stats import paired_bootstrap

ASKED, STUDY, FRONT = "tune.json", "study.log", "front"
#: Objectives of cost, all to be made small: name -> measure of a record.
COSTS = {name.partition(" ")[0]: measure for name, measure in MEASURES.items()}


class TuneConfig(Knobs):
    """How to search; what is searched, and over which questions, is a `RunConfig`."""

    objectives: tuple[str, ...] = Field(("f1", "cost"), min_length=1, description="first ranks")
    trials: int = Field(20, ge=1, le=100_000, description="combinations of knobs to try")
    sampler: Literal["tpe", "nsga2", "random"] = Field("tpe", description="who proposes knobs")
    space: dict[str, str] = Field({}, description="knob -> LOW:HIGH or choices")
    only: tuple[str, ...] = Field((), description="knobs to search; empty for all")
    tune_seed: int = Field(0, ge=0, description="seeds the sampler")
    prune: bool = Field(True, description="give up early on bad trials, with one objective")


@dataclass(frozen=True)
class Point:
    """One combination of knobs and what it came to over the questions; `values` by objective."""

    knobs: Mapping[str, Any]
    values: Mapping[str, float]
    n: int
    failed: int
    folder: Path


@dataclass(frozen=True)
class Tuned:
    """The front, best first by the first objective; `default` is the program as it was given."""

    folder: Path
    front: Sequence[Point]
    default: Point
    trials: int
    pruned: int


@dataclass(frozen=True)
class _Search:
    bench: Bench
    how: TuneConfig
    folder: Path
    space: Space

    @property
    def given(self) -> dict[str, Any]:
        return self.bench.config.knobs()

    def config(self, params: Mapping[str, Any]) -> RunConfig:
        """The run of one combination, in a folder that the knobs decide."""
        knobs = {**self.given, **params}
        resolved = type(self.bench.program).resolve_knobs(knobs).model_dump(mode="json")
        name = hashlib.sha256(json.dumps(resolved, sort_keys=True).encode()).hexdigest()[:10]
        out = self.folder / "trials" / name
        return self.bench.config.model_copy(update={"set": resolved, "k": None, "out": out})

    def ask(self, params: Mapping[str, Any], n: int | None = None) -> Point:
        """What the combination comes to over the first `n` questions; asks those not asked yet.

        Raises:
            KnobError: knobs that do not go together.
            RunError: every question failed, or a price is not known.
        """
        config = self.config(params)
        program = type(self.bench.program)(self.bench.retriever, **config.set)
        examples = self.bench.examples[:n]
        run(replace(self.bench, config=config, program=program, examples=examples))
        records = read_records(config.folder()).records
        rows = [records[example.qid] for example in examples]
        failed = sum(row["failure"] is not None for row in rows)
        if failed == len(rows):
            raise RunError(
                f"every question failed, so nothing can be tuned; the first: {rows[0]['failure']}"
            )
        values = {name: objective(name, rows) for name in self.how.objectives}
        return Point(params, values, len(rows), failed, config.folder())


def objective(name: str, records: Sequence[Record]) -> float:
    """The mean of a metric, or of a measure of cost, over `records`.

    Raises:
        RunError: a price is unknown, or the metric is not defined for a question.
    """
    measure = COSTS.get(name) or get_metric(name).score
    found = [measure(record) for record in records]
    known = [value for value in found if value is not None]
    if len(known) < len(found):
        raise RunError(
            f"objective {name} is unknown for {len(found) - len(known)} of {len(found)} questions; "
            + ("give --price, or take tokens" if name == "cost" else "choose another --objective")
        )
    return sum(known) / len(known)


def tune(config: RunConfig, how: TuneConfig, *, say: Say = print) -> Tuned:
    """Search, or continue a search that was cut off, and write the front.

    Raises:
        DataError: the test split was given.
        RagbenchError: something else the user can mend.
    """
    search = _prepare(config, how)
    with RunDir(search.folder).locked():
        _claim(search)
        for line in describe(search.space):
            say(line)
        default = search.ask({})
        study = _study(search)
        while (number := _told(study)) < how.trials:
            trial = _step(search, study, number)
            say(f"trial {number + 1} of {how.trials}: {_words(trial, how)}")
        return _finish(search, study, default)


def _prepare(config: RunConfig, how: TuneConfig) -> _Search:
    if config.split == "test":
        raise DataError("tune asks training or validation questions; leave out --split test")
    if config.compiled is not None or config.form or config.votes > 1:
        raise ConfigError("tune starts from a program as it is; leave --compiled and controls out")
    for name in how.objectives:
        if name not in COSTS and "@" not in name and name not in metric_names():
            raise UnknownNameError("objective", name, [*COSTS, *metric_names()])
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    bench = build(config.model_copy(update={"out": None}))
    given = config.knobs()
    space = make_space(type(bench.program), given, narrowed=how.space, only=how.only)
    folder = config.out or Path("tuned") / bench.config.folder().name
    return _Search(bench, how, folder, space)


def _step(search: _Search, study: optuna.Study, number: int) -> FrozenTrial:
    how = search.how
    study.sampler = _sampler(how, number)
    trial = study.ask(search.space)
    rungs = _rungs(len(search.bench.examples)) if _prunes(how) else [len(search.bench.examples)]
    point = None
    try:
        for rung in rungs:
            point = search.ask(trial.params, rung)
            if len(rungs) > 1:
                trial.report(point.values[how.objectives[0]], rung)
                if rung < rungs[-1] and trial.should_prune():
                    return study.tell(trial, state=TrialState.PRUNED)
    except KnobError as error:
        trial.set_user_attr("refused", str(error))
        return study.tell(trial, state=TrialState.FAIL)
    assert point is not None
    trial.set_user_attr("failed", point.failed)
    return study.tell(trial, [point.values[name] for name in how.objectives])


def _prunes(how: TuneConfig) -> bool:
    return how.prune and len(how.objectives) == 1


def _rungs(n: int) -> list[int]:
    """Numbers of questions after which a bad trial is given up."""
    return sorted({max(1, n // 4), max(1, n // 2), n})


def _sampler(how: TuneConfig, number: int) -> optuna.samplers.BaseSampler:
    seed = how.tune_seed * 100_003 + number
    if how.sampler == "tpe":
        return optuna.samplers.TPESampler(seed=seed, n_startup_trials=8)
    if how.sampler == "nsga2":
        return optuna.samplers.NSGAIISampler(seed=seed, population_size=8)
    return optuna.samplers.RandomSampler(seed=seed)


def _study(search: _Search) -> optuna.Study:
    path = search.folder / STUDY
    Path(f"{path}.lock").unlink(missing_ok=True)  # of a killed process: the folder is ours
    if path.exists():
        lines = path.read_bytes()
        path.write_bytes(lines[: lines.rfind(b"\n") + 1])  # a kill may have cut the last line
    study = optuna.create_study(
        study_name="tune",
        storage=JournalStorage(JournalFileBackend(str(path))),
        load_if_exists=True,
        directions=[_direction(name) for name in search.how.objectives],
        pruner=optuna.pruners.MedianPruner(n_startup_trials=4),
    )
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        study.tell(trial.number, state=TrialState.FAIL)
    if not _told(study) and not study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
        defaults = type(search.bench.program).resolve_knobs(search.given)
        first = {name: getattr(defaults, name) for name in search.space}
        if all(_within(search.space[name], value) for name, value in first.items()):
            study.enqueue_trial(first)
    return study


def _within(distribution: BaseDistribution, value: Any) -> bool:
    try:
        return bool(distribution._contains(distribution.to_internal_repr(value)))
    except ValueError:
        return False


def _direction(name: str) -> Literal["minimize", "maximize"]:
    return "maximize" if name not in COSTS and get_metric(name).higher_is_better else "minimize"


def _told(study: optuna.Study) -> int:
    """Trials that came to an end by themselves; one that was cut off does not count."""
    ended = (TrialState.COMPLETE, TrialState.PRUNED)
    return sum(
        trial.state in ended or "refused" in trial.user_attrs
        for trial in study.get_trials(deepcopy=False)
    )


def _finish(search: _Search, study: optuna.Study, default: Point) -> Tuned:
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if not complete:
        raise RunError("no combination of knobs was allowed; narrow them with --space")
    trials = _front(search, study)
    shutil.rmtree(search.folder / FRONT, ignore_errors=True)
    front = []
    for place, trial in enumerate(trials):
        found = search.ask(trial.params)
        folder = search.folder / FRONT / f"{place:02d}"
        _save(search, replace(found, folder=folder), default, trial.number)
        front.append(replace(found, folder=folder))
    pruned = len(study.get_trials(deepcopy=False, states=(TrialState.PRUNED,)))
    return Tuned(search.folder, front, default, _told(study), pruned)


def _front(search: _Search, study: optuna.Study) -> list[FrozenTrial]:
    """The trials that none beats, best first; of equals the one that takes fewest tokens."""
    best: dict[tuple[float, ...], tuple[float, FrozenTrial]] = {}
    for trial in study.best_trials:
        records = read_records(search.config(trial.params).folder()).records.values()
        tokens = objective("tokens", list(records))
        kept = best.get(tuple(trial.values))
        if kept is None or tokens < kept[0]:
            best[tuple(trial.values)] = (tokens, trial)
    sign = -1 if _direction(search.how.objectives[0]) == "maximize" else 1
    return sorted((t for _, t in best.values()), key=lambda t: (sign * t.values[0], t.number))


def _save(search: _Search, point: Point, default: Point, number: int) -> None:
    bench, how = search.bench, search.how
    config = search.config(point.knobs)
    program = type(bench.program)(bench.retriever, **config.set)
    digest = save_program(program, point.folder / PROGRAM)
    asked = {"train": [], "validation": [], bench.config.split: bench.examples}
    write_sidecar(
        point.folder,
        Sidecar(
            format=FORMAT,
            program=program.name,
            variant=program.knobs.variant,
            knobs=program.knobs.model_dump(mode="json"),
            predictors=cards_of(program),
            program_sha256=digest,
            data=data_card(
                bench.dataset.name, bench.dataset.digest, asked["train"], asked["validation"]
            ),
            optimizer={"name": "tune", "seed": how.tune_seed, **how.model_dump(mode="json")},
            config=config.model_copy(update={"out": None}).identity(),
            lms={"student": bench.lm.model, "adapter": type(bench.adapter).__name__},
            versions=versions(),
            scores=_scores(search, point, default),
            cost=_cost(search.folder / "trials"),
            inflation={},
            notes={"trial": number, "objectives": dict(point.values)},
        ),
    )


def _scores(search: _Search, point: Point, default: Point) -> dict[str, Any]:
    """The first objective, against the knobs as they were given."""
    name = search.how.objectives[0]
    qids = [example.qid for example in search.bench.examples]
    columns = []
    for folder in (default.folder, search.config(point.knobs).folder()):
        records = read_records(folder).records
        columns.append([objective(name, [records[qid]]) for qid in qids])
    before, after = columns
    interval = paired_bootstrap(before, after, seed=0) if len(qids) > 1 else None
    return {
        "metric": name,
        "split": search.bench.config.split,
        "n": len(qids),
        "zero_shot": {"mean": default.values[name], "failed": default.failed},
        "compiled": {"mean": point.values[name], "failed": point.failed},
        "difference": point.values[name] - default.values[name],
        "interval": asdict(interval) if interval else None,
        "selected_on_these_questions": True,
    }


def _cost(trials: Path) -> dict[str, Any]:
    """What all trials together took."""
    ledgers = [
        Ledger.from_dict(record["ledger"])
        for folder in sorted(trials.iterdir())
        for record in read_records(folder).records.values()
    ]
    calls = [call for ledger in ledgers for call in ledger.calls]
    billed = total(call for call in calls if not call.cached)
    return {"as_if": {"all": asdict(total(calls))}, "billed": {"all": asdict(billed)}}


def _claim(search: _Search) -> None:
    """Mark the folder as this search's; more trials may be asked for later.

    Raises:
        RunError: it holds another search.
    """
    bench, how = search.bench, search.how
    asked = {
        "config": bench.config.identity(),
        "limit": bench.config.limit,
        "data": bench.dataset.digest,
        "how": how.model_dump(mode="json", exclude={"trials"}),
        "space": {k: optuna.distributions.distribution_to_json(d) for k, d in search.space.items()},
    }
    path = search.folder / ASKED
    if not path.is_file():
        write_json(path, asked)
        return
    theirs = read_json(path)
    changed = [key for key in asked if theirs.get(key) != asked[key]]
    if changed:
        raise RunError(
            f"{search.folder} holds a search with another {changed[0]}; give another --out"
        )


def _words(trial: FrozenTrial, how: TuneConfig) -> str:
    knobs = ", ".join(f"{name}={value}" for name, value in trial.params.items())
    if trial.state == TrialState.PRUNED:
        return f"given up early ({knobs})"
    if trial.state == TrialState.FAIL:
        return f"not allowed ({knobs})"
    pairs = zip(how.objectives, trial.values, strict=True)
    return ", ".join(f"{name} {value:.4g}" for name, value in pairs) + f" ({knobs})"
