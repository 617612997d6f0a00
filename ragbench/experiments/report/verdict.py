"""A verdict as people read it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from rich import box
from rich.table import Table

from ragbench.experiments.compare import (
    COMPILED,
    ZERO_SHOT,
    PromptChange,
    Spending,
    Verdict,
    looks_in_words,
    per_question,
    subject,
)
from ragbench.experiments.report.comparison import (
    COMPARED,
    cluster_line,
    compared,
    group_table,
)
from ragbench.experiments.report.means import mean_with_half
from ragbench.experiments.report.tables import PAID, console, plain, print_table
from ragbench.experiments.report.trace import trace_lines
from ragbench.experiments.runs import Evaluation
from ragbench.metrics import LEAST_SEEDS, Comparison
from ragbench.record import Record


def print_verdict(verdict: Verdict, *, show: int = 2) -> None:
    """Print arms, contrasts, conclusions, groups, prompts, spending and `show` questions of each.

    Those are questions fixed and questions broken, with the traces of both arms.
    """
    out = console()
    print_table(_arms(verdict), "arms")
    print_table(_contrasts(verdict), "contrasts")
    for line in (*cluster_line(_all(verdict)), *_variance(verdict), *_looks(verdict)):
        out.print(plain(line), soft_wrap=True)
    if verdict.groups:
        out.print(plain("compiled (B) against zero-shot (A) by group, uncorrected, no verdict:"))
        print_table(group_table(verdict.groups), "groups")
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
        for (a, b), by_metric in verdict.contrasts.items():
            lines.append(f"  {b} against {a}: {by_metric[metric].verdict}")
    failed = {name: sum(run.summary.failed for run in runs) for name, runs in verdict.arms.items()}
    if any(failed.values()):
        shown = ", ".join(f"{name} {n}" for name, n in failed.items())
        lines.append(f"failures, scored as the worst and asked again by the same command: {shown}")
    lines += [
        f"{arm} took {ratio:.2f} times what compiled took"
        + ("" if abs(ratio - 1) <= 0.1 else ": more than 10 % off")
        for arm, ratio in verdict.matched().items()
    ]
    n, distinct = len(verdict.sidecars), verdict.distinct_programs
    if n > 1 and distinct < n:
        lines.append(f"{n} seeds came to {distinct} different programs: fewer replications")
    if not verdict.design.of_optimizer(distinct):
        lines.append(_of_programs(verdict))
    lines.append(f"verdict: {verdict.folder}")
    return lines


def _of_programs(verdict: Verdict) -> str:
    if verdict.distinct_programs < LEAST_SEEDS:
        who = subject(verdict.design, verdict.distinct_programs)
        return (
            f"this is a verdict on {who}; one on the optimizer needs {LEAST_SEEDS} different "
            "programs, by --seeds"
        )
    return "--exact and --until decided give verdicts on the programs at hand, not on the optimizer"


def _arms(verdict: Verdict) -> Table:
    table = Table(box=box.MARKDOWN)
    every = [run for runs in verdict.arms.values() for run in runs]
    paid = (PAID,) if any(run.summary.billed.list_usd for run in every) else ()
    costs = ("failed", "calls", "tokens", "cost $", *paid, "s")
    names = ("arm", "runs", "n", *verdict.design.metrics, *costs)
    for name in names:
        table.add_column(name, justify="left" if name == "arm" else "right")
    for name, runs in verdict.arms.items():
        scores = [_mean(verdict, name, metric) for metric in verdict.design.metrics]
        prices = [per_question(runs, "cost_usd")]
        if paid:
            prices.append(per_question(runs, "cost_usd", of="billed"))
        votes = f" ({runs[0].folder.name.rpartition('-')[2]})" if name.startswith("votes") else ""
        table.add_row(
            name + votes, str(len(runs)), str(runs[0].summary.n),
            *scores,
            str(sum(run.summary.failed for run in runs)),
            f"{per_question(runs, 'calls') or 0:.1f}",
            f"{per_question(runs, 'prompt_tokens', 'completion_tokens') or 0:,.0f}",
            *("unknown" if usd is None else f"{usd:.5f}" for usd in prices),
            f"{_seconds(runs):.1f}",
        )  # fmt: skip
    return table


def _mean(verdict: Verdict, arm: str, metric: str) -> str:
    """The mean score of an arm with its interval; every arm is in some contrast."""
    pair, c = next((p, by_metric[metric]) for p, by_metric in verdict.contrasts.items() if arm in p)
    if pair[0] == arm:
        return mean_with_half(c.mean_a, c.interval_a)
    return mean_with_half(c.mean_b, c.interval_b)


def _all(verdict: Verdict) -> Iterable[Comparison]:
    return (c for by_metric in verdict.contrasts.values() for c in by_metric.values())


def _variance(verdict: Verdict) -> Iterable[str]:
    for metric, c in verdict.contrasts[ZERO_SHOT, COMPILED].items():
        if c.variance:
            v = c.variance
            yield (
                f"{metric}, standard deviation of compiled - zero-shot: between questions "
                f"{v.question:.3f}, between compile seeds {v.seed:.3f}, sampling {v.sampling:.3f}"
            )


def _looks(verdict: Verdict) -> list[str]:
    runs = [run for arm in verdict.arms.values() for run in arm]
    tokens = sum(per_question([r], "prompt_tokens", "completion_tokens") or 0.0 for r in runs)
    costs = [per_question([run], "cost_usd") for run in runs]
    known = [cost for cost in costs if cost is not None]
    return looks_in_words(verdict.looks, tokens, sum(known) if len(known) == len(runs) else None)


def _seconds(runs: Sequence[Evaluation]) -> float:
    means = [float(run.summary.latency_s.get("mean", 0.0)) for run in runs]
    return sum(means) / len(means)


def _contrasts(verdict: Verdict) -> Table:
    table = Table(box=box.MARKDOWN)
    for name in ("contrast (B - A)", "metric", *COMPARED):
        table.add_column(name, justify="left" if name[0] in "cm" else "right")
    for (a, b), by_metric in verdict.contrasts.items():
        for metric, c in by_metric.items():
            table.add_row(f"{b} - {a}", metric, *compared(c))
    return table


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
    for change, qids in (("fixed", verdict.fixed), ("broken", verdict.broken)):
        yield f"{change}: {len(qids)} questions{' ' + ', '.join(qids[:20]) if qids else ''}"
        for qid in qids[:show]:
            yield f"--- {change}: {qid}"
            after = _telling(verdict.arms[COMPILED], qid, right=change == "fixed")
            yield from side_by_side(
                ["ZERO-SHOT", *trace_lines(before.records[qid])],
                ["COMPILED", *trace_lines(after)],
            )


def _telling(runs: Sequence[Evaluation], qid: str, *, right: bool) -> Record:
    """The record of the first seed that got the question right, or wrong."""
    records = [run.records[qid] for run in runs]
    return next((r for r in records if (r.scores.get("em") == 1) == right), records[0])


def side_by_side(left: Sequence[str], right: Sequence[str], *, width: int = 58) -> list[str]:
    """Two texts in columns of `width` characters, lines wrapped."""
    columns = [[part for line in side for part in _wrapped(line, width)] for side in (left, right)]
    rows = max(map(len, columns))
    a, b = ([*column, *[""] * (rows - len(column))] for column in columns)
    return [f"{x:<{width}} | {y}".rstrip() for x, y in zip(a, b, strict=True)]


def _wrapped(line: str, width: int) -> list[str]:
    line = " ".join(line.splitlines())
    return [line[i : i + width] for i in range(0, len(line), width)] or [""]
