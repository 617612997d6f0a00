"""Compiling: from a config and an optimizer to a compiled program on disk.

What is to be compiled is checked before anything is spent (`make_plan`). Then: state the budget,
score the program as it is on the validation questions, search, score what was found on the same
questions, save. A compile that was killed is continued by giving it again: finished calls come from
the cache, so it takes the same path to the same program.
"""

import functools
import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import dspy
from dspy import LMError

from ragbench import optimizers
from ragbench.context import current, use
from ragbench.data import for_optimizer
from ragbench.errors import ConfigError, RunError
from ragbench.experiments import artifacts, estimates, store
from ragbench.experiments.config import (
    CompileConfig,
    RunConfig,
    compiled_digest,
    plain_name,
    server_of,
)
from ragbench.experiments.runs.context import (
    RunContext,
    asks_servers,
    build,
    lm_of,
    stop_if_refused,
)
from ragbench.experiments.watch import SILENT, Watch
from ragbench.ledger import Side
from ragbench.lms.adapters import make_adapter
from ragbench.metrics import corrected_best, mean_interval, paired_interval, usable_clusters
from ragbench.ranges import Range
from ragbench.redact import redact
from ragbench.retrievers import IndexStore

#: Called with one line at a time of what a person should see.
OnMessage = Callable[[str], None]
#: What a compile was asked for; its presence without a sidecar marks an unfinished compile.
ASKED = "compile.json"
#: Tokens that one demonstration adds beside its passages: question, answer and markers.
_DEMO_OVERHEAD = 80


@dataclass(frozen=True)
class Plan:
    """All that a compile needs, checked, before anything is spent."""

    run_context: RunContext
    settings: CompileConfig
    optimizer: optimizers.Optimizer
    train: Sequence[dspy.Example]
    val: Sequence[dspy.Example]
    data: artifacts.DataCard
    folder: Path
    prompt_lm: dspy.LM | None
    teacher: dspy.LM | None

    @property
    def size(self) -> optimizers.Size:
        """What the optimizer's budget depends on."""
        return optimizers.Size(
            len(self.run_context.program.predictors()), len(self.train), len(self.val)
        )

    def asked(self) -> dict[str, Any]:
        """Everything that decides the result, JSON-ready; a folder holds one such compile."""
        scorer = optimizers.make_scorer(self.settings.optimizer_metric)
        return {
            "config": self.run_context.config.identity(),
            "optimizer": {
                "name": self.optimizer.name,
                "preset": self.optimizer.preset,
                "knobs": self.optimizer.knobs.model_dump(mode="json"),
                "seed": self.settings.optimizer_seed,
                "metric": self.settings.optimizer_metric,
                **(
                    {"metric_sha256": scorer.digest}
                    if isinstance(scorer, optimizers.OwnMetric)
                    else {}
                ),
            },
            "lms": {
                "student": self.run_context.lm.model,
                "teacher": self.teacher.model if self.teacher else None,
                "prompt": self.prompt_lm.model if self.prompt_lm else None,
                "adapter": type(self.run_context.adapter).__name__,
            },
            "data": self.data.model_dump(mode="json"),
        }


def make_plan(
    config: RunConfig, settings: CompileConfig, *, like: RunContext | None = None
) -> Plan:
    """Check everything and put it together; asks no LM.

    Data and retriever are shared with `like` where that is of the same ones.
    """
    if config.compiled is not None:
        raise ConfigError("compile starts from a program as it is; leave --compiled out")
    if config.policy is not None:
        raise ConfigError("a router has no prompts of its own to compile; leave --policy out")
    if config.form or config.votes > 1:
        raise ConfigError("compile starts from a program as it is; leave form and votes out")
    optimizer = optimizers.OPTIMIZERS.get(settings.optimizer)(settings.preset, **settings.opt_set)
    scorer = optimizers.make_scorer(settings.optimizer_metric)
    folder = compile_folder(config, settings)
    config = _of_training(config, settings)
    run_context = build(config, like=like)
    val = run_context.dataset.splits.get("validation", ())[: settings.val_limit]
    if not val:
        raise ConfigError(
            f"{run_context.dataset.name} has no validation questions, on which compiled programs "
            "are chosen"
        )
    if isinstance(scorer, optimizers.OwnMetric):
        scorer.check(for_optimizer(val)[0])
    train = run_context.examples
    data = artifacts.data_card(run_context.dataset.name, run_context.dataset.digest, train, val)
    plan = Plan(
        run_context=run_context,
        settings=settings,
        optimizer=optimizer,
        train=train,
        val=val,
        data=data,
        folder=folder,
        prompt_lm=lm_of(config, settings.prompt_lm) if settings.prompt_lm else None,
        teacher=lm_of(config, settings.teacher) if settings.teacher else None,
    )
    optimizer.check(plan.size)
    return plan


def claim(plan: Plan) -> bool:
    """Whether the folder holds this compile, finished; it is marked where new, else refused."""
    asked, path = plan.asked(), plan.folder / ASKED
    if store.is_claimed(path, asked, "a compile"):
        return (plan.folder / artifacts.SIDECAR).is_file()
    if (plan.folder / artifacts.PROGRAM).exists() or (plan.folder / artifacts.SIDECAR).exists():
        raise RunError(f"{plan.folder} has a program but no {ASKED}; give another --out")
    store.write_json(path, asked)
    return False


def compile_folder(config: RunConfig, settings: CompileConfig) -> Path:
    """Where the compiled program goes."""
    return settings.out or Path("compiled") / folder_name(_of_training(config, settings), settings)


def _of_training(config: RunConfig, settings: CompileConfig) -> RunConfig:
    # The run's own fields for choosing questions are of no use here, so they must not count.
    return config.but(split="train", limit=settings.train_limit, out=None)


def folder_name(config: RunConfig, settings: CompileConfig) -> str:
    """The folder name of a compile: program, optimizer, and a hash of all that decides it."""
    optimizer = optimizers.OPTIMIZERS.get(settings.optimizer)(settings.preset, **settings.opt_set)
    asked = settings.model_dump(mode="json", exclude={"out"})
    asked["opt_set"] = optimizer.knobs.model_dump(mode="json")
    for name in ("teacher", "prompt_lm"):
        asked[name] = server_of(asked[name]) if asked[name] else None
    program = plain_name(config.program)
    stem = config.name(asked).removeprefix(f"{program}-")
    return f"{program}-{settings.optimizer}-{stem}".replace("-train-", "-")


def estimate_compile(plan: Plan) -> estimates.Estimate:
    """What the compile takes, the scores before and after included; asks no server.

    Calls and tokens of a run are those of the rehearsal; the upper bounds have every demonstration
    that the optimizer may add to each call.
    """
    optimizer, size = plan.optimizer, plan.size
    search, both = optimizer.estimate(size), Range.exactly(2 * size.n_val)  # before it and after
    budget = optimizers.Budget(search.teacher_runs, search.student_runs + both, search.prompt_calls)
    retry, runs, prompts = estimates.most_tries(plan.run_context), budget.runs, budget.prompt_calls
    run = estimates.rehearse_questions(plan.run_context, plan.val)
    calls = Range(round(run.low.calls), round(run.high.calls))
    names = ("bootstrapped", "labeled", "demos", "k")
    most = max((int(getattr(optimizer.knobs, name, 0)) for name in names), default=0)
    a_demo = int(optimizer.knobs.demo_context_tokens) + _DEMO_OVERHEAD if most else 0
    tokens = calls.high * most * a_demo
    price = plan.run_context.lm.pricing.cost(tokens, 0)
    demos = estimates.Spend(tokens=tokens, cost=math.inf if price is None else price)
    notes = [
        f"program runs: {runs}: {optimizer.formula} to compile, 2 x V to score before and after",
        f"LM calls of one run: {calls}",
    ]
    if retry > 1:
        notes.append(estimates.ASKED_TWICE)
    if prompts != Range():
        notes.append(f"tokens and cost are without those of {prompts} calls that write "
                     "instructions")  # fmt: skip
    title = (
        f"{optimizer.name} ({optimizer.preset}): {size.n_train} training and {size.n_val} "
        f"validation questions, {size.n_predictors} predictor{'s' * (size.n_predictors != 1)}"
    )
    longest = replace(run, high=estimates.each_of(sum, (run.high, demos)))
    programs = longest.times(runs.low, (runs.low + runs.high) / 2, runs.high, tries=retry)
    middle = estimates.Spend((prompts.low + prompts.high) / 2)
    written = estimates.Estimate(
        "", estimates.Spend(prompts.low), middle, estimates.Spend(prompts.high)
    )
    return estimates.in_all(title, [programs, written], notes)


def compile_program(
    config: RunConfig,
    settings: CompileConfig,
    *,
    on_message: OnMessage = print,
    like: RunContext | None = None,
    watch: Watch = SILENT,
) -> Path:
    """Compile, or continue a compile that was cut off, and return the artefact's folder.

    Data and retriever are shared with `like` where that is of the same ones.
    """
    plan = make_plan(config, settings, like=like)
    with store.locked(plan.folder):
        if claim(plan):
            on_message(f"{plan.folder} is compiled already")
            return plan.folder
        if not asks_servers(plan.run_context.retriever):  # it is free, and an estimate searches it
            plan.run_context.retriever.build(IndexStore(), watch.prepare)
        try:
            expected = estimate_compile(plan).lines()
        except RunError as error:
            expected = [f"no estimate: {error}"]
        for line in expected:
            on_message(line)
        plan.run_context.check_lms()
        for what, lm in (("the prompt LM", plan.prompt_lm), ("the teacher", plan.teacher)):
            if lm is not None:
                lm.check(what)
        journal = store.CallJournal(plan.folder / "work" / store.CALLS)
        if journal.attempt > 1:
            on_message(
                f"continuing (attempt {journal.attempt}): finished calls come from the cache"
            )
        ledger = None
        try:
            with journal.open() as ledger, plan.run_context.active():
                with use(current().plus(Side(store.PREPARATION_SIDE))):
                    plan.run_context.retriever.build(IndexStore(), watch.prepare)
                    questions = (*plan.train, *plan.val)
                    ahead = [example.question for example in questions]
                    plan.run_context.program.prepare(ahead, watch.prepare)
                outcome = _search(plan, on_message, watch)
        except (RunError, LMError) as error:  # it may quote a provider, who may quote a key
            if ledger is not None:
                stop_if_refused(ledger, failed=True)
            raise RunError(redact(str(error))) from None
        stop_if_refused(ledger, failed=False)  # an optimizer may have gone on without a call
        _save(plan, outcome, journal)
    programs = (plan.run_context.program, outcome.result.program)
    before, after = ([p.dump_state() for _, p in one.named_predictors()] for one in programs)
    if before == after and not outcome.result.files:
        on_message(
            "note: nothing was learned: no demonstration was found and no instruction changed, so "
            "the compiled program is the plain one; give more training questions (--train-limit) "
            "or another --metric"
        )
    on_message(f"compiled program: {plan.folder}")
    return plan.folder


@dataclass(frozen=True)
class Outcome:
    """The result of a compile; scores before and after are on the same validation questions."""

    result: optimizers.SearchResult
    before: optimizers.Scores
    after: optimizers.Scores
    seconds: float


def _search(plan: Plan, on_message: OnMessage, watch: Watch) -> Outcome:
    config = plan.run_context.config
    metric = plan.settings.optimizer_metric
    task = optimizers.Task(
        train=plan.train,
        val=plan.val,
        scorer=optimizers.make_scorer(plan.settings.optimizer_metric),
        lm=plan.run_context.lm,
        log_folder=plan.folder / "work",
        prompt_lm=plan.prompt_lm,
        teacher=plan.teacher,
        teacher_adapter=make_adapter(config.adapter, plan.teacher) if plan.teacher else None,
        seed=plan.settings.optimizer_seed,
        workers=config.workers,
    )
    start = time.perf_counter()
    with use(current().plus(Side("zero_shot"))):
        before = optimizers.measure(plan.run_context.program, plan.val, task)
    on_message(f"zero-shot on validation: {metric} {before.mean:.3f} ({_n(before)})")
    if before.failed == len(plan.val):
        raise RunError(
            "every validation question failed, so nothing can be compiled; run the same program "
            "with `ragbench eval` to see why"
        )
    runs, numbers = plan.optimizer.estimate(plan.size).runs, itertools.count(1)

    @functools.wraps(task.scorer)
    def counted(example: dspy.Example, prediction: Any) -> float:
        watch.count("program runs", next(numbers), runs.high)
        return task.scorer(example, prediction)

    result = plan.optimizer.compile(plan.run_context.program, replace(task, scorer=counted))
    with use(current().plus(Side("compiled"))):
        after = optimizers.measure(result.program, plan.val, task)
    on_message(f"compiled on validation:  {metric} {after.mean:.3f} ({_n(after)})")
    return Outcome(result, before, after, time.perf_counter() - start)


def _save(plan: Plan, outcome: Outcome, journal: store.CallJournal) -> None:
    folder, run_context = plan.folder, plan.run_context
    for name, content in outcome.result.files.items():
        store.write_json(folder / name, content)
    artifacts.save_program(outcome.result.program, folder / artifacts.PROGRAM)
    asked = plan.asked()
    artifacts.write_sidecar(
        folder,
        artifacts.Sidecar(
            format=artifacts.FORMAT,
            program=run_context.program.name,
            variant=run_context.program.knobs.variant,
            knobs=run_context.program.knobs.model_dump(mode="json"),
            predictors=artifacts.fields_of(outcome.result.program),
            program_sha256=compiled_digest(folder, outcome.result.files),
            files=sorted(outcome.result.files),
            data=plan.data,
            optimizer=asked["optimizer"],
            config=asked["config"],
            given=run_context.config.sources(),
            lms=asked["lms"],
            versions=artifacts.versions(),
            scores=_scores(plan, outcome),
            cost={"seconds": round(outcome.seconds, 3), **journal.to_dict()},
            notes=dict(outcome.result.notes),
        ),
    )


def _scores(plan: Plan, outcome: Outcome) -> dict[str, Any]:
    before, after, n = outcome.before.scores, outcome.after.scores, len(plan.val)
    clusters = usable_clusters([str(example.get("cluster") or "") for example in plan.val])
    interval = paired_interval(before, after, clusters=clusters)
    candidates = [candidate.scores for candidate in outcome.result.candidates]
    corrected = {}  # the best without the luck of being chosen, where all scores are known
    units = len(set(clusters)) if clusters else n
    if min(len(candidates), units) > 1 and all(len(scores) == n for scores in candidates):
        corrected = {"corrected": asdict(corrected_best(candidates, clusters=clusters))}
    return {
        "metric": plan.settings.optimizer_metric,
        "split": "validation",
        "n": n,
        "zero_shot": _scored(outcome.before, clusters),
        "compiled": _scored(outcome.after, clusters),
        "difference": outcome.after.mean - outcome.before.mean,
        "interval": asdict(interval) if interval else None,
        # The optimizer chose by these very questions: only a held-out run tells what it gained.
        "selected_on_these_questions": True,
        **corrected,
    }


def _scored(scores: optimizers.Scores, clusters: Sequence[str] | None) -> dict[str, Any]:
    interval = mean_interval(scores.scores, (0.0, 1.0), clusters)
    return {
        "mean": scores.mean,
        "failed": scores.failed,
        "interval": asdict(interval) if interval else None,
    }


def _n(scores: optimizers.Scores) -> str:
    failed = f", {scores.failed} failed" if scores.failed else ""
    ends = mean_interval(scores.scores, (0.0, 1.0))
    interval = f"95 % interval [{ends.low:.3f}, {ends.high:.3f}], " if ends else ""
    return f"{interval}{len(scores.scores)} questions{failed}"
