"""The comparison of two runs as people read it."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from ragbench.experiments.compare import GroupDifference, RunComparison
from ragbench.experiments.records import Record
from ragbench.experiments.report import console, plain, print_table
from ragbench.experiments.summary import HEADLINE
from ragbench.experiments.treatments import paired_treatments
from ragbench.metrics.base import Metric, get_metric
from ragbench.metrics.stats import Comparison, Interval


def print_comparison(result: RunComparison) -> None:
    """Print which runs, the scores with verdicts, the costs, and what was fixed and broken."""
    out = console()
    out.print(plain(f"A: {result.a.folder}"))
    out.print(plain(f"B: {result.b.folder}"))
    print_table(out, _scores(result))
    print_table(out, _costs(result))
    for name, found in result.scores.items():
        out.print(plain(f"{name}: {_sentence(found)}"))
    if result.groups:
        out.print(plain("by kind of question; intervals are not corrected for their number"))
        print_table(out, _groups(result.groups))
    _print_treatments(out, result)
    em = result.scores.get("em")
    if em and em.mcnemar:
        test = em.mcnemar
        out.print(
            plain(
                f"right only in A: {test.only_a}, only in B: {test.only_b}; McNemar p={test.p:.3f}"
            )
        )


def _print_treatments(out: Console, result: RunComparison) -> None:
    """Print the differences under each treatment of failed questions; nothing if none failed."""
    shared = [qid for qid in result.a.records if qid in result.b.records]
    found = paired_treatments(result.a, result.b, shared)
    if not found:
        return
    out.print(plain("where questions failed (scored 0 and left out: by their first records)"))
    table = Table(box=box.MARKDOWN)
    for name in ("metric", "questions that failed", "n", "A", "B", "B - A"):
        table.add_column(name, justify="left" if name[0] in "mq" else "right")
    for name in HEADLINE:
        if name in result.scores:
            for treatment, pairs in found.items():
                table.add_row(name, treatment, *_means(get_metric(name), pairs))
    print_table(out, table)


def _means(metric: Metric, pairs: Sequence[tuple[Record, Record]]) -> list[str]:
    if not pairs:
        return ["0", "-", "-", "-"]
    a, b = (
        sum(float(metric.score(pair[side]) or 0.0) for pair in pairs) / len(pairs)
        for side in (0, 1)
    )
    return [str(len(pairs)), f"{a:.3f}", f"{b:.3f}", f"{b - a:+.3f}"]


def _groups(groups: Sequence[GroupDifference]) -> Table:
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
    for name in ("metric", "n", "A", "B", "B - A", "95 % interval", "p (Holm)", "detectable"):
        table.add_column(name, justify="left" if name == "metric" else "right")
    for name, c in result.scores.items():
        table.add_row(
            name, str(c.n), f"{c.mean_a:.3f}", f"{c.mean_b:.3f}", f"{c.difference:+.3f}",
            shown_interval(c.interval, 3),
            f"{c.p_adjusted:.3f}" if c.p_adjusted is not None else "-",
            "-" if c.minimum_detectable is None else f"{c.minimum_detectable:.3f}",
        )  # fmt: skip
    return table


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
