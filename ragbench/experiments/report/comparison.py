"""The comparison of two runs as people read it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from ragbench.experiments.compare import GroupDifference, RunComparison
from ragbench.experiments.records import StoredRecords
from ragbench.experiments.report.means import mean_with_half
from ragbench.experiments.report.tables import console, plain, print_table
from ragbench.experiments.runs import HEADLINE, paired_treatments
from ragbench.metrics import Comparison, Interval, Metric, get_metric


def print_comparison(result: RunComparison) -> None:
    """Print which runs, the scores with verdicts, the costs, and what was fixed and broken."""
    out = console()
    out.print(plain(f"A: {result.a.folder}"))
    out.print(plain(f"B: {result.b.folder}"))
    print_table(_scores(result), "scores")
    for line in (*_partly_scored(result), *cluster_line(result.scores.values())):
        out.print(plain(line))
    print_table(_costs(result), "costs")
    for name, comparison in result.scores.items():
        out.print(plain(f"{name}: {_sentence(comparison)}"))
    if result.groups:
        out.print(plain("results by group of questions; intervals are not corrected"))
        print_table(group_table(result.groups), "groups")
    _print_treatments(out, result)
    em = result.scores.get("em")
    if em and em.mcnemar:
        test = em.mcnemar
        out.print(
            plain(
                f"right only in A: {test.only_a}, only in B: {test.only_b}; McNemar p={test.p:.3f}"
            )
        )


def _partly_scored(result: RunComparison) -> list[str]:
    """Which metrics are not of all questions that both runs have."""
    shared = sum(qid in result.b.records for qid in result.a.records)
    few = [f"{name} {c.n}" for name, c in result.scores.items() if c.n < shared]
    if not few:
        return []
    return [f"of {shared} questions, both runs have a score of: {', '.join(few)}"]


def _print_treatments(out: Console, result: RunComparison) -> None:
    """Print the differences under each treatment of failed questions; nothing if none failed."""
    shared = [qid for qid in result.a.records if qid in result.b.records]
    scores = paired_treatments(result.a, result.b, shared)
    if not scores:
        return
    out.print(plain("policies for failed questions (scored 0, left out: by the first record)"))
    table = Table(box=box.MARKDOWN)
    for name in ("metric", "questions that failed", "n", "A", "B", "B - A"):
        table.add_column(name, justify="left" if name[0] in "mq" else "right")
    for name in HEADLINE:
        if name in result.scores:
            for treatment, sides in scores.items():
                table.add_row(name, treatment, *_means(get_metric(name), sides))
    print_table(table, "failure policies")


def _means(metric: Metric, sides: tuple[StoredRecords, StoredRecords]) -> list[str]:
    n = len(sides[0])
    if not n:
        return ["0", "-", "-", "-"]
    a, b = (sum(score or 0.0 for score in s.column(metric.score).values()) / n for s in sides)
    return [str(n), f"{a:.3f}", f"{b:.3f}", f"{b - a:+.3f}"]


def group_table(groups: Sequence[GroupDifference]) -> Table:
    """A row per group and metric, with the interval of the difference."""
    table = Table(box=box.MARKDOWN)
    for name in ("by", "group", "metric", "n", "A", "B", "B - A", "95 % interval"):
        table.add_column(name, justify="left" if name in ("by", "group", "metric") else "right")
    for g in groups:
        table.add_row(
            *(plain(text) for text in (g.by, g.group, g.metric, g.n)),
            f"{g.mean_a:.3f}", f"{g.mean_b:.3f}", f"{g.mean_b - g.mean_a:+.3f}",
            shown_interval(g.interval, 3),
        )  # fmt: skip
    return table


def _scores(result: RunComparison) -> Table:
    table = Table(box=box.MARKDOWN)
    for name in ("metric", "n", *COMPARED):
        table.add_column(name, justify="left" if name == "metric" else "right")
    for name, c in result.scores.items():
        table.add_row(name, str(c.n), *compared(c))
    return table


#: The columns of `compared`.
COMPARED = ("A", "B", "B - A", "95 % interval", "p (Holm)", "sign flips", "detectable")


def compared(c: Comparison) -> tuple[str, ...]:
    """The cells of a comparison under `COMPARED`; a mean has half its 95 % interval beside it."""
    return (
        mean_with_half(c.mean_a, c.interval_a),
        mean_with_half(c.mean_b, c.interval_b),
        f"{c.difference:+.3f}",
        shown_interval(c.interval, 3),
        "-" if c.p_adjusted is None else f"{c.p_adjusted:.3f}",
        f"{c.p_sign_flip:.3f}",
        "-" if c.minimum_detectable is None else f"{c.minimum_detectable:.3f}",
    )


def cluster_line(comparisons: Iterable[Comparison]) -> list[str]:
    """A line on the clusters of questions in `comparisons`; none where there are no clusters."""
    used = [c.estimate for c in comparisons if c.estimate and c.estimate.clusters < c.n]
    if not used:
        return []
    effects = sorted(estimate.design_effect for estimate in used)
    return [
        f"questions count by {used[0].clusters} clusters that share gold passages: design effect "
        f"{effects[0]:.2f} to {effects[-1]:.2f}"
    ]


def _costs(result: RunComparison) -> Table:
    table = Table(box=box.MARKDOWN)
    for name in ("per question", "A", "B", "B - A", "95 % interval", "B / A"):
        table.add_column(name, justify="left" if name == "per question" else "right")
    for name, c in result.costs.items():
        if c is None:
            table.add_row(name, *["unknown"] * 5)
            continue
        digits = 5 if name == "cost $" else 2
        table.add_row(
            name, f"{c.mean_a:.{digits}f}", f"{c.mean_b:.{digits}f}",
            f"{c.difference:+.{digits}f}", shown_interval(c.interval, digits), _ratio(c),
        )  # fmt: skip
    return table


def shown_interval(interval: Interval | None, digits: int) -> str:
    """`interval` with signs, "-" where there is none."""
    if interval is None:
        return "-"
    return f"[{interval.low:+.{digits}f}, {interval.high:+.{digits}f}]"


def _ratio(c: Comparison) -> str:
    return f"{c.mean_b / c.mean_a:.2f}" if c.mean_a else "-"


def _sentence(c: Comparison) -> str:
    return c.verdict if c.verdict.startswith("no difference") else f"B is {c.verdict}"
