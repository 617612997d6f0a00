"""Which program to use, as people read it."""

from ragbench.experiments.recommend import Advice, RouterAdvice
from ragbench.experiments.report.table import Column, Table, print_table, say, with_interval
from ragbench.programs.routing import leaves


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
        print_table(_rule([arm.label for arm in advice.arms], router))


def _rule(labels: list[str], router: RouterAdvice) -> Table:
    """A row per leaf of the learned rule: conditions, program, each program's mean on it."""
    rows = [
        {
            "if": " and ".join(met) or "any question",
            "use": labels[leaf.program],
            "n": leaf.n,
            **dict(zip(labels, leaf.means, strict=True)),
        }
        for met, leaf in leaves(router.learned)
    ]
    columns = (
        Column("if", "if the question"),
        Column("use"),
        Column("n", kind="count"),
        *(Column(label, kind="score", drop=1) for label in labels),
    )
    oracle = "" if router.oracle is None else f"; the best program of each: {router.oracle:.3f}"
    title = f"the rule, with the means of the questions that it was learned from{oracle}"
    return Table("rule", columns, rows, title)
