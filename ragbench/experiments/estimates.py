"""Cost of the questions that are left: measured on records, else bounded by the parameters.

Three finished questions of a run give the cost of the others, with a 95 % interval. Before that
only the bounds are known: the calls that a question needs at least, and the calls that the
parameters allow at most. `run_pilot` runs the first questions: they stay the first
records of the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, NamedTuple

from ragbench.experiments.progress import SILENT, ProgressListener
from ragbench.experiments.runs.context import RunContext, asks_servers
from ragbench.experiments.runs.runner import run
from ragbench.experiments.runs.summary import Evaluation
from ragbench.experiments.store import StoredRecords, read_records
from ragbench.lms.adapters import calls_of_reply
from ragbench.lms.calls import UNBOUNDED_REPLY, room
from ragbench.lms.lm import RagbenchLM
from ragbench.lms.prices import Pricing
from ragbench.metrics.stats.power import t_quantile
from ragbench.programs.core.indexed import index_programs
from ragbench.ranges import Range
from ragbench.text_normalization import estimate_tokens

if TYPE_CHECKING:
    from ragbench.experiments.plans import Plan

#: Questions from which a mean is measured.
LEAST = 3
#: Tokens of a prompt next to its passages: instructions, fields and earlier steps.
_FRAME = 1_000
ASKED_TWICE = "upper bounds: every reply is unreadable once and requested again"


class EstimatedUsage(NamedTuple):
    """Amounts that calls take. Cost in US dollars, infinite if a price is unknown."""

    calls: float = 0
    tokens: float = 0
    cost: float = 0
    seconds: float = 0

    def times(self, n: float) -> EstimatedUsage:
        """Return `n` times these amounts. 0 times an infinite amount is 0."""
        return EstimatedUsage(*(n * amount if n and amount else 0.0 for amount in self))


NOTHING = EstimatedUsage()


def each_of(pick: Callable[[Any], float], spends: Iterable[EstimatedUsage]) -> EstimatedUsage:
    """Apply a function to each amount of several usages.

    Args:
        pick: Function of the values of one amount, such as `max`.
        spends: Usages.
    """
    return EstimatedUsage(*map(pick, zip(*spends, strict=True)))


@dataclass(frozen=True)
class Estimate:
    """Lower and upper bound of a cost if no reply is cached."""

    title: str = ""
    low: EstimatedUsage = NOTHING
    high: EstimatedUsage = NOTHING
    notes: Sequence[str] = ()

    def times(
        self, low: float, high: float, title: str = "", notes: Sequence[str] = ()
    ) -> Estimate:
        """Multiply the estimate by a factor from `low` to `high`.

        Args:
            low: Smallest factor.
            high: Largest factor.
            title: Title of the estimate.
            notes: Notes below the estimate.
        """
        return Estimate(title, self.low.times(low), self.high.times(high), notes)

    def lines(self) -> list[str]:
        """Format the title, a line for each amount, and the notes."""
        lines = [self.title]
        for name, low, high in zip(EstimatedUsage._fields, self.low, self.high, strict=True):
            if name == "seconds" and (not high or math.isinf(high)):
                continue  # It was not measured.
            shown = _FORMATS.get(name, "{:,.0f}".format)
            text = shown(low)
            if math.isinf(low):
                text = "unknown: the LM has no known price"
            elif math.isinf(high):
                text = f"at least {text}; the most is unknown"
            elif text != shown(high):
                text += f" to {shown(high)}"
            lines.append(f"  {_NAMES.get(name, name):<7} {text}")
        return [*lines, *(f"  {line}" for line in self.notes)]


def in_all(title: str, estimates: Sequence[Estimate], notes: Sequence[str] = ()) -> Estimate:
    """Return the sum of estimates.

    Args:
        title: Title of the sum.
        estimates: Estimates to add up.
        notes: Notes below the sum.
    """
    low = each_of(sum, [estimate.low for estimate in estimates])
    high = each_of(sum, [estimate.high for estimate in estimates])
    return Estimate(title, low, high, notes)


def one_call(prompt: int, lm: RagbenchLM | None) -> Estimate:
    """Estimate the cost of one call.

    Args:
        prompt: Tokens of the prompt.
        lm: LM of the call. None if unknown.
    """
    longest = int(lm.kwargs.get("max_tokens") or UNBOUNDED_REPLY) if lm else 512
    pricing = lm.pricing if lm else Pricing()
    ends = []
    for reply in (1, longest):
        price = pricing.cost(prompt, reply)
        ends.append(EstimatedUsage(1, prompt + reply, math.inf if price is None else price))
    low, high = ends
    return Estimate("", low, high)


def usd(amount: float) -> str:
    """Format US dollars, with more digits if the amount is small."""
    if 0 < amount < 0.0001:
        return "under $0.0001"
    return f"${amount:,.2f}" if amount >= 0.01 or amount == 0 else f"${amount:.4f}"


def duration(seconds: float) -> str:
    """Format seconds in the unit that suits them."""
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.0f} s"


_FORMATS: dict[str, Callable[[float], str]] = {"cost": usd, "seconds": duration}
_NAMES = {"seconds": "time"}


@dataclass(frozen=True)
class QuestionCost:
    """Cost of one question of a run: bounds by the parameters, and finished questions.

    `workers` questions are in flight in the run, `threads` were when it was measured. The bounds of
    the time are those of a server that keeps up with all workers, and of one that was busy.
    """

    least: EstimatedUsage
    most: EstimatedUsage
    measured: Sequence[EstimatedUsage] = ()
    workers: int = 1
    threads: int = 1

    def times(
        self, low: float, high: float, title: str = "", notes: Sequence[str] = ()
    ) -> Estimate:
        """Estimate the cost of `low` to `high` questions, or runs of the program.

        Args:
            low: Smallest number of questions.
            high: Largest number of questions.
            title: Title of the estimate.
            notes: Notes below the estimate.
        """
        least = self.least.times(low)
        most = self.most.times(high)
        if len(self.measured) < LEAST or not high:
            return Estimate(title, least, most, notes)
        ends = [_ends(column, low, high) for column in zip(*self.measured, strict=True)]
        lower, upper = map(EstimatedUsage._make, zip(*ends, strict=True))
        lower = each_of(max, (lower, least))
        upper = each_of(max, (lower, each_of(min, (upper, most))))
        fast = lower._replace(seconds=lower.seconds / self.workers)
        slow = upper._replace(seconds=upper.seconds / self.threads)
        return Estimate(title, fast, slow, notes)


def _ends(column: Sequence[float], low: float, high: float) -> tuple[float, float]:
    """Predict the sum of `low` to `high` more values like those of `column`, at 95 %."""
    mean = fmean(column)
    if math.isinf(mean):
        return 0.0, math.inf
    n = len(column)
    reach = t_quantile(0.975, n - 1) * stdev(column)
    least, most = (reach * math.sqrt(m * m / n + m) for m in (low, high))
    return max(0.0, low * mean - least), high * mean + most


def question_cost(run_context: RunContext, records: StoredRecords | None = None) -> QuestionCost:
    """Measure the cost of one question on finished questions.

    With fewer than three finished questions, only the bounds are known.

    Args:
        run_context: Context of the run.
        records: Records to measure. None: those of the run.
    """
    if records is None:
        records = read_records(run_context.config.folder())
    measured = []
    if len(records.finished) >= LEAST:
        for record in map(records.__getitem__, sorted(records.finished)):
            total = record.ledger.as_if
            price = math.inf if total.cost_usd is None else total.cost_usd
            measured.append(EstimatedUsage(total.calls, total.all_tokens, price, record.latency_s))
    least, most = _bounds(run_context)
    workers = run_context.config.workers
    return QuestionCost(least, most, measured, workers, max(1, min(len(measured), workers)))


def _bounds(run_context: RunContext) -> tuple[EstimatedUsage, EstimatedUsage]:
    """Bound the cost of one question by the parameters.

    The least is a call that holds the shortest instructions of a predictor and no passage.
    """
    program = run_context.program
    fewest, tries = calls_of_reply(run_context.adapter)
    texts = [predictor.signature.instructions for predictor in program.predictors()]
    lm = run_context.lm
    least = one_call(min(map(estimate_tokens, texts), default=1), lm).low.times(fewest)
    most = one_call(program.knobs.context_tokens + _FRAME, lm).high
    most = most.times(tries * program.knobs.max_calls)
    votes = run_context.config.votes
    if _has_own_limits(run_context):
        least = NOTHING
        most = EstimatedUsage(math.inf, math.inf, math.inf)
    if run_context.role_lms:  # Their prices differ.
        least = least._replace(cost=0.0)
        most = most._replace(cost=math.inf)
    if any(retriever_calls(run_context)):
        most = most._replace(cost=math.inf)
    return least.times(votes), most.times(votes)._replace(seconds=math.inf)


def _has_own_limits(run_context: RunContext) -> bool:
    """Return True if a program inside decides by its code how many calls it makes."""
    programs = [run_context.program]
    for program in programs:
        if "max_calls" in program.unread:
            return True
        programs += program.inside()
    return False


def retriever_calls(run_context: RunContext) -> list[str]:
    """Name the calls of a search that are not among the bounds of the LM."""
    if asks_servers(run_context.retriever):
        return [f"searches also call a server: {run_context.config.retriever}"]
    return []


def estimate_run(run_context: RunContext, *, cost: QuestionCost | None = None) -> Estimate:
    """Estimate the questions that a run has left.

    Args:
        run_context: The run.
        cost: Cost of one question. None takes that of the run.
    """
    records = read_records(run_context.config.folder())
    finished = records.finished
    n = sum(example.qid not in finished for example in run_context.examples)
    title = f"{run_context.title}: {n} questions"
    if n < len(run_context.examples):
        title += f" ({len(run_context.examples) - n} finished before)"
    cost = cost or question_cost(run_context, records)
    notes = retriever_calls(run_context)
    if cost.measured:
        notes.append(f"measured on {len(cost.measured)} finished questions, 95 % interval")
    elif n > LEAST:
        notes.append(f"these are bounds; --pilot {LEAST} runs {LEAST} questions and measures")
    return cost.times(n, n, title, [*notes, *index_notes(run_context)])


def index_notes(run_context: RunContext) -> Iterator[str]:
    """Describe the index of a program that an LM makes and that questions do not pay for."""
    for program in index_programs(run_context.program):
        if program.other_calls():
            yield f"the index is extra: an LM reads {len(program.retriever.corpus):,} passages"


def run_pilot(run_context: RunContext, n: int, watch: ProgressListener = SILENT) -> Evaluation:
    """Run the first `n` questions. Their records are the first ones of the run.

    Args:
        run_context: Context of the run.
        n: Number of questions.
        watch: Listener of progress.
    """
    examples = run_context.examples[:n]
    return run(replace(run_context, examples=examples), watch=watch, title=run_context.title)


def estimate_compile(plan: Plan, cost: QuestionCost | None = None) -> Estimate:
    """Estimate a compile, with the scores before and after; sends no request.

    Args:
        plan: The compile.
        cost: Cost of a program run. None takes that of the training run, if it was run.
    """
    from ragbench.optimizers import Budget  # slow to import

    optimizer = plan.optimizer
    size = plan.size
    search = optimizer.estimate(size)
    run = cost or question_cost(plan.run_context)
    around = Range.exactly((1 + optimizer.runs_each) * size.n_val)  # before it and after
    if search is None:
        calls = room().calls
        limit = "give --max-calls N" if math.isinf(calls) else f"limited to {calls:,.0f} calls"
        title = f"{optimizer.name}: what it will spend is unknown, {limit}"
        least = run.times(around.low, around.low)
        return Estimate(title, least.low, EstimatedUsage(*(math.inf,) * 4))
    runs = search.plus(Budget(student_runs=around)).runs
    notes = [
        f"program runs: {runs}: {optimizer.formula} to compile, {1 + optimizer.runs_each} x V to "
        "score before and after"
    ]
    if not run.measured:
        notes.append("these are bounds; three validation questions measure them as it begins")
    if search.prompt_calls != Range():
        notes.append(f"and {search.prompt_calls} calls that write instructions, which are extra")
    title = (
        f"{optimizer.name} ({optimizer.preset}): {size.n_train} training and {size.n_val} "
        f"validation questions, {size.n_predictors} predictor{'s' * (size.n_predictors != 1)}"
    )
    return run.times(runs.low, runs.high, title, notes)
