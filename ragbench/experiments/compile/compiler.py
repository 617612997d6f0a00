"""`compile_program`: from a config and an optimizer to a compiled program on disk.

The order is: state the budget, score the program as it is on the validation questions, search,
score what was found on the same questions, save. A compile that was killed is continued by giving
it again: finished calls come from the cache, so it takes the same path to the same program.
"""

import shutil
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import dspy
from dspy import LMError

from ragbench.context import current, use
from ragbench.dspy_private import private
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
from ragbench.experiments.compile.budget import estimate_compile, rest_of_budget
from ragbench.experiments.compile.planning import Plan, claim, make_plan
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
        for line in _expected(plan):
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


def _expected(plan: Plan) -> list[str]:
    try:
        return estimate_compile(plan).lines()
    except RunError as error:
        return [f"no estimate: {error}"]


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
    took = time.perf_counter() - start
    on_message(f"zero-shot on validation: {plan.settings.metric} {before.mean:.3f} ({_n(before)})")
    if before.failed == len(plan.val):
        raise RunError(
            "every validation question failed, so nothing can be compiled; run the same program "
            "with `ragbench eval` to see why"
        )
    for line in rest_of_budget(
        plan.optimizer,
        plan.size,
        journal.as_if("zero_shot"),
        seconds=max(took, journal.as_if("zero_shot").latency_s / config.workers),
    ):
        on_message(line)
    runs = plan.optimizer.estimate(plan.size).runs
    metric, n_val = plan.settings.metric, len(plan.val)
    progress = SearchProgress(on_message, task.scorer, metric=metric, runs=runs, n_val=n_val)
    callbacks = [*dspy.settings.callbacks, progress]
    with dspy.context(callbacks=callbacks):
        watched = replace(task, scorer=StandIn(progress.scorer, task.scorer))
        result = plan.optimizer.compile(plan.run_context.program, watched)
    with use(replace(current(), side="compiled")):
        after = measure(result.program, plan.val, task)
    on_message(f"compiled on validation:  {plan.settings.metric} {after.mean:.3f} ({_n(after)})")
    return Outcome(result, before, after, time.perf_counter() - start)


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


_Callback: Any = private("dspy.utils.callback.BaseCallback", "compile")


class SearchProgress(_Callback):
    """Tells of each candidate that DSPy evaluates, and of optimizers that evaluate by themselves.

    `runs` is what the optimizer is expected to take; `scorer` must stand in the place of its own.
    """

    def __init__(
        self,
        on_message: OnMessage,
        scorer: Callable[[dspy.Example, Any], float],
        *,
        metric: str,
        runs: Range,
        n_val: int,
    ) -> None:
        self._on_message, self._scorer, self._metric, self._runs = on_message, scorer, metric, runs
        self._n_val = n_val
        self._lock = threading.Lock()
        self._start = time.monotonic()
        self._done = self._told = self._candidates = 0
        self._best: float | None = None

    def scorer(self, example: dspy.Example, prediction: Any) -> float:
        """The scorer, counting the program's runs."""
        score = self._scorer(example, prediction)
        with self._lock:
            self._done += 1
            if self._done - self._told >= max(1, self._runs.high // 10):  # ten lines at the least
                self._tell("searching")
        return score

    def on_evaluate_end(
        self, call_id: str, outputs: Any | None, exception: BaseException | None = None
    ) -> None:
        """Count a candidate in; those scored on a part of the questions are not the best."""
        if outputs is None:
            return
        with self._lock:
            self._candidates += 1
            score, n = float(outputs.score) / 100, len(outputs.results)
            if n >= self._n_val and (self._best is None or score > self._best):
                self._best = score
            self._tell(f"candidate {self._candidates}: {self._metric} {score:.3f} on {n} questions")

    def _tell(self, message: str) -> None:
        self._told = self._done
        best = "" if self._best is None else f"; best {self._best:.3f}"
        left = max(0, self._runs.high - self._done)
        took = time.monotonic() - self._start
        rest = f", at most {duration(took / self._done * left)} left" if self._done else ""
        self._on_message(f"  {message}{best}; {self._done} of {self._runs} program runs{rest}")
