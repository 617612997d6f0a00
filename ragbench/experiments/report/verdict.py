"""Report on a verdict: a sentence for each metric, controls and price, then the numbers."""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from ragbench.experiments.compare.verdicts import (
    COMPILED,
    COMPILED_FORM,
    EQUAL,
    FORM,
    VOTES,
    ZERO_SHOT,
    Verdict,
    votes_in_words,
)
from ragbench.experiments.report.comparison import cluster_line
from ragbench.experiments.report.names import name_of_system
from ragbench.experiments.report.rows import COMPARED, FOR_MACHINES, compared_rows, row_of_arm
from ragbench.experiments.report.sections import Report, full
from ragbench.experiments.report.table import Column, Table, counted, with_interval
from ragbench.experiments.runs.summary import GOLD_IN_CONTEXT, Evaluation, or_unknown
from ragbench.metrics import LEAST_SEEDS, Comparison

#: Failure rate of compiles that 22 seeds detect with a probability of 90 %: log 0.1 / log 0.9.
RARE = 0.1
#: Maps the outcome of the contrast with zero-shot to the verb of the sentence.
_VERBS = {
    "better": "improves",
    "worse": "worsens",
    "equivalent": "changes nothing that matters in",
}

#: Answers to the question whether compiling helps.
_ANSWERS = {"better": "Yes", "worse": "No, it is worse", "equivalent": "No"}


def verdict_report(verdict: Verdict) -> Report:
    """Yield a sentence for each metric, controls, price and caveats, then every number."""
    for metric in verdict.design.metrics:
        yield headline_of(verdict, metric)
        for line in control_lines(verdict, metric):
            yield f"  {line}"
    yield price_line(verdict)
    yield from caveats(verdict)
    yield from full(_numbers(verdict))
    yield f"verdict: {verdict.folder}"


def _numbers(verdict: Verdict) -> Report:
    rows = [{"metric": m, "conclusion": headline_of(verdict, m)} for m in verdict.design.metrics]
    yield Table("conclusions", (Column("metric"), Column("conclusion")), rows, for_machines=True)
    yield _arms_table(verdict)
    contrasts = []
    for (a, b), by_metric in verdict.contrasts.items():
        contrasts += compared_rows({"contrast": f"{b} - {a}"}, by_metric)
    identifying = (Column("contrast", "contrast (B - A)"), Column("metric"))
    yield Table("contrasts", (*identifying, *COMPARED, *FOR_MACHINES), contrasts)
    yield from cluster_line(chain.from_iterable(c.values() for c in verdict.contrasts.values()))
    spent = verdict.spending
    yield (
        f"one compile: {spent.calls:,.0f} calls, {spent.tokens.once or 0:,.0f} tokens, "
        f"{or_unknown(spent.usd.once)} $ (uncached, with its validation); "
        f"in tokens: {spent.tokens.words()}"
    )
    for change, qids in (("fixed", verdict.fixed), ("broken", verdict.broken)):
        yield f"{change}: {len(qids)} questions{' ' + ', '.join(qids[:20]) if qids else ''}"


def headline_of(verdict: Verdict, metric: str) -> str:
    """Return the verdict on a metric in one sentence.

    Example: "Compiling ircot (bootstrap, 50 questions, 3 seeds) improves f1: 0.430 to 0.688,
    +0.258 [+0.140, +0.362], p 0.001, 80 questions".

    Args:
        verdict: The verdict.
        metric: Metric of the contrast.
    """
    c = verdict.contrasts[ZERO_SHOT, COMPILED][metric]
    card = verdict.sidecars[0]
    program = name_of_system(verdict.arms[ZERO_SHOT][0].card)
    how = (
        f"{card.optimizer.get('name')}, {counted(len(card.data.train.ids), 'question')}, "
        f"{counted(len(verdict.sidecars), 'seed')}"
    )
    verb = _VERBS.get(c.outcome, "does not significantly change")
    seeds = verdict.share_of_seeds(metric)
    if seeds:
        verb = f"usually ({seeds}) {verb}"
    scope = ""
    if not verdict.design.of_optimizer(verdict.distinct_programs):
        scope = f"; for {verdict.subject} only"
    p = "p < 0.001"
    if (c.p_adjusted or 0.0) >= 0.001:
        p = f"p {c.p_adjusted:.3f}"
    return (
        f"Compiling {program} ({how}) {verb} {metric}: {c.mean_a:.3f} to {c.mean_b:.3f}, "
        f"{c.gain}, {p}, {counted(c.n, 'question')}{scope}"
    )


def control_lines(verdict: Verdict, metric: str) -> list[str]:
    """Return the results of the controls for answer form and tokens, and of the seeds.

    Args:
        verdict: The verdict.
        metric: Metric of the contrasts.
    """
    lines = []
    for control, c in _controls(verdict, metric):
        lines.append(f"{control}: {c.gain}, {c.verdict}")
    if len(verdict.sidecars) > 1:
        means = ", ".join(f"{mean:.3f}" for mean in verdict.seed_means(metric))
        lines.append(f"Means of the seeds: {means}")
    line = f"Fixed {counted(len(verdict.fixed), 'question')}, broke {len(verdict.broken)}"
    failed = sum(map(_failed, verdict.arms.values()))
    if failed:
        line += f"; {failed} failed and scored 0"
    return [*lines, line]


def _controls(verdict: Verdict, metric: str) -> Iterator[tuple[str, Comparison]]:
    for pair, control in (
        ((FORM, COMPILED_FORM), "With the answer form repaired on both sides"),
        ((VOTES, COMPILED), f"Against {votes_in_words(verdict.matched())}"),
    ):
        if pair in verdict.contrasts:
            yield control, verdict.contrasts[pair][metric]


def answer_of(verdict: Verdict, metric: str) -> tuple[str, str]:
    """Answer whether compiling helps: a word, and the differences in at most 200 characters.

    Args:
        verdict: The verdict.
        metric: Metric of the contrasts.
    """
    c = verdict.contrasts[ZERO_SHOT, COMPILED][metric]
    answer = _ANSWERS.get(c.outcome, "Not significantly")
    details = [f"{c.gain} {metric}"]
    for control, other in _controls(verdict, metric):
        word = "" if other.outcome == "better" else ", not significantly better"
        details.append(f"{control[0].lower()}{control[1:]} {other.difference:+z.3f}{word}")
    return answer, "; ".join(details)


def price_line(verdict: Verdict) -> str:
    """Return the price of compiling, per question and once, and its break-even point."""
    spent = verdict.spending
    usd = spent.usd
    times = "an unknown multiple of"
    if spent.ratio is not None:
        times = f"{spent.ratio:.2f} times"
    line = f"Price: {times} the tokens per question"
    if usd.before is not None and usd.after is not None:
        line += f" (${1000 * usd.after:.2f} against ${1000 * usd.before:.2f} for 1,000)"
    once = "of unknown price"
    if usd.once is not None:
        once = f"${usd.once:.2g}"
    return f"{line}; one compile {once}; in dollars: {usd.words()}"


def caveats(verdict: Verdict) -> Iterator[str]:
    """Yield what limits the verdict: failures, unequal tokens, and few seeds."""
    if any(map(_failed, verdict.arms.values())):
        failures = ", ".join(f"{name} {_failed(runs)}" for name, runs in verdict.arms.items())
        yield f"failures, scored as the worst and retried by the same command: {failures}"
    ratio = verdict.matched()
    if ratio and abs(ratio - 1) > EQUAL:
        yield f"votes used {ratio:.2f} times the tokens of compiled, since votes are whole numbers"
    n = len(verdict.sidecars)
    distinct = verdict.distinct_programs
    if n > 1 and distinct < n:
        yield f"{n} seeds gave only {distinct} different programs: fewer replications"
    if verdict.design.of_optimizer(distinct):
        yield (
            "all seeds compiled on the same questions; a failure in one of ten compiles shows "
            f"among {n} seeds with probability {1 - (1 - RARE) ** n:.0%}, among 22 seeds with 90%"
        )
    elif distinct < LEAST_SEEDS:
        yield (
            f"this is a verdict on {verdict.subject}; one on the optimizer needs {LEAST_SEEDS} "
            "different programs, by --seeds"
        )


def _arms_table(verdict: Verdict) -> Table:
    """Return a row for each arm, with its seeds pooled."""
    rows = []
    for name, runs in verdict.arms.items():
        row: dict[str, Any] = {**row_of_arm(runs), "arm": name}
        if name == VOTES:
            row["arm"] += f" ({verdict.design.votes})"
        pair = next(pair for pair in verdict.contrasts if name in pair)
        for metric, c in verdict.contrasts[pair].items():
            if pair[0] == name:
                row |= with_interval(metric, c.mean_a, c.interval_a)
            else:
                row |= with_interval(metric, c.mean_b, c.interval_b)
        rows.append(row)
    columns = (
        Column("arm"), Column("runs", kind="count", drop=3), Column("n", kind="count", drop=2),
        *(Column(metric, kind="mean", interval=True) for metric in verdict.design.metrics),
        Column(GOLD_IN_CONTEXT, "gold in context", "score", drop=1),
        Column("failed", kind="count"), Column("calls", kind="amount", drop=4),
        Column("tokens", kind="amount"), Column("cost_usd", "$/1,000", "usd_1000"),
        Column("p95_s", "p95 s", "seconds", drop=6),
    )  # fmt: skip
    return Table("arms", columns, rows)


def _failed(runs: Sequence[Evaluation]) -> int:
    return sum(run.summary.failed for run in runs)
