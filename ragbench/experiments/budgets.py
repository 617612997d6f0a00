"""What a compile will spend: by the optimizer's own formula, or by a rehearsal of the optimizer.

A stranger's optimizer has no formula. It is run with made-up answers and replies over the questions
it will have, which counts what it asks for: where all answers are right, where none is, and where
half are. Where that fails, or takes too long, what it will spend is unknown, and a limit is asked
for.
"""

import math
import random
import tempfile
import time
import zlib
from dataclasses import replace
from pathlib import Path

import dspy

from ragbench import optimizers
from ragbench.errors import ConfigError, RunError, StopSignal
from ragbench.experiments import estimates
from ragbench.experiments.plans import Plan
from ragbench.lms.adapters import calls_of_reply
from ragbench.lms.calls import room
from ragbench.programs.core import RAGProgram
from ragbench.ranges import Range

#: Tokens that one demonstration adds beside its passages: question, answer and markers.
_DEMO_OVERHEAD = 80
#: Program runs and seconds after which a rehearsal is given up.
_MOST_RUNS, _MOST_SECONDS = 20_000, 10.0
#: Shares of made-up answers that are right.
_RIGHT = (0.0, 0.5, 1.0)


def budget_of(plan: Plan) -> optimizers.Budget | None:
    """What the search will spend, by formula or rehearsal; None where neither says it."""
    return plan.optimizer.estimate(plan.size) or rehearsed(plan)


def check_limit(plan: Plan) -> None:
    """Do nothing if calls are limited.

    Raises:
        ConfigError: they are not, and what the compile will spend is not known.
    """
    if math.isinf(room().calls):
        raise ConfigError(
            f"what the optimizer {plan.optimizer.name} will spend is unknown; limit it with "
            "--max-calls N"
        )


def estimate_lines(plan: Plan, budget: optimizers.Budget | None) -> list[str]:
    """The estimate in lines for people; where it is unknown, the limit that holds."""
    try:
        return estimate_compile(plan, budget).lines()
    except RunError as error:
        return [f"no estimate: {error}"]


def estimate_compile(plan: Plan, budget: optimizers.Budget | None = None) -> estimates.Estimate:
    """What the compile takes, the scores before and after included; asks no server.

    Calls and tokens of a run are those of one rehearsal, of middling length. The upper ends are the
    optimizer's own: its most program runs, with every demonstration that it may add to each call.
    What an optimizer of unknown cost takes has no upper end, and a title that says so.
    """
    optimizer = plan.optimizer
    size = plan.size
    search = budget or budget_of(plan)
    if search is None:
        return _unknown(plan)
    both = Range.exactly((1 + optimizer.runs_each) * size.n_val)  # before it and after
    budget = search.plus(optimizers.Budget(student_runs=both))
    runs = budget.runs
    prompts = budget.prompt_calls
    run = estimates.rehearse_questions(plan.run_context, plan.val)
    calls = Range(round(run.low.calls), round(run.high.calls))
    scored = f"{1 + optimizer.runs_each} x V to score before and after"
    notes = [
        f"program runs: {runs}: {optimizer.formula} to compile, {scored}",
        f"LM calls of one run: {calls}",
    ]
    if run.high.calls > run.likely.calls:
        notes.append(
            f"the upper ends are the most program runs, of {run.likely.calls:,.0f} calls each"
        )
    if prompts != Range():
        notes.append(f"tokens and cost are without those of {prompts} calls that write "
                     "instructions")  # fmt: skip
    title = (
        f"{optimizer.name} ({optimizer.preset}): {size.n_train} training and {size.n_val} "
        f"validation questions, {size.n_predictors} predictor{'s' * (size.n_predictors != 1)}"
    )
    least = calls_of_reply(plan.run_context.adapter)[0]
    demos = _demonstrations(plan, run.likely.calls)
    middling = replace(run, high=estimates.each_of(sum, (run.likely, demos)))
    likely = (runs.low + runs.high) / 2
    programs = middling.times(least * runs.low, least * likely, least * runs.high)
    ends = (prompts.low, (prompts.low + prompts.high) / 2, prompts.high)
    low, middle, high = map(estimates.Spend, ends)
    written = estimates.Estimate("", low, middle, high)
    return estimates.in_all(title, [programs, written], notes)


def _demonstrations(plan: Plan, calls: float) -> estimates.Spend:
    """What the most demonstrations add to so many calls."""
    knobs = plan.optimizer.knobs
    most = max(int(getattr(knobs, name, 0)) for name in ("bootstrapped", "labeled", "demos", "k"))
    tokens = round(calls * most * (knobs.demo_context_tokens + _DEMO_OVERHEAD))
    price = plan.run_context.lm.pricing.cost(tokens, 0)
    return estimates.Spend(tokens=tokens, cost=math.inf if price is None else price)


def _unknown(plan: Plan) -> estimates.Estimate:
    """The scores before and after, and no end of what comes between."""
    budget = room().calls
    limit = "give --max-calls N" if math.isinf(budget) else f"limited to {budget:,.0f} calls"
    title = f"{plan.optimizer.name}: what it will spend is unknown, {limit}"
    run = estimates.rehearse_questions(plan.run_context, plan.val)
    least = calls_of_reply(plan.run_context.adapter)[0] * (1 + plan.optimizer.runs_each)
    low = run.times(least * plan.size.n_val, 0, 0).low
    return estimates.Estimate(title, low, high=estimates.Spend(math.inf, math.inf, math.inf))


def rehearsed(plan: Plan) -> optimizers.Budget | None:
    """What the optimizer asks for with made-up answers; None where it fails or takes too long."""
    try:
        counts = [_rehearsal(plan, share) for share in _RIGHT]
    except (Exception, _EndlessError):  # whatever a stranger's optimizer raises
        return None
    runs, calls = (Range(min(column), max(column)) for column in zip(*counts, strict=True))
    return optimizers.Budget(student_runs=runs, prompt_calls=calls)


class _EndlessError(StopSignal):
    """A rehearsal has more runs, or takes longer, than a rehearsal may."""


def _rehearsal(plan: Plan, right: float) -> tuple[int, int]:
    """Program runs and calls of the prompt LM, where a share of `right` of the answers is right."""
    answers = {}
    for example in (*plan.train, *plan.val):
        answers[str(example.question)] = example.answers[0]
    begun = time.monotonic()
    runs: list[str] = []

    class MadeUp(type(plan.run_context.program)):  # type: ignore[misc]
        def forward(self, question: str) -> dspy.Prediction:
            runs.append(question)
            if len(runs) > _MOST_RUNS or time.monotonic() - begun > _MOST_SECONDS:
                raise _EndlessError
            chance = random.Random(zlib.crc32(f"{question} {len(runs)}".encode())).random()
            answer = answers.get(question, "") if chance < right else "made up"
            for predictor in self.predictors():
                inputs = dict.fromkeys(predictor.signature.input_fields, "made up")
                outputs = dict.fromkeys(predictor.signature.output_fields, answer)
                if dspy.settings.trace is not None:
                    dspy.settings.trace.append((predictor, inputs, dspy.Prediction(**outputs)))
            return dspy.Prediction(answer=answer, passages=[], steps=[])

    program: RAGProgram = plan.run_context.program.deepcopy()
    program.__class__ = MadeUp
    stand_in = estimates.StandIn(plan.run_context.adapter)
    with tempfile.TemporaryDirectory() as folder:
        task = optimizers.Task(
            train=plan.train,
            val=plan.val,
            scorer=optimizers.make_scorer("em"),
            lm=stand_in.lm,
            log_folder=Path(folder),
            seed=plan.settings.optimizer_seed,
        )
        with stand_in.answering():
            plan.optimizer.compile(program, task)
    return len(runs), len(stand_in.asked)
