"""Comparisons and verdicts as sentences, followed by the numbers."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from statistics import fmean
from typing import Any

from ragbench.experiments.compare.comparisons import RunComparison
from ragbench.experiments.compare.spending import per_question
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
from ragbench.experiments.report.brief import comparison_section
from ragbench.experiments.report.means import measured
from ragbench.experiments.report.names import name_of_system
from ragbench.experiments.report.repeats import label_arms, noise_lines
from ragbench.experiments.report.sections import Report, Section, full
from ragbench.experiments.report.table import Column, Table, with_interval
from ragbench.experiments.report.tables import gold_lines, money
from ragbench.experiments.runs.summary import GOLD_IN_CONTEXT, Evaluation
from ragbench.metrics import LEAST_SEEDS, THESE_QUESTIONS, Comparison

#: Failure rate of compiles that 22 seeds detect with a probability of 90 %: log 0.1 / log 0.9.
RARE = 0.1
#: The columns of `compared`.
COMPARED = (
    Column("n", kind="count"),
    Column("a", "A", "mean", interval=True, drop=4),
    Column("b", "B", "mean", interval=True, drop=3),
    Column("difference", "B - A", "gain", interval=True),
    Column("p", "p (Holm)", "p", drop=5),
    Column("detectable", kind="score", drop=6),
)
#: Additional columns for machines. On a terminal, a sentence shows these facts.
FOR_MACHINES = tuple(
    Column(name, for_machines=True)
    for name in (
        "verdict", "outcome", "breakdown", "scope", "corrected_low", "corrected_high",
        "n_needed", "n_least", "seeds_needed",
    )
)  # fmt: skip


def comparison_report(results: Sequence[RunComparison]) -> Report:
    """Yield the conclusions for each run against the first, then scores and costs."""
    label_a, *labels = label_arms([results[0].arms[0], *(result.arms[1] for result in results)])
    named = list(zip(labels, results, strict=True))
    for name, result in named:
        yield comparison_section(name, label_a, result)
        yield Section(memory_lines(result), level="brief")
    yield from full(_whole_comparison(label_a, named))


def _whole_comparison(label_a: str, named: Sequence[tuple[str, RunComparison]]) -> Report:
    results = [result for _, result in named]
    base = results[0].a
    for name, result in named:
        gains = []
        for metric, c in result.scores.items():
            gains.append(f"{metric} {c.gain} {c.verdict.partition(' (')[0]}".strip())
        n = max(c.n for c in result.scores.values())
        yield f"{name} against {label_a}: {'; '.join(gains)} ({n} questions)"
    yield f"A: {label_a}, {results[0].places[0]}"
    for name, result in named:
        yield f"B: {name}, {result.places[1]}"
        yield from (f"  {metric}: {sentence(c)}" for metric, c in result.scores.items())
        yield from memory_lines(result)
        yield from noise_lines(result)
    several = (Column("run", "B"),) if len(results) > 1 else ()
    yield _scores(named, several)
    yield from cluster_line(chain.from_iterable(result.scores.values() for result in results))
    for line in gold_lines(base):
        yield f"A, {line}"
    for name, result in named:
        yield from (f"{name}, {line}" for line in gold_lines(result.b))
        shared = sum(qid in result.b.records for qid in result.a.records)
        if few := [f"{metric} {c.n}" for metric, c in result.scores.items() if c.n < shared]:
            yield f"{name}: of {shared} questions, both have a score of: {', '.join(few)}"
    yield _costs(named, several)
    for name, result in named:
        b = name if several else "B"
        yield f"exactly right only in A: {len(result.broken)}, only in {b}: {len(result.fixed)}"


def sentence(c: Comparison) -> str:
    """Return the conclusion on B. A metric without bounds is not tested."""
    if c.p is None:
        ratio = "" if c.ratio is None else f", B / A {c.ratio:.2f}"
        return f"B - A {c.gain} {THESE_QUESTIONS}{ratio}; not tested, since it has no bounds"
    if c.outcome == "undecided":
        return c.verdict
    return f"B is {c.verdict}"


def memory_lines(result: RunComparison) -> list[str]:
    """Return the gain from memorized names, if one run is over renamed questions."""
    keys = [run.card.data_card.get("rename_entities") for run in (result.a, result.b)]
    if (keys[0] is None) == (keys[1] is None):
        return []
    lines = []
    for metric, c in result.scores.items():
        worth = c.reversed() if keys[0] is None else c
        words = f"  gain from memory: {worth.difference:+z.3f} {metric}"
        if worth.interval:
            words += f" {worth.interval.words('+')}"
        lines.append(f"{words}, plain minus renamed")
    return lines


def compared(c: Comparison) -> dict[str, Any]:
    """Return the row of a comparison under `COMPARED` and `FOR_MACHINES`.

    The corrected interval excludes 0 if and only if the verdict is better or worse.
    """
    corrected = c.corrected_interval
    return {
        "n": c.n,
        **with_interval("a", c.mean_a, c.interval_a),
        **with_interval("b", c.mean_b, c.interval_b),
        **with_interval("difference", c.difference, c.interval),
        "p": c.p_adjusted,
        "detectable": c.minimum_detectable,
        "verdict": c.verdict,
        "outcome": c.outcome,
        "breakdown": c.breakdown,
        "scope": c.interval.scope if c.interval else "",
        "corrected_low": corrected.low if corrected else None,
        "corrected_high": corrected.high if corrected else None,
        "n_needed": c.n_needed,
        "n_least": c.n_least,
        "seeds_needed": c.seeds_needed,
    }


def rows_of(
    identifying: Mapping[str, Any], by_metric: Mapping[str, Comparison]
) -> list[dict[str, Any]]:
    """Return a row for each metric.

    Args:
        identifying: Values that identify the comparison, for every row.
        by_metric: Comparison by metric.
    """
    return [{**identifying, "metric": metric, **compared(c)} for metric, c in by_metric.items()]


def cluster_line(comparisons: Iterable[Comparison]) -> list[str]:
    """Return a line on the clusters of questions, or nothing if there are none."""
    used = []
    for c in comparisons:
        if c.estimate and c.estimate.clusters < c.n:
            used.append(c.estimate)
    if not used:
        return []
    effects = [estimate.design_effect for estimate in used]
    return [
        f"{used[0].clusters} clusters of linked questions, the largest of {used[0].largest}; "
        f"design effect {min(effects):.2f} to {max(effects):.2f}"
    ]


def _scores(named: Sequence[tuple[str, RunComparison]], several: Sequence[Column]) -> Table:
    rows: list[dict[str, Any]] = []
    for name, result in named:
        for row in rows_of({"run": name}, result.scores):
            rows.append(row)
            if row["metric"] == "em" and result.gold_in_context:
                # Informational row: not part of the test family and without a verdict.
                untested = ["p", "detectable", *(column.name for column in FOR_MACHINES)]
                [beside] = rows_of({"run": name}, {GOLD_IN_CONTEXT: result.gold_in_context})
                rows.append(beside | dict.fromkeys(untested))
    n = [row["n"] for row in rows]
    caption = (
        f"Differences over {min(n)} to {max(n)} questions with 95 % intervals; paired t tests, "
        "corrected (Holm) over all tests of a metric"
    )
    columns = (*several, Column("metric"), *COMPARED, *FOR_MACHINES)
    return Table("scores", columns, rows, caption=caption)


def _costs(named: Sequence[tuple[str, RunComparison]], several: Sequence[Column]) -> Table:
    columns = (
        *several,
        Column("measure", "per question"),
        Column("a", "A", "number"),
        Column("b", "B", "number"),
        Column("difference", "B - A", "number", interval=True),
        Column("ratio", "B / A", "number"),
        Column("most_a", "most expensive A", "number", drop=2),
        Column("most_b", "most expensive B", "number", drop=1),
    )
    rows: list[dict[str, Any]] = []
    for name, result in named:
        for measure, c in result.costs.items():
            if c is None:
                rows.append({"run": name, "measure": measure, "a": None})
            else:
                rows.append({"run": name, **cost_row(measure, c)})
    caption = f"Costs per question, with 95 % t intervals {THESE_QUESTIONS}; not tested"
    return Table("costs", columns, rows, caption=caption)


def cost_row(measure: str, c: Comparison) -> dict[str, Any]:
    """Return the row of a cost: means, their difference and its interval in one unit.

    Args:
        measure: Name of the cost in `MEASURES`. Dollars are for 1,000 questions.
        c: The comparison, per question.
    """
    times = 1
    if measure == "cost $":
        times = 1000
        measure = "$/1,000"
    values = {"a": c.mean_a, "b": c.mean_b, **with_interval("difference", c.difference, c.interval)}
    if c.most_expensive is not None:
        values["most_a"], values["most_b"] = c.most_expensive
    row: dict[str, Any] = {"measure": measure}
    for name, value in values.items():
        row[name] = None if value is None else times * value
    return {**row, "ratio": c.ratio}


def verdict_report(verdict: Verdict) -> Report:
    """Yield conclusions and their caveats, then every number."""
    for metric in verdict.design.metrics:
        yield headline_of(verdict, metric)
        for line in control_lines(verdict, metric):
            yield f"  {line}"
    yield price_line(verdict)
    yield from summary_lines(verdict)
    rows = [{"metric": m, "conclusion": verdict.conclusion(m)} for m in verdict.design.metrics]
    yield Table("conclusions", (Column("metric"), Column("conclusion")), rows, for_machines=True)
    yield arms_table(verdict)
    for name in (ZERO_SHOT, COMPILED):
        for run in verdict.arms[name]:
            yield from (f"{run.folder.name}, {line}" for line in gold_lines(run))
    identifying = (Column("contrast", "contrast (B - A)"), Column("metric"))
    columns = (*identifying, *COMPARED, *FOR_MACHINES)
    yield Table("contrasts", columns, contrast_rows(verdict))
    yield from cluster_line(chain.from_iterable(c.values() for c in verdict.contrasts.values()))
    spent = verdict.spending
    yield from (
        f"one compile: {spent.calls:,.0f} calls, {spent.tokens.once or 0:,.0f} tokens, "
        f"{money(spent.usd.once)} $ (uncached, with its validation)",
        f"in tokens: {spent.tokens.words()}; in $: {spent.usd.words()}",
    )
    for change, qids in (("fixed", verdict.fixed), ("broken", verdict.broken)):
        yield f"{change}: {len(qids)} questions{' ' + ', '.join(qids[:20]) if qids else ''}"
    yield f"verdict: {verdict.folder}"


def contrast_rows(verdict: Verdict) -> list[dict[str, Any]]:
    """Return a row for each contrast and metric."""
    rows = []
    for (a, b), by_metric in verdict.contrasts.items():
        rows += rows_of({"contrast": f"{b} - {a}"}, by_metric)
    return rows


#: Maps the outcome of the contrast with zero-shot to the words of the headline.
_HEADLINE = {"better": "HELPS", "worse": "HURTS", "equivalent": "CHANGES NOTHING THAT MATTERS"}


def headline_of(verdict: Verdict, metric: str) -> str:
    """Return the verdict on a metric in one sentence.

    Example: "Compiling ircot (bootstrap, 50 questions, 3 seeds) HELPS: f1 .430 -> .688, +.258
    [+.140, +.362], p 0.001, 80 questions".

    Args:
        verdict: The verdict.
        metric: Metric of the contrast.
    """
    c = verdict.contrasts[ZERO_SHOT, COMPILED][metric]
    card = verdict.sidecars[0]
    n = len(verdict.sidecars)
    program = name_of_system(verdict.arms[ZERO_SHOT][0].card)
    seeds = "1 seed" if n == 1 else f"{n} seeds"
    how = f"({card.optimizer.get('name')}, {len(card.data.train.ids)} questions, {seeds})"
    word = _HEADLINE.get(c.outcome, "HAS NO SIGNIFICANT EFFECT")
    if "usually" in verdict.conclusion(metric):
        word = f"USUALLY {word}"
    alone = ""
    if not verdict.design.of_optimizer(verdict.distinct_programs):
        alone = f"; for {verdict.subject} only"
    p = "p < 0.001"
    if (c.p_adjusted or 0.0) >= 0.001:
        p = f"p {c.p_adjusted:.3f}"
    return (
        f"Compiling {program} {how} {word}: {metric} {c.mean_a:.3f} -> {c.mean_b:.3f}, "
        f"{c.gain}, {p}, {c.n} questions{alone}"
    )


def control_lines(verdict: Verdict, metric: str) -> list[str]:
    """Return the results of the controls for answer form and tokens, and of the seeds.

    Args:
        verdict: The verdict.
        metric: Metric of the contrasts.
    """
    lines = []
    votes = votes_in_words(verdict.matched())
    for pair, good, otherwise in (
        ((FORM, COMPILED_FORM), "not only the form", "with the form repaired"),
        ((VOTES, COMPILED), "not only more tokens", f"against {votes}"),
    ):
        if pair in verdict.contrasts:
            c = verdict.contrasts[pair][metric]
            words = good
            if c.outcome != "better":
                words = f"{otherwise}: {c.verdict}"
            arm = votes if pair[0] == VOTES else pair[0]
            lines.append(f"{words}, {c.gain} against {arm}")
    means = " ".join(f"{mean:.3f}" for mean in verdict.seed_means(metric))
    failed = sum(map(_failed, verdict.arms.values()))
    changed = f"fixed {len(verdict.fixed)}, broke {len(verdict.broken)}"
    if failed:
        changed += f"; {failed} failed and scored 0"
    lines.append(f"seeds {means}; {changed}" if len(verdict.sidecars) > 1 else changed)
    return lines


def price_line(verdict: Verdict) -> str:
    """Return the price of compiling, per question and once, and its break-even point."""
    spent = verdict.spending
    usd = spent.usd
    times = "unknown"
    if spent.ratio is not None:
        times = f"{spent.ratio:.2f} times"
    line = f"price: {times} the tokens a question"
    if usd.before is not None and usd.after is not None:
        line += f" (${1000 * usd.after:.2f} against ${1000 * usd.before:.2f} for 1,000)"
    once = "of unknown price"
    if usd.once is not None:
        once = f"${usd.once:.4f}"
    return f"{line}; one compile {once}; in $: {usd.words()}"


def summary_lines(verdict: Verdict) -> list[str]:
    """Return the verdict in sentences, with its caveats."""
    lines = []
    for metric in verdict.design.metrics:
        lines.append(f"{metric}: {verdict.conclusion(metric)}")
        for (a, b), by_metric in verdict.contrasts.items():
            lines.append(f"  {b} (B) against {a}: {sentence(by_metric[metric])}")
    if any(map(_failed, verdict.arms.values())):
        counted = ", ".join(f"{name} {_failed(runs)}" for name, runs in verdict.arms.items())
        lines.append(f"failures, scored as the worst and retried by the same command: {counted}")
    if ratio := verdict.matched():
        line = f"votes used {ratio:.2f} times the tokens of compiled"
        if abs(ratio - 1) > EQUAL:
            line += ": more than 10 % off, since votes are whole numbers"
        lines.append(line)
    n = len(verdict.sidecars)
    distinct = verdict.distinct_programs
    if n > 1 and distinct < n:
        lines.append(f"{n} seeds gave only {distinct} different programs: fewer replications")
    if verdict.design.of_optimizer(distinct):
        lines.append(
            "all seeds compiled on the same questions; a failure in one of ten compiles shows "
            f"among {n} seeds with probability {1 - (1 - RARE) ** n:.0%}, among 22 seeds with 90%"
        )
    elif distinct < LEAST_SEEDS:
        lines.append(
            f"this is a verdict on {verdict.subject}; one on the optimizer needs {LEAST_SEEDS} "
            "different programs, by --seeds"
        )
    return lines


def arms_table(verdict: Verdict) -> Table:
    """Return a row for each arm, with its seeds pooled."""
    columns = (
        Column("arm"), Column("runs", kind="count", drop=3), Column("n", kind="count", drop=2),
        *(Column(metric, kind="mean", interval=True) for metric in verdict.design.metrics),
        Column(GOLD_IN_CONTEXT, "gold in context", "score", drop=1),
        Column("failed", kind="count"), Column("calls", kind="amount", drop=4),
        Column("tokens", kind="amount"), Column("cost_usd", "$/1,000", "usd_1000"),
        Column("seconds", "s", "seconds", drop=6),
    )  # fmt: skip
    return Table("arms", columns, [_arm(verdict, name) for name in verdict.arms])


def _failed(runs: Sequence[Evaluation]) -> int:
    return sum(run.summary.failed for run in runs)


def _arm(verdict: Verdict, name: str) -> dict[str, Any]:
    """Return the row of an arm, with the means of the first contrast that has it."""
    runs = verdict.arms[name]
    pair, by_metric = next(entry for entry in verdict.contrasts.items() if name in entry[0])
    row: dict[str, Any] = {"arm": name, "runs": len(runs), "n": runs[0].summary.n}
    for metric, c in by_metric.items():
        if pair[0] == name:
            row |= with_interval(metric, c.mean_a, c.interval_a)
        else:
            row |= with_interval(metric, c.mean_b, c.interval_b)
    if name.startswith("votes"):
        row["arm"] += f" ({verdict.design.votes})"
    shares = [measured(run.records, GOLD_IN_CONTEXT)[GOLD_IN_CONTEXT] for run in runs]
    measured_shares = [share for share in shares if share is not None]
    row[GOLD_IN_CONTEXT] = fmean(measured_shares) if len(measured_shares) == len(runs) else None
    row["failed"] = _failed(runs)
    for measure in ("calls", "tokens", "cost_usd"):
        row[measure] = per_question(runs, measure)
    row["seconds"] = fmean(run.summary.latency_s.get("mean", 0.0) for run in runs)
    return row
