"""Comparisons as sentences, followed by the numbers."""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from ragbench.experiments.compare.comparisons import RunComparison
from ragbench.experiments.report.brief import comparison_section
from ragbench.experiments.report.repeats import label_arms
from ragbench.experiments.report.rows import COMPARED, FOR_MACHINES, compared_rows, cost_row
from ragbench.experiments.report.sections import Report, Section, full
from ragbench.experiments.report.table import Column, Table
from ragbench.experiments.runs.summary import GOLD_IN_CONTEXT
from ragbench.metrics import THESE_QUESTIONS, Comparison


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
    several = (Column("run", "B"),) if len(results) > 1 else ()
    yield _scores(named, several)
    yield from cluster_line(chain.from_iterable(result.scores.values() for result in results))
    for name, result in named:
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
        for row in compared_rows({"run": name}, result.scores):
            rows.append(row)
            if row["metric"] == "em" and result.gold_in_context:
                # Informational row: not part of the test family and without a verdict.
                untested = ["p", "detectable", *(column.name for column in FOR_MACHINES)]
                [beside] = compared_rows({"run": name}, {GOLD_IN_CONTEXT: result.gold_in_context})
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
