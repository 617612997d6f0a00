"""`compile_program`: from a config and an optimizer to a compiled program on disk.

The order is: state the budget, score the program as it is on the validation questions, search,
score what was found on the same questions, save. A compile that was killed is continued by giving
it again: finished calls come from the cache, so it takes the same path to the same program.
"""

import itertools
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import dspy
from dspy import LMError

from ragbench.context import current, use
from ragbench.errors import RunError
from ragbench.experiments.artifacts import (
    FORMAT,
    PROGRAM,
    Sidecar,
    cards_of,
    save_program,
    versions,
    write_sidecar,
)
from ragbench.experiments.compile.planning import Plan, claim, estimate_compile, make_plan
from ragbench.experiments.config import CompileConfig, RunConfig, compiled_digest
from ragbench.experiments.estimates import duration
from ragbench.experiments.runs import OnPrepare, RunContext, asks_servers, stop_if_refused
from ragbench.experiments.store import CALLS, PREPARATION_SIDE, CallJournal, locked, write_json
from ragbench.lms.adapters import make_adapter
from ragbench.metrics import corrected_best, mean_interval, paired_interval, usable_clusters
from ragbench.optimizers import Scores, SearchResult, StandIn, Task, make_scorer, measure
from ragbench.ranges import Range
from ragbench.redact import redact
from ragbench.retrievers import IndexStore

#: Called with one line at a time of what a person should see.
OnMessage = Callable[[str], None]
#: The score of a prediction, in [0, 1].
Scorer = Callable[[dspy.Example, Any], float]


def compile_program(
    config: RunConfig,
    settings: CompileConfig,
    *,
    on_message: OnMessage = print,
    like: RunContext | None = None,
    on_prepare: OnPrepare | None = None,
) -> Path:
    """Compile, or continue a compile that was cut off, and return the artefact's folder.

    Data and retriever are shared with `like` where that is of the same ones.
    """
    plan = make_plan(config, settings, like=like)
    with locked(plan.folder):
        if claim(plan):
            on_message(f"{plan.folder} is compiled already")
            return plan.folder
        if not asks_servers(plan.run_context.retriever):  # it is free, and an estimate searches it
            plan.run_context.retriever.build(IndexStore(), on_prepare)
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
        journal = CallJournal(plan.folder / "work" / CALLS)
        if journal.attempt > 1:
            on_message(
                f"continuing (attempt {journal.attempt}): finished calls come from the cache"
            )
        ledger = None
        try:
            with journal.open() as ledger, plan.run_context.active():
                with use(replace(current(), side=PREPARATION_SIDE)):
                    plan.run_context.retriever.build(IndexStore(), on_prepare)
                    questions = (*plan.train, *plan.val)
                    ahead = tuple(example.question for example in questions)
                    with use(replace(current(), ahead=ahead)):
                        plan.run_context.program.prepare(on_prepare)
                outcome = _search(plan, journal, on_message)
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

    result: SearchResult
    before: Scores
    after: Scores
    seconds: float


def _search(plan: Plan, journal: CallJournal, on_message: OnMessage) -> Outcome:
    config = plan.run_context.config
    task = Task(
        train=plan.train,
        val=plan.val,
        scorer=make_scorer(plan.settings.metric),
        lm=plan.run_context.lm,
        log_folder=plan.folder / "work",
        prompt_lm=plan.prompt_lm,
        teacher=plan.teacher,
        teacher_adapter=make_adapter(config.lm.adapter, plan.teacher) if plan.teacher else None,
        seed=plan.settings.optimizer_seed,
        workers=config.workers,
    )
    start = time.perf_counter()
    with use(replace(current(), side="zero_shot")):
        before = measure(plan.run_context.program, plan.val, task)
    on_message(f"zero-shot on validation: {plan.settings.metric} {before.mean:.3f} ({_n(before)})")
    if before.failed == len(plan.val):
        raise RunError(
            "every validation question failed, so nothing can be compiled; run the same program "
            "with `ragbench eval` to see why"
        )
    runs = plan.optimizer.estimate(plan.size).runs
    scorer = StandIn(_counted(task.scorer, runs, on_message), task.scorer)
    result = plan.optimizer.compile(plan.run_context.program, replace(task, scorer=scorer))
    with use(replace(current(), side="compiled")):
        after = measure(result.program, plan.val, task)
    on_message(f"compiled on validation:  {plan.settings.metric} {after.mean:.3f} ({_n(after)})")
    return Outcome(result, before, after, time.perf_counter() - start)


def _counted(scorer: Scorer, runs: Range, on_message: OnMessage) -> Scorer:
    """`scorer`, which says after every tenth of the program's expected `runs` how far it came."""
    numbers, start = itertools.count(1), time.monotonic()

    def counted(example: dspy.Example, prediction: Any) -> float:
        score = scorer(example, prediction)
        done = next(numbers)
        if done % max(1, runs.high // 10) == 0:
            left = (time.monotonic() - start) / done * max(0, runs.high - done)
            on_message(f"  {done} of {runs} program runs, at most {duration(left)} left")
        return score

    return counted


def _save(plan: Plan, outcome: Outcome, journal: CallJournal) -> None:
    folder, run_context = plan.folder, plan.run_context
    shutil.rmtree(folder / "candidates", ignore_errors=True)
    rows = []
    for number, candidate in enumerate(outcome.result.candidates):
        name = f"candidates/{number:03d}.json"
        save_program(candidate.program, folder / name)
        rows.append({"file": name, "score": candidate.score, "note": candidate.note})
    for name, content in outcome.result.files.items():
        write_json(folder / name, content)
    save_program(outcome.result.program, folder / PROGRAM)
    asked = plan.asked()
    write_sidecar(
        folder,
        Sidecar(
            format=FORMAT,
            program=run_context.program.name,
            variant=run_context.program.knobs.variant,
            knobs=run_context.program.knobs.model_dump(mode="json"),
            predictors=cards_of(outcome.result.program),
            program_sha256=compiled_digest(folder, outcome.result.files),
            files=sorted(outcome.result.files),
            data=plan.data,
            optimizer=asked["optimizer"],
            config=asked["config"],
            given=run_context.config.sources(),
            lms=asked["lms"],
            versions=versions(),
            scores=_scores(plan, outcome),
            cost={"seconds": round(outcome.seconds, 3), **journal.to_dict()},
            inflation=_inflation(journal, len(plan.val)),
            notes={**outcome.result.notes, "candidates": rows},
        ),
    )


def _scores(plan: Plan, outcome: Outcome) -> dict[str, Any]:
    before, after, n = outcome.before.scores, outcome.after.scores, len(plan.val)
    clusters = usable_clusters([str(example.get("cluster") or "") for example in plan.val])
    interval = paired_interval(before, after, clusters=clusters)
    candidates = [candidate.scores for candidate in outcome.result.candidates]
    corrected = {}  # the best without the luck of being chosen, where all scores are known
    if min(len(candidates), n) > 1 and all(len(scores) == n for scores in candidates):
        corrected = {"corrected": asdict(corrected_best(candidates))}
    return {
        "metric": plan.settings.metric,
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


def _scored(scores: Scores, clusters: Sequence[str] | None) -> dict[str, Any]:
    interval = mean_interval(scores.scores, (0.0, 1.0), clusters)
    return {
        "mean": scores.mean,
        "failed": scores.failed,
        "interval": asdict(interval) if interval else None,
    }


def _inflation(journal: CallJournal, n: int) -> dict[str, Any]:
    sides = {side: journal.as_if(side) for side in ("zero_shot", "compiled")}
    names = ("prompt_tokens", "completion_tokens", "calls")
    before, after = (totals.tokens for totals in sides.values())
    return {
        "per_question": {
            side: {name: getattr(totals, name) / n for name in names}
            for side, totals in sides.items()
        },
        "ratio": after / before if before else None,
    }


def _n(scores: Scores) -> str:
    failed = f", {scores.failed} failed" if scores.failed else ""
    ends = mean_interval(scores.scores, (0.0, 1.0))
    interval = f"95 % interval [{ends.low:.3f}, {ends.high:.3f}], " if ends else ""
    return f"{interval}{len(scores.scores)} questions{failed}"
