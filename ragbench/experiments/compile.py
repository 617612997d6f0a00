"""`compile_program`: from a config and an optimizer to a compiled program on disk.

The order is: state the budget, score the program as it is on the validation questions, search,
score what was found on the same questions, save. A compile that was killed is continued by giving
it again: finished calls come from the cache, so it takes the same path to the same program.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import dspy
from dspy.utils.exceptions import LMError
from pydantic import Field

from ragbench.data.base import Dataset
from ragbench.errors import ConfigError, RunError
from ragbench.experiments.artefact import (
    FORMAT,
    PROGRAM,
    SIDECAR,
    DataCard,
    Sidecar,
    cards_of,
    data_card,
    read_json,
    save_program,
    versions,
    write_sidecar,
)
from ragbench.experiments.budget import describe, describe_measured
from ragbench.experiments.config import RunConfig
from ragbench.experiments.failures import redact
from ragbench.experiments.journal import CALLS, PREPARATION, CallJournal
from ragbench.experiments.limited import stop_if_refused
from ragbench.experiments.rehearsal import rehearse
from ragbench.experiments.rundir import RunDir, write_json
from ragbench.experiments.runner import OnPrepare
from ragbench.experiments.setup import Bench, asks_servers, build, lm_of
from ragbench.knobs import Knobs
from ragbench.ledger import Totals
from ragbench.lms.adapters import make_adapter
from ragbench.metrics.stats import paired_bootstrap
from ragbench.optimizers import OPTIMIZERS
from ragbench.optimizers.base import SIDE_KEY, Found, Optimizer, Scores, Size, Task, measure
from ragbench.optimizers.scoring import make_scorer
from ragbench.retrievers.store import IndexStore

#: Called with one line at a time of what a person should see.
Say = Callable[[str], None]

#: What a compile was asked for; its presence without a sidecar marks an unfinished compile.
ASKED = "compile.json"


class CompileConfig(Knobs):
    """How to compile; what is compiled, with which data and LM, is a `RunConfig`.

    There is no split to choose: training and validation questions are used, and no others.
    """

    optimizer: str = Field("bootstrap", description="see `ragbench list optimizers`")
    preset: Literal["light", "medium", "heavy"] = Field("light", description="how much to spend")
    opt_set: dict[str, Any] = Field({}, description="knobs of the optimizer")
    metric: Literal["em", "f1"] = Field("f1", description="what candidates are scored by")
    train_limit: int | None = Field(50, ge=1, description="training questions; null for all")
    val_limit: int | None = Field(50, ge=1, description="validation questions; null for all")
    teacher: str | None = Field(None, description="LM spec that answers training questions")
    prompt_lm: str | None = Field(None, description="LM spec that writes instructions")
    optimizer_seed: int = Field(0, ge=0, description="seeds the optimizer")
    out: Path | None = Field(None, description="folder of the compiled program")


@dataclass(frozen=True)
class Plan:
    """All that a compile needs, checked, before anything is spent."""

    bench: Bench
    how: CompileConfig
    optimizer: Optimizer
    train: Sequence[dspy.Example]
    val: Sequence[dspy.Example]
    data: DataCard
    folder: Path
    prompt_lm: dspy.LM | None
    teacher: dspy.LM | None

    @property
    def size(self) -> Size:
        """What the optimizer's budget depends on."""
        return Size(len(self.bench.program.predictors()), len(self.train), len(self.val))

    def asked(self) -> dict[str, Any]:
        """What decides the result, JSON-ready: a folder holds one such compile."""
        return {
            "config": self.bench.config.identity(),
            "optimizer": {
                "name": self.optimizer.name,
                "preset": self.optimizer.preset,
                "knobs": self.optimizer.knobs.model_dump(mode="json"),
                "seed": self.how.optimizer_seed,
                "metric": self.how.metric,
            },
            "lms": {
                "student": self.bench.lm.model,
                "teacher": self.teacher.model if self.teacher else None,
                "prompt": self.prompt_lm.model if self.prompt_lm else None,
                "adapter": type(self.bench.adapter).__name__,
            },
            "data": self.data.model_dump(mode="json"),
        }


def plan(config: RunConfig, how: CompileConfig, *, like: Bench | None = None) -> Plan:
    """Check everything and put it together; asks no LM.

    Data and retriever are shared with `like` where that is of the same ones.

    Raises:
        RagbenchError: something the user can mend.
    """
    if config.compiled is not None:
        raise ConfigError("compile starts from a program as it is; leave --compiled out")
    if config.form or config.votes > 1:
        raise ConfigError("compile starts from a program as it is; leave form and votes out")
    optimizer = OPTIMIZERS.get(how.optimizer)(how.preset, **how.opt_set)
    folder = folder_of(config, how)
    config = _of_training(config, how)
    bench = build(config, like=like)
    val = _validation(bench.dataset, how.val_limit)
    train = bench.examples
    data = data_card(bench.dataset.name, bench.dataset.digest, train, val)
    made = Plan(
        bench=bench,
        how=how,
        optimizer=optimizer,
        train=train,
        val=val,
        data=data,
        folder=folder,
        prompt_lm=lm_of(config, how.prompt_lm) if how.prompt_lm else None,
        teacher=lm_of(config, how.teacher) if how.teacher else None,
    )
    optimizer.check(made.size)
    return made


def estimate(made: Plan, *, seconds_per_call: float | None = None) -> list[str]:
    """The budget in lines, before anything is spent; time and cost as far as they are known."""
    with made.bench.active():
        rehearsed = rehearse(made.bench.program, made.val[:3], made.bench.adapter, made.bench.lm)
    pricing = getattr(made.bench.lm, "pricing", None)
    return describe(
        made.optimizer, made.size, rehearsed, pricing=pricing, seconds_per_call=seconds_per_call
    )


def compile_program(
    config: RunConfig,
    how: CompileConfig,
    *,
    say: Say = print,
    like: Bench | None = None,
    on_prepare: OnPrepare | None = None,
) -> Path:
    """Compile, or continue a compile that was cut off, and return the artefact's folder.

    Data and retriever are shared with `like` where that is of the same ones.

    Raises:
        RagbenchError: something the user can mend.
    """
    made = plan(config, how, like=like)
    folder = RunDir(made.folder)
    with folder.locked():
        if _claim(made):
            say(f"{made.folder} is compiled already")
            return made.folder
        if not asks_servers(made.bench.retriever):  # it is free, and an estimate searches it
            made.bench.retriever.build(IndexStore(), on_prepare)
        for line in estimate(made):
            say(line)
        _check_lms(made)
        journal = CallJournal(made.folder / "work" / CALLS)
        if journal.attempt > 1:
            say(f"continuing (attempt {journal.attempt}): finished calls come from the cache")
        try:
            with journal.open() as ledger, made.bench.active():
                with dspy.context(**{SIDE_KEY: PREPARATION}):
                    made.bench.retriever.build(IndexStore(), on_prepare)
                    made.bench.program.prepare(on_prepare)
                outcome = _search(made, journal, say)
        except (RunError, LMError) as error:  # it may quote a provider, who may quote a key
            stop_if_refused(ledger, failed=True)
            raise RunError(redact(str(error))) from None
        stop_if_refused(ledger, failed=False)  # an optimizer may have gone on without a call
        _save(made, outcome, journal)
    say(f"compiled program: {made.folder}")
    return made.folder


@dataclass(frozen=True)
class Outcome:
    """What came out, with the scores before and after over the same validation questions."""

    found: Found
    before: Scores
    after: Scores
    seconds: float


def _search(made: Plan, journal: CallJournal, say: Say) -> Outcome:
    task = _task(made)
    start = time.perf_counter()
    with dspy.context(**{SIDE_KEY: "zero_shot"}):
        before = measure(made.bench.program, made.val, task)
    took = time.perf_counter() - start
    say(f"zero-shot on validation: {made.how.metric} {before.mean:.3f} ({_n(before)})")
    if before.failed == len(made.val):
        raise RunError(
            "every validation question failed, so nothing can be compiled; run the same program "
            "with `ragbench eval` to see why"
        )
    for line in describe_measured(
        made.optimizer,
        made.size,
        journal.as_if("zero_shot"),
        seconds=max(took, journal.as_if("zero_shot").latency_s / made.bench.config.workers),
    ):
        say(line)
    found = made.optimizer.compile(made.bench.program, task)
    with dspy.context(**{SIDE_KEY: "compiled"}):
        after = measure(found.program, made.val, task)
    say(f"compiled on validation:  {made.how.metric} {after.mean:.3f} ({_n(after)})")
    return Outcome(found, before, after, time.perf_counter() - start)


def _save(made: Plan, outcome: Outcome, journal: CallJournal) -> None:
    folder, bench = made.folder, made.bench
    shutil.rmtree(folder / "candidates", ignore_errors=True)
    rows = []
    for number, candidate in enumerate(outcome.found.candidates):
        name = f"candidates/{number:03d}.json"
        save_program(candidate.program, folder / name)
        rows.append({"file": name, "score": candidate.score, "note": candidate.note})
    for name, content in outcome.found.files.items():
        write_json(folder / name, content)
    digest = save_program(outcome.found.program, folder / PROGRAM)
    asked = made.asked()
    write_sidecar(
        folder,
        Sidecar(
            format=FORMAT,
            program=bench.program.name,
            variant=bench.program.knobs.variant,
            knobs=bench.program.knobs.model_dump(mode="json"),
            predictors=cards_of(outcome.found.program),
            program_sha256=digest,
            data=made.data,
            optimizer=asked["optimizer"],
            config=asked["config"],
            lms=asked["lms"],
            versions=versions(),
            scores=_scores(made, outcome),
            cost={"seconds": round(outcome.seconds, 3), **journal.to_dict()},
            inflation=_inflation(journal, len(made.val)),
            notes={**outcome.found.notes, "candidates": rows},
        ),
    )


def _scores(made: Plan, outcome: Outcome) -> dict[str, Any]:
    before, after = outcome.before.scores, outcome.after.scores
    interval = None
    if len(before) > 1:
        interval = asdict(paired_bootstrap(before, after, seed=made.how.optimizer_seed))
    return {
        "metric": made.how.metric,
        "split": "validation",
        "n": len(made.val),
        "zero_shot": {"mean": outcome.before.mean, "failed": outcome.before.failed},
        "compiled": {"mean": outcome.after.mean, "failed": outcome.after.failed},
        "difference": outcome.after.mean - outcome.before.mean,
        "interval": interval,
        # The optimizer chose by these very questions: only a held-out run tells what it gained.
        "selected_on_these_questions": True,
    }


def _inflation(journal: CallJournal, n: int) -> dict[str, Any]:
    before, after = journal.as_if("zero_shot"), journal.as_if("compiled")

    def each(totals: Totals) -> dict[str, float]:
        return {
            "prompt_tokens": totals.prompt_tokens / n,
            "completion_tokens": totals.completion_tokens / n,
            "calls": totals.calls / n,
        }

    ratio = after.tokens / before.tokens if before.tokens else None
    return {"per_question": {"zero_shot": each(before), "compiled": each(after)}, "ratio": ratio}


def _task(made: Plan) -> Task:
    return Task(
        train=made.train,
        val=made.val,
        scorer=make_scorer(made.how.metric),
        lm=made.bench.lm,
        log_folder=made.folder / "work",
        prompt_lm=made.prompt_lm,
        teacher=made.teacher,
        teacher_adapter=(
            make_adapter(made.bench.config.adapter, made.teacher) if made.teacher else None
        ),
        seed=made.how.optimizer_seed,
        workers=made.bench.config.workers,
    )


def _claim(made: Plan) -> bool:
    """Whether the folder holds the finished compile; marks it as this one's if it is new.

    Raises:
        RunError: it holds another compile.
    """
    asked, path = made.asked(), made.folder / ASKED
    if path.is_file():
        theirs = read_json(path)
        changed = [key for key in asked if theirs.get(key) != asked[key]]
        if changed:
            raise RunError(
                f"{made.folder} holds a compile with another {changed[0]}{_what(theirs, asked)}; "
                "give another --out"
            )
        return (made.folder / SIDECAR).is_file()
    if (made.folder / PROGRAM).exists() or (made.folder / SIDECAR).exists():
        raise RunError(f"{made.folder} has a program but no {ASKED}; give another --out")
    write_json(path, asked)
    return False


def _what(theirs: Any, asked: dict[str, Any]) -> str:
    for part in ("config", "optimizer", "lms"):
        old, new = theirs.get(part) or {}, asked[part]
        for key in new:
            if old.get(key) != new[key]:
                return f" ({key}={old.get(key)!r}, not {new[key]!r})"
    return ""


def _check_lms(made: Plan) -> None:
    made.bench.check_lms()
    for lm in (made.prompt_lm, made.teacher):
        if lm is not None:
            lm.check()


def _validation(dataset: Dataset, limit: int | None) -> Sequence[dspy.Example]:
    found = dataset.splits.get("validation", ())
    if not found:
        raise ConfigError(
            f"{dataset.name} has no validation questions, on which compiled programs are chosen"
        )
    return found[:limit]


def folder_of(config: RunConfig, how: CompileConfig) -> Path:
    """Where the compiled program goes."""
    return how.out or Path("compiled") / folder_name(_of_training(config, how), how)


def _of_training(config: RunConfig, how: CompileConfig) -> RunConfig:
    # The run's own fields for choosing questions are of no use here, so they must not count.
    return config.model_copy(update={"split": "train", "limit": how.train_limit, "out": None})


def folder_name(config: RunConfig, how: CompileConfig) -> str:
    """A name for what `how` makes of `config`, which everything that decides it decides."""
    given = how.model_dump(mode="json", exclude={"out"})
    whole = config.model_copy(update={"set": {**config.set, "_compile": given}, "out": None})
    stem = whole.folder().name.removeprefix(f"{config.program}-")
    return f"{config.program}-{how.optimizer}-{stem}".replace("-train-", "-")


def _n(scores: Scores) -> str:
    failed = f", {scores.failed} failed" if scores.failed else ""
    return f"{len(scores.scores)} questions{failed}"
