"""What a compile is expected to spend: before it starts, and after its first scores."""

from typing import Any

from ragbench.experiments.compile.planning import Plan
from ragbench.experiments.estimates import (
    ASKED_TWICE,
    MARGIN,
    Estimate,
    Rehearsed,
    duration,
    most_tries,
    rehearse_questions,
    usd,
)
from ragbench.lms import priced
from ragbench.optimizers import Budget, Optimizer, Size
from ragbench.ranges import Range
from ragbench.record import Totals

#: Tokens that one demonstration adds beside its passages: question, answer and markers.
_DEMO_OVERHEAD = 80


def estimate_compile(plan: Plan, *, seconds_per_call: float | None = None) -> Estimate:
    """What the compile takes, the scores before and after included; asks no server.

    Calls and tokens of a run are those of the rehearsal; the upper bounds have every demonstration
    that the optimizer may add to each call.

    Raises:
        RunError: the program cannot be rehearsed.
    """
    optimizer, size = plan.optimizer, plan.size
    search, both = optimizer.estimate(size), Range.exactly(2 * size.n_val)  # before it and after
    budget = Budget(search.teacher_runs, search.student_runs + both, search.prompt_calls)
    retry = most_tries(plan.run_context)
    run = rehearse_questions(plan.run_context, plan.val)
    demos = run.calls[1] * _tokens_of_demos(optimizer)
    high = int(MARGIN[1] * retry * (run.tokens[1] + demos))
    calls = budget.lm_calls(run.calls[0], retry * run.calls[1])
    time = "known once the first questions are answered, or give --seconds-per-call"
    if seconds_per_call is not None:
        low, high_s = (duration(n * seconds_per_call) for n in (calls.low, calls.high))
        time = f"{low} to {high_s}, one call after another"
    notes = [
        f"program runs: {budget.runs}, that is {optimizer.formula}, and 2 x V to score before and "
        "after",
        f"LM calls of one run: {Range(*run.calls)}",
        f"time: {time}",
    ]
    if retry > 1:
        notes.append(ASKED_TWICE)
    if budget.prompt_calls != Range():
        notes.append(f"tokens and cost are without those of {budget.prompt_calls} calls that write "
                     "instructions")  # fmt: skip
    return Estimate(
        title=f"{optimizer.name} ({optimizer.preset}): {size.n_train} training and {size.n_val} "
        f"validation questions, {size.n_predictors} predictor{'s' * (size.n_predictors != 1)}",
        calls=calls,
        tokens=budget.runs.times(int(MARGIN[0] * run.tokens[0]), high),
        cost=_cost(plan.run_context.lm.pricing, run, budget.runs, demos, retry),
        notes=tuple(notes),
    )


def rest_of_budget(
    optimizer: Optimizer, size: Size, zero_shot: Totals, *, seconds: float
) -> list[str]:
    """Lines for people on what the rest will spend, judged by what zero-shot validation took.

    `seconds` is its wall time, had nothing been cached; teaching runs go one by one, so the upper
    bound takes the sum of their latencies.
    """
    rest, n = optimizer.estimate(size), size.n_val
    runs = rest.runs + Range.exactly(n)
    calls, tokens = zero_shot.calls / n, zero_shot.tokens / n
    alone = max(zero_shot.latency_s, seconds) / n
    high = rest.teacher_runs.high * alone + (rest.student_runs.high + n) * seconds / n
    low = runs.low * seconds / n
    each = zero_shot.cost_usd
    cost = "unknown"
    if each is not None:
        cost = _between(usd(runs.low * each / n), usd(runs.high * each / n))
    asked = _between(f"{runs.low * calls:,.0f}", f"{runs.high * calls:,.0f}")
    return [
        f"  measured: {calls:.1f} calls, {tokens:,.0f} tokens and {seconds / n:.2f} s a question",
        f"  still to come: {runs} runs, about {asked} calls, "
        f"{_between(duration(low), duration(high))}, cost {cost}; prompt model and demonstrations "
        "extra",
    ]


def _between(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def _tokens_of_demos(optimizer: Optimizer) -> int:
    """Tokens of all demonstrations that may be added to one call."""
    names = ("bootstrapped", "labeled", "demos", "k")
    most = max((int(getattr(optimizer.knobs, name, 0)) for name in names), default=0)
    return most * (int(optimizer.knobs.demo_context_tokens) + _DEMO_OVERHEAD)


def _cost(
    pricing: Any, run: Rehearsed, runs: Range, demo_tokens: int, retry: int
) -> tuple[float, float] | None:
    demos = priced(pricing, None, demo_tokens, 0)
    if run.cost is None or demos is None:
        return None
    return (
        MARGIN[0] * runs.low * run.cost[0],
        MARGIN[1] * retry * runs.high * (run.cost[1] + demos),
    )
