"""Compiling: from a config and an optimizer to a compiled program on disk.

`plans` checks everything before anything is spent. The steps are: print the budget, score the
uncompiled program on the validation questions, search, score the result on the same questions, and
save. The same command continues an interrupted compile: finished calls come from the cache, so the
search takes the same path to the same program.
"""

import itertools
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from dspy import LMError

from ragbench import optimizers
from ragbench.context import current, use
from ragbench.errors import RunError
from ragbench.experiments import artifacts, outcomes, store
from ragbench.experiments.config import CompileConfig, RunConfig
from ragbench.experiments.estimates import LEAST, EstimatedUsage, estimate_compile, question_cost
from ragbench.experiments.outcomes import Outcome
from ragbench.experiments.plans import Plan, claim, make_plan
from ragbench.experiments.progress import SILENT, Forecast, ProgressListener
from ragbench.experiments.runs.context import RunContext, stop_if_refused
from ragbench.experiments.runs.reuse import reuse_line
from ragbench.ledger import CompilePhase, OpenLedger
from ragbench.lms.calls import room
from ragbench.optimizers.students import CallLimitExceededError
from ragbench.programs.core.indexed import prepare_all
from ragbench.programs.external import adapter_of
from ragbench.record import total
from ragbench.redact import redact
from ragbench.retrievers import IndexStore

#: Receiver of one output line at a time.
OnMessage = Callable[[str], None]
#: Program runs after which an optimizer of unknown cost is ended: for each call that is left of a
#: limit, most of them from the cache, or without a limit for each question.
_RUNS_A_CALL = 20
_RUNS_A_QUESTION = 50


def compile_program(
    config: RunConfig,
    settings: CompileConfig,
    *,
    on_message: OnMessage = print,
    like: RunContext | None = None,
    watch: ProgressListener = SILENT,
) -> Path:
    """Compile a program, or continue an interrupted compile.

    Args:
        config: Config of the run.
        settings: Settings of the compile.
        on_message: Function that receives messages.
        like: Context whose data and retriever are reused if they are the same.
        watch: Listener of progress.

    Returns:
        The folder of the compiled program.
    """
    plan = make_plan(config, settings, like=like)
    with store.locked(plan.folder):
        if claim(plan):
            written = (plan.folder / artifacts.SIDECAR).stat().st_mtime
            also = (settings.optimizer, settings.optimizer_metric)
            line = reuse_line(config, "the compiled program", written, *also)
            on_message(line or f"{plan.folder} is compiled already")
            return plan.folder
        budget = plan.optimizer.estimate(plan.size)
        for line in estimate_compile(plan).lines():
            on_message(line)
        plan.run_context.check_lms()
        for role, lm in (("the prompt LM", plan.prompt_lm), ("the teacher", plan.teacher)):
            if lm is not None:
                lm.check(role)
        journal = store.CallJournal(plan.folder / "work" / store.CALLS)
        if journal.attempt > 1:
            on_message(
                f"continuing (attempt {journal.attempt}): finished calls come from the cache"
            )
        ledger = None
        try:
            with journal.open() as ledger, plan.run_context.active():
                with use(current().plus(CompilePhase(store.PREPARATION_SIDE))):
                    progress = Forecast(watch, ledger.calls)
                    plan.run_context.retriever.build(IndexStore(), progress)
                    questions = (*plan.train, *plan.val)
                    ahead = [example.question for example in questions]
                    prepare_all(plan.run_context.program, ahead, progress)
                outcome = _search(plan, budget, ledger, on_message, watch)
        except (RunError, LMError) as error:  # it may quote a provider, who may quote a key
            if ledger is not None:
                stop_if_refused(ledger, failed=True)
            raise RunError(redact(str(error))) from None
        stop_if_refused(ledger, failed=False)  # an optimizer may have gone on without a call
        outcomes.save(plan, outcome, journal)
    for line in outcomes.outcome_sentences(plan, outcome):
        on_message(line)
    on_message(f"compiled program: {plan.folder}")
    return plan.folder


def _search(
    plan: Plan,
    budget: optimizers.Budget | None,
    ledger: OpenLedger,
    on_message: OnMessage,
    watch: ProgressListener,
) -> Outcome:
    config = plan.run_context.config
    metric = plan.settings.optimizer_metric
    numbers = itertools.count(1)
    if budget is not None:
        most = budget.runs.high
    elif math.isinf(room().calls):
        most = _RUNS_A_QUESTION * (len(plan.train) + len(plan.val))
    else:  # calls that the cache answers are not limited
        most = _RUNS_A_CALL * int(room().calls)

    def on_run() -> None:
        number = next(numbers)
        if budget is None and number > most:
            raise CallLimitExceededError(
                f"optimizer {plan.optimizer.name} does not end: it ran the program {most:,} times"
            )
        watch.count("program runs", number, max(most, number))

    teacher_adapter = None
    if plan.teacher is not None:
        teacher_adapter = adapter_of(plan.run_context.program, config.adapter, plan.teacher)
    task = optimizers.Task(
        train=plan.train,
        val=plan.val,
        scorer=optimizers.make_scorer(metric),
        lm=plan.run_context.lm,
        log_folder=plan.folder / "work",
        prompt_lm=plan.prompt_lm,
        teacher=plan.teacher,
        teacher_adapter=teacher_adapter,
        seed=plan.settings.optimizer_seed,
        workers=config.workers,
        on_run=on_run,
    )
    start = time.perf_counter()
    with use(current().plus(CompilePhase("zero_shot"))):
        before = _measure_first(plan, task, ledger, on_message)
    words = outcomes.in_words(before, plan)
    on_message(f"zero-shot on validation: {metric} {before.mean:.3f} ({words})")
    if before.failed == len(plan.val):
        raise RunError(
            "every validation question failed, so nothing can be compiled; run the same program "
            "with `ragbench eval` to see why"
        )
    result = plan.optimizer.compile(plan.run_context.program, task)
    with use(current().plus(CompilePhase("compiled"))):
        after = optimizers.measure(result.program, plan.val, task)
    words = outcomes.in_words(after, plan)
    on_message(f"compiled on validation:  {metric} {after.mean:.3f} ({words})")
    return outcomes.judge(plan, Outcome(result, before, after, time.perf_counter() - start))


def _measure_first(
    plan: Plan, task: optimizers.Task, ledger: OpenLedger, on_message: OnMessage
) -> optimizers.Scores:
    """Score the uncompiled program, and print the cost of the compile after three questions."""
    program = plan.run_context.program
    spends = []
    scores: list[float] = []
    failed = 0
    for example in plan.val[:LEAST]:
        begun = len(ledger.calls)
        single = optimizers.measure(program, [example], task)
        scores += single.scores
        failed += single.failed
        spent = total(ledger.calls[begun:])
        price = math.inf if spent.cost_usd is None else spent.cost_usd
        spends.append(EstimatedUsage(spent.calls, spent.all_tokens, price, spent.latency_s))
    if len(spends) == LEAST:
        cost = replace(question_cost(plan.run_context), measured=spends, threads=1)
        on_message(f"measured on {LEAST} validation questions:")
        for line in estimate_compile(plan, cost).lines():
            on_message(line)
    if len(plan.val) <= LEAST:
        return optimizers.Scores(tuple(scores), failed)
    remaining = optimizers.measure(program, plan.val[LEAST:], task)
    return optimizers.Scores((*scores, *remaining.scores), failed + remaining.failed)
