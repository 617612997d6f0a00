"""Comparisons and advice as people read them: what is shown in a sentence, then the numbers."""

from collections.abc import Iterable, Sequence
from typing import Any

from ragbench.experiments.compare.paired import EVIDENCE, RunComparison
from ragbench.experiments.recommend import Advice, RouterAdvice
from ragbench.experiments.report.table import (
    Column,
    Table,
    for_machines,
    print_table,
    say,
    with_interval,
)
from ragbench.experiments.report.tables import evidence_lines, label_runs
from ragbench.metrics import Comparison
from ragbench.programs.routing import leaves

#: The columns of `compared`.
COMPARED = (
    Column("n", kind="count", drop=2),
    Column("a", "A", "mean", interval=True, drop=4),
    Column("b", "B", "mean", interval=True, drop=3),
    Column("difference", "B - A", "gain", interval=True),
    Column("p", "p (Holm)", "score", drop=5),
    Column("detectable", kind="score", drop=6),
)
#: What machines get beside them; people read it as a sentence.
FOR_MACHINES = (Column("verdict"), Column("n_needed"), Column("n_least"), Column("seeds_needed"))


def print_comparison(results: Sequence[RunComparison]) -> None:
    """Print what is shown of each run against the first; then scores and costs."""
    base = results[0].a
    first, *others = label_runs([base, *(result.b for result in results)])
    named = list(zip(others, results, strict=True))
    say(f"A: {first}, {base.folder}")
    for name, result in named:
        say(f"B: {name}, {result.b.folder}")
        say(*(f"  {metric}: {sentence(c)}" for metric, c in result.scores.items()))
    several = (Column("run", "B"),) if len(results) > 1 else ()
    print_table(_scores(named, several))
    say(*cluster_line([c for result in results for c in result.scores.values()]))
    say(*(f"A, {line}" for line in evidence_lines(base.records)))
    for name, result in named:
        say(*(f"{name}, {line}" for line in evidence_lines(result.b.records)))
        shared = sum(qid in result.b.records for qid in result.a.records)
        if few := [f"{metric} {c.n}" for metric, c in result.scores.items() if c.n < shared]:
            say(f"{name}: of {shared} questions, both have a score of: {', '.join(few)}")
    print_table(_costs(named, several))
    for name, result in named:
        b = name if several else "B"
        say(f"exactly right only in A: {len(result.broken)}, only in {b}: {len(result.fixed)}")


def sentence(c: Comparison) -> str:
    """What a comparison shows of B."""
    return c.verdict if c.verdict.startswith("no difference") else f"B is {c.verdict}"


def compared(c: Comparison) -> dict[str, Any]:
    """The row of a comparison under `COMPARED` and `FOR_MACHINES`."""
    return {
        "n": c.n,
        **with_interval("a", c.mean_a, c.interval_a),
        **with_interval("b", c.mean_b, c.interval_b),
        **with_interval("difference", c.difference, c.interval),
        "p": c.p_adjusted,
        "detectable": c.minimum_detectable,
        "verdict": c.verdict,
        "n_needed": c.n_needed,
        "n_least": c.n_least,
        "seeds_needed": c.seeds_needed,
    }


def compared_columns() -> tuple[Column, ...]:
    """The columns of `compared` in the format of the command."""
    return (*COMPARED, *FOR_MACHINES) if for_machines() else COMPARED


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


def _scores(named: Sequence[tuple[str, RunComparison]], several: Sequence[Column]) -> Table:
    columns = compared_columns()
    rows: list[dict[str, Any]] = []
    for name, result in named:
        for metric, c in result.scores.items():
            rows.append({"run": name, "metric": metric, **compared(c)})
            if metric == "em" and result.evidence:
                # It stands beside the others: no part of their family, no verdict.
                beside = compared(result.evidence) | dict.fromkeys(
                    ["p", "detectable", *(column.name for column in FOR_MACHINES)]
                )
                rows.append({"run": name, "metric": EVIDENCE, **beside})
    return Table("scores", (*several, Column("metric"), *columns), rows)


def _costs(named: Sequence[tuple[str, RunComparison]], several: Sequence[Column]) -> Table:
    columns = (
        *several,
        Column("measure", "per question"),
        Column("a", "A", "number"),
        Column("b", "B", "number"),
        Column("difference", "B - A", "number", interval=True),
        Column("ratio", "B / A", "number"),
    )
    rows = [
        {"run": name, "measure": measure, "a": None}
        if c is None
        else {"run": name, "measure": measure, "a": c.mean_a, "b": c.mean_b,
              **with_interval("difference", c.difference, c.interval),
              "ratio": c.mean_b / c.mean_a if c.mean_a else None}
        for name, result in named
        for measure, c in result.costs.items()
    ]  # fmt: skip
    return Table("costs", columns, rows)


def print_advice(advice: Advice, router: RouterAdvice | None = None) -> None:
    """Print the advice first, then the programs it is of, and what a router would come to."""
    say(*advice.sentences(), *(router.sentences() if router else ()))
    rows = [
        {
            "program": arm.label,
            **with_interval(advice.metric, arm.mean, arm.interval),
            **arm.spending,
            "advice": "use" if arm is advice.use else "",
        }
        for arm in advice.arms
    ]
    columns = (
        Column("program"),
        Column(advice.metric, kind="score", interval=True),
        Column("cost_usd", "cost $", "usd", drop=1),
        Column("tokens", kind="amount", drop=2),
        Column("calls", kind="amount", drop=3),
        Column("advice"),
    )
    print_table(Table("programs", columns, rows, f"over {len(advice.questions)} questions"))
    if router is not None:
        oracle = "" if router.oracle is None else f"; the best program of each: {router.oracle:.3f}"
        say(f"the rule, from the questions that it was learned from{oracle}")
        for met, leaf in leaves(router.learned):
            label = advice.arms[leaf.program].label
            say(f"  {' and '.join(met) or 'any question'}: {label} ({leaf.n} questions)")
