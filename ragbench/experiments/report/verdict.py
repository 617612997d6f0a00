"""A verdict as people read it: the sentences first, then the numbers that they rest on."""

import math
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from ragbench.experiments.compare.paired import EVIDENCE
from ragbench.experiments.compare.spending import Spending, per_question
from ragbench.experiments.compare.verdicts import COMPILED, ZERO_SHOT, Look, Verdict
from ragbench.experiments.report.comparison import (
    cluster_line,
    compared,
    compared_columns,
    sentence,
)
from ragbench.experiments.report.table import (
    Column,
    Table,
    for_machines,
    print_table,
    say,
    with_interval,
)
from ragbench.experiments.report.tables import evidence_lines, measured, money
from ragbench.experiments.runs import Evaluation
from ragbench.metrics import LEAST_SEEDS

#: A compile that fails so often would have shown among enough seeds.
RARE = 0.1


def print_verdict(verdict: Verdict) -> None:
    """Print conclusions and what a reader must know beside them; then every number."""
    say(*summary_lines(verdict))
    if for_machines():
        rows = [{"metric": m, "conclusion": verdict.conclusion(m)} for m in verdict.design.metrics]
        print_table(Table("conclusions", (Column("metric"), Column("conclusion")), rows))
    print_table(_arms(verdict))
    say(*_by_seed(verdict))
    for name in (ZERO_SHOT, COMPILED):
        for run in verdict.arms[name]:
            say(*(f"{run.folder.name}, {line}" for line in evidence_lines(run.records)))
    print_table(_contrasts(verdict))
    every = [c for by_metric in verdict.contrasts.values() for c in by_metric.values()]
    say(*cluster_line(every), *_looks(verdict))
    say(*_spending(verdict.spending))
    for change, qids in (("fixed", verdict.fixed), ("broken", verdict.broken)):
        say(f"{change}: {len(qids)} questions{' ' + ', '.join(qids[:20]) if qids else ''}")
    say(f"verdict: {verdict.folder}")


def summary_lines(verdict: Verdict) -> list[str]:
    """The verdict in words, with what a reader must know beside it."""
    lines = []
    for metric in verdict.design.metrics:
        lines.append(f"{metric}: {verdict.conclusion(metric)}")
        for (a, b), by_metric in verdict.contrasts.items():
            lines.append(f"  {b} (B) against {a}: {sentence(by_metric[metric])}")
    failed = {name: sum(run.summary.failed for run in runs) for name, runs in verdict.arms.items()}
    if any(failed.values()):
        shown = ", ".join(f"{name} {n}" for name, n in failed.items())
        lines.append(f"failures, scored as the worst and asked again by the same command: {shown}")
    if ratio := verdict.matched():
        off = "" if abs(ratio - 1) <= 0.1 else ": more than 10 % off"
        lines.append(f"votes took {ratio:.2f} times what compiled took{off}")
    n, distinct = len(verdict.sidecars), verdict.distinct_programs
    if n > 1 and distinct < n:
        lines.append(f"{n} seeds came to {distinct} different programs: fewer replications")
    if verdict.design.of_optimizer(distinct):
        enough = math.ceil(math.log(0.1) / math.log(1 - RARE))
        lines.append(
            "all seeds compiled on the same questions; a compile that fails one time in ten shows "
            f"among {n} seeds with a chance of {1 - (1 - RARE) ** n:.0%}, among {enough} with one "
            "of 90%"
        )
    elif distinct < LEAST_SEEDS:
        lines.append(
            f"this is a verdict on {verdict.subject}; one on the optimizer needs {LEAST_SEEDS} "
            "different programs, by --seeds"
        )
    else:
        lines.append("--until decided is on the programs at hand, not on the optimizer")
    return lines


def _arms(verdict: Verdict) -> Table:
    columns = (
        Column("arm"), Column("runs", kind="count", drop=3), Column("n", kind="count", drop=2),
        *(Column(metric, kind="mean", interval=True) for metric in verdict.design.metrics),
        Column(EVIDENCE, "evidence", "score", drop=1),
        Column("failed", kind="count"), Column("calls", kind="amount", drop=4),
        Column("tokens", kind="amount"), Column("cost_usd", "cost $", "usd"),
        Column("seconds", "s", "seconds", drop=6),
    )  # fmt: skip
    return Table("arms", columns, [_arm(verdict, name) for name in verdict.arms])


def _arm(verdict: Verdict, name: str) -> dict[str, Any]:
    """The row of an arm; every arm is in some contrast, which knows its means."""
    runs = verdict.arms[name]
    pair, by_metric = next(each for each in verdict.contrasts.items() if name in each[0])
    row: dict[str, Any] = {}
    for metric, c in by_metric.items():
        mean, ends = (c.mean_a, c.interval_a) if pair[0] == name else (c.mean_b, c.interval_b)
        row |= with_interval(metric, mean, ends)
    known = [share for run in runs if (share := _mean(run, EVIDENCE)) is not None]
    votes = f" ({runs[0].folder.name.rpartition('-')[2]})" if name.startswith("votes") else ""
    return {
        **row,
        "arm": name + votes,
        "runs": len(runs),
        "n": runs[0].summary.n,
        EVIDENCE: fmean(known) if len(known) == len(runs) else None,
        "failed": sum(run.summary.failed for run in runs),
        "calls": per_question(runs, "calls"),
        "tokens": per_question(runs, "prompt_tokens", "completion_tokens"),
        "cost_usd": per_question(runs, "cost_usd"),
        "seconds": fmean(run.summary.latency_s.get("mean", 0.0) for run in runs),
    }


def _by_seed(verdict: Verdict) -> Iterable[str]:
    by_seed = dict(zip(verdict.design.seeds, verdict.arms[COMPILED], strict=True))
    for metric in verdict.design.metrics if len(by_seed) > 1 else ():
        cells = [f"{seed}: {_mean(run, metric) or 0.0:.3f}" for seed, run in by_seed.items()]
        yield f"{metric} of compiled by seed: {', '.join(cells)}"


def _mean(run: Evaluation, metric: str) -> float | None:
    return measured(run.records, metric)[metric]


def _contrasts(verdict: Verdict) -> Table:
    columns = (Column("contrast", "contrast (B - A)"), Column("metric"), *compared_columns())
    rows = [
        {"contrast": f"{b} - {a}", "metric": metric, **compared(c)}
        for (a, b), by_metric in verdict.contrasts.items()
        for metric, c in by_metric.items()
    ]
    return Table("contrasts", columns, rows)


def _looks(verdict: Verdict) -> list[str]:
    runs = [run for arm in verdict.arms.values() for run in arm]
    tokens = per_question(runs, "prompt_tokens", "completion_tokens")
    n, usd = len(runs), per_question(runs, "cost_usd")
    return looks_in_words(verdict.looks, n * (tokens or 0.0), None if usd is None else n * usd)


def looks_in_words(looks: Sequence[Look], tokens: float, usd: float | None) -> list[str]:
    """A line per look, and what stopping saved at `tokens` and `usd` a question in all arms."""
    if not looks:
        return []
    lines = [
        f"look {number}, {look.questions} questions: compiled - zero-shot {look.metric} "
        f"{look.difference:+.3f}, p {look.p:.3f}, {'decided' if look.decided else 'not decided'}"
        for number, look in enumerate(looks, 1)
    ]
    last = looks[-1]
    of, left = f"{last.questions} of at most {last.most} questions", last.most - last.questions
    ended = f"decided after {of}" if last.decided else f"not decided after {of}"
    if last.decided and left:
        cost = "" if usd is None else f" and ${usd * left:,.4f}"
        ended = f"decided after {of}, which saved about {tokens * left:,.0f} tokens{cost}"
    price = "looking again has its price: in simulation it shows 52 % where one look shows 86 %"
    return [*lines, ended, price]


def _spending(spending: Spending) -> Iterable[str]:
    tokens = "unknown" if spending.ratio is None else f"{spending.ratio:.2f} times"
    yield f"inference: compiled takes {tokens} the tokens of zero-shot"
    yield (
        f"one compile: {spending.calls:,.0f} calls, {spending.tokens.once or 0:,.0f} tokens, "
        f"{money(spending.usd.once)} $, {spending.seconds:,.0f} s of calls (as if nothing had "
        "been cached, with its validation)"
    )
    yield f"in tokens: {spending.tokens.words()}; in $: {spending.usd.words()}"
