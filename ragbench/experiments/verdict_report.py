"""A verdict as people read it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from rich import box
from rich.table import Table

from ragbench.experiments.compare_report import shown_interval
from ragbench.experiments.evaluate import Evaluation
from ragbench.experiments.prompts import PromptChange
from ragbench.experiments.records import Record
from ragbench.experiments.report import console, plain, print_table
from ragbench.experiments.spending import Spending, per_question
from ragbench.experiments.trace_report import trace_lines
from ragbench.experiments.verdict import COMPILED, ZERO_SHOT, Verdict
from ragbench.metrics.stats import Comparison


def print_verdict(verdict: Verdict, *, show: int = 2) -> None:
    """Print arms, contrasts, conclusions, groups, prompts, spending and `show` questions of each.

    Those are questions fixed and questions broken, with the traces of both arms.
    """
    out = console()
    print_table(out, _arms(verdict))
    print_table(out, _contrasts(verdict))
    for by, table in _groups(verdict):
        out.print(plain(f"compiled - zero-shot by {by}, uncorrected, no verdict:"))
        print_table(out, table)
    for line in _prompts(verdict):
        out.print(plain(line), soft_wrap=True)
    for line in _spending(verdict.spending):
        out.print(plain(line), soft_wrap=True)
    for line in _traces(verdict, show):
        out.print(plain(line), soft_wrap=True)
    for line in summary_lines(verdict):
        out.print(plain(line), soft_wrap=True)


def summary_lines(verdict: Verdict) -> list[str]:
    """The verdict in words, with what a reader must know beside it."""
    lines = []
    for metric in verdict.design.metrics:
        lines.append(f"{metric}: {verdict.conclusion(metric)}")
        for (a, b), found in verdict.contrasts.items():
            lines.append(f"  {b} against {a}: {found[metric].verdict}")
    failed = {
        name: sum(sum(run.summary["failures"].values()) for run in runs)
        for name, runs in verdict.arms.items()
    }
    if any(failed.values()):
        shown = ", ".join(f"{name} {n}" for name, n in failed.items())
        lines.append(f"failures, scored as the worst and asked again by the same command: {shown}")
    n = len(verdict.sidecars)
    if n > 1 and verdict.distinct_programs < n:
        lines.append(
            f"{n} seeds came to {verdict.distinct_programs} different programs: fewer replications"
        )
    lines.append(f"verdict: {verdict.folder}")
    return lines


def _arms(verdict: Verdict) -> Table:
    table = Table(box=box.MARKDOWN)
    costs = ("failed", "calls", "tokens", "cost $", "s")
    names = ("arm", "runs", "n", *verdict.design.metrics, *costs)
    for name in names:
        table.add_column(name, justify="left" if name == "arm" else "right")
    for name, runs in verdict.arms.items():
        scores = [_mean(verdict, name, metric) for metric in verdict.design.metrics]
        cost = per_question(runs, "cost_usd")
        votes = f" ({verdict.design.votes})" if name == "votes" else ""
        table.add_row(
            name + votes, str(len(runs)), str(runs[0].summary["n"]),
            *(f"{score:.3f}" for score in scores),
            str(sum(sum(run.summary["failures"].values()) for run in runs)),
            f"{per_question(runs, 'calls') or 0:.1f}",
            f"{per_question(runs, 'prompt_tokens', 'completion_tokens') or 0:,.0f}",
            "unknown" if cost is None else f"{cost:.5f}",
            f"{_seconds(runs):.1f}",
        )  # fmt: skip
    return table


def _mean(verdict: Verdict, arm: str, metric: str) -> float:
    """The mean score of an arm; every arm is in some contrast."""
    pair, found = next((p, c[metric]) for p, c in verdict.contrasts.items() if arm in p)
    return found.mean_a if pair[0] == arm else found.mean_b


def _seconds(runs: Sequence[Evaluation]) -> float:
    means = [float(run.summary["latency_s"].get("mean", 0.0)) for run in runs]
    return sum(means) / len(means)


def _contrasts(verdict: Verdict) -> Table:
    table = Table(box=box.MARKDOWN)
    names = ("contrast (B - A)", "metric", "A", "B", "B - A", "95 % interval", "p (Holm)")
    for name in (*names, "detectable"):
        table.add_column(name, justify="left" if name in names[:2] else "right")
    for (a, b), found in verdict.contrasts.items():
        for metric, c in found.items():
            detectable = c.minimum_detectable
            table.add_row(
                f"{b} - {a}", metric, *_numbers(c),
                "-" if c.p_adjusted is None else f"{c.p_adjusted:.3f}",
                "-" if detectable is None else f"{detectable:.3f}",
            )  # fmt: skip
    return table


def _numbers(c: Comparison) -> tuple[str, str, str, str]:
    interval = shown_interval(c.interval, 3)
    return f"{c.mean_a:.3f}", f"{c.mean_b:.3f}", f"{c.difference:+.3f}", interval


def _groups(verdict: Verdict) -> Iterable[tuple[str, Table]]:
    groupings = dict.fromkeys(by for found in verdict.groups.values() for by in found)
    for by in groupings:
        table = Table(box=box.MARKDOWN)
        for name in (by, "metric", "n", "zero-shot", "compiled", "difference", "95 % interval"):
            table.add_column(name, justify="left" if name in (by, "metric") else "right")
        for metric, found in verdict.groups.items():
            for group, c in found[by].items():
                table.add_row(plain(group), metric, str(c.n), *_numbers(c))
        yield by, table


def _prompts(verdict: Verdict) -> Iterable[str]:
    for seed, changes in zip(verdict.design.seeds, verdict.prompts, strict=True):
        yield f"prompts, seed {seed}:"
        for change in changes:
            yield f"  {change.predictor} ({change.signature}): {_what_changed(change)}"
            # The later seeds' prompts are in verdict.json; here they would bury the rest.
            if seed == verdict.design.seeds[0]:
                yield from _instructions(change)
                yield from _demos(change)


def _what_changed(change: PromptChange) -> str:
    if not change.changed:
        return "as it was"
    parts = ["new instructions"] if change.before != change.after else []
    if change.demos:
        parts.append(f"{len(change.demos)} demonstrations (about {change.demo_tokens:,} tokens)")
    return ", ".join(parts)


def _instructions(change: PromptChange) -> Iterable[str]:
    if change.before != change.after:
        lines = difflib.ndiff(change.before.splitlines(), change.after.splitlines())
        yield from (f"    {line}" for line in lines if line[:1] in "+- ")


def _demos(change: PromptChange) -> Iterable[str]:
    for demo in change.demos:
        fields = (f"{k}={' '.join(str(v).split())[:60]}" for k, v in demo.items() if k != "context")
        yield f"    + demo: {'; '.join(fields)}"


def _spending(spending: Spending) -> Iterable[str]:
    def times(ratio: float | None) -> str:
        return "unknown" if ratio is None else f"{ratio:.2f} times"

    tokens, usd = spending.tokens, spending.usd
    yield (
        f"inference: compiled takes {times(spending.ratio)} the tokens of zero-shot "
        f"(prompt {times(spending.prompt_ratio)}, replies {times(spending.completion_ratio)})"
    )
    cost = "unknown" if usd.compile is None else f"{usd.compile:.4f}"
    yield (
        f"one compile: {spending.calls:,.0f} calls, {tokens.compile or 0:,.0f} tokens, {cost} $, "
        f"{spending.seconds:,.0f} s of calls (as if nothing had been cached, with its validation)"
    )
    yield f"in tokens: {tokens.words()}; in $: {usd.words()}"


def _traces(verdict: Verdict, show: int) -> Iterable[str]:
    before = verdict.arms[ZERO_SHOT][0]
    for what, qids in (("fixed", verdict.fixed), ("broken", verdict.broken)):
        yield f"{what}: {len(qids)} questions{' ' + ', '.join(qids[:20]) if qids else ''}"
        for qid in qids[:show]:
            yield f"--- {what}: {qid}"
            after = _telling(verdict.arms[COMPILED], qid, right=what == "fixed")
            yield from side_by_side(
                ["ZERO-SHOT", *trace_lines(before.records[qid])],
                ["COMPILED", *trace_lines(after)],
            )


def _telling(runs: Sequence[Evaluation], qid: str, *, right: bool) -> Record:
    """The record of the first seed that got the question right, or wrong."""
    records = [run.records[qid] for run in runs]
    return next((r for r in records if (r["scores"].get("em") == 1) == right), records[0])


def side_by_side(left: Sequence[str], right: Sequence[str], *, width: int = 58) -> list[str]:
    """Two texts in columns of `width` characters, lines wrapped."""
    columns = [[part for line in side for part in _wrapped(line, width)] for side in (left, right)]
    rows = max(map(len, columns))
    a, b = ([*column, *[""] * (rows - len(column))] for column in columns)
    return [f"{x:<{width}} | {y}".rstrip() for x, y in zip(a, b, strict=True)]


def _wrapped(line: str, width: int) -> list[str]:
    line = " ".join(line.splitlines())
    return [line[i : i + width] for i in range(0, len(line), width)] or [""]
