"""Which program for which questions, as people read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich import box
from rich.table import Table

from ragbench.experiments.recommend import Advice, Arm, conclusion
from ragbench.experiments.report.tables import console, plain, print_table
from ragbench.metrics import Interval
from ragbench.programs.routing import group_of, leaves

#: Measures of spending and their digits.
_SPENDING = {"calls": 1, "tokens": 0, "cost_usd": 5}


def print_advice(advice: Advice) -> None:
    """Print the programs, the router's held-out worth, its rule, and the advice."""
    out = console()
    asked = advice.asked
    limits = ", ".join(f"{name} {limit:g}" for name, limit in asked.limits.items())
    out.print(
        plain(
            f"{len(asked.runs)} runs over {len(asked.questions)} questions, {asked.objective}"
            + (f", within {limits} per question on average" if limits else "")
        )
    )
    print_table(arm_table(advice.programs, asked.objective), "programs")
    if advice.gain is not None:
        out.print(plain(held_out_note(advice)), soft_wrap=True)
        print_table(held_out_table(advice), "held out")
        out.print(plain(rule_note(advice)), soft_wrap=True)
        print_table(rule_table(advice), "rule")
    out.print(plain("mean scores by predicted kind of question"))
    print_table(kind_table(advice), "kinds")
    for line in conclusion(advice):
        out.print(plain(line), soft_wrap=True)


def held_out_note(advice: Advice) -> str:
    """How the held-out scores were made."""
    folds = sum(advice.chosen)
    chosen = ", ".join(
        f"{label} in {n}" for label, n in zip(advice.asked.labels, advice.chosen, strict=True) if n
    )
    return (
        f"held out: each question by what was learned without it and without those that share a "
        f"gold passage, over {folds} folds (seed {advice.seed}); the best single program in "
        f"training: {chosen}"
    )


def rule_note(advice: Advice) -> str:
    """What the rule was learned from."""
    known = "wording and search scores" if advice.asked.search_k else "wording"
    state = "" if advice.shown else "; its gain is not shown, so it is not recommended"
    return (
        f"the rule learned from all questions, by their {known}{state}; these means are of the "
        "questions that it was learned from, so they flatter"
    )


def arm_table(arms: Sequence[Arm], objective: str) -> Table:
    """A row per arm: mean, interval, spending per question."""
    measures = [m for m in _SPENDING if any(arm.spending.get(m) is not None for arm in arms)]
    table = _table("program", objective, "95 % interval", *measures)
    for arm in arms:
        table.add_row(plain(arm.name), *_cells(arm, measures))
    return table


def held_out_table(advice: Advice) -> Table:
    """The best single program, the router and the oracle, with differences from the first."""
    arms = [arm for arm in (advice.single, advice.rule, advice.oracle) if arm]
    measures = [m for m in _SPENDING if any(arm.spending.get(m) is not None for arm in arms)]
    differences = [None, advice.gain, advice.headroom]
    table = _table(
        "held out", advice.asked.objective, "95 % interval", *measures, "gain", "interval of gain"
    )
    for arm, difference in zip(arms, differences, strict=True):
        gain = (
            ("-", "-")
            if difference is None
            else (f"{difference.mean:+.3f}", ends(difference.interval, "+"))
        )
        table.add_row(plain(arm.name), *_cells(arm, measures), *gain)
    return table


def rule_table(advice: Advice) -> Table:
    """A row per leaf of the rule: its conditions, its program, each program's mean on it."""
    labels = advice.asked.labels
    table = _table("if the question", "use", "n", *labels, left=2)
    for met, leaf in leaves(advice.rule_learned):
        means = [f"{mean:.3f}" for mean in leaf.means]
        words = " and ".join(met) or "any question"
        table.add_row(plain(words), plain(labels[leaf.program]), str(leaf.n), *means)
    return table


def kind_table(advice: Advice) -> Table:
    """Mean scores of each program by the kind of question that its wording predicts."""
    kinds: dict[str, list[int]] = {}
    for number, question in enumerate(advice.asked.questions.values()):
        kinds.setdefault(group_of(question), []).append(number)
    table = _table("predicted", "n", *advice.asked.labels)
    for kind in sorted(kinds):
        means = advice.asked.table.scores[kinds[kind]].mean(axis=0)
        table.add_row(kind, str(len(kinds[kind])), *(f"{mean:.3f}" for mean in means))
    return table


def ends(interval: Interval | None, sign: str = "") -> str:
    """An interval as [0.412, 0.513], "-" where there is none."""
    if interval is None:
        return "-"
    return f"[{interval.low:{sign}.3f}, {interval.high:{sign}.3f}]"


def _cells(arm: Arm, measures: Sequence[str]) -> list[str]:
    spent = [_amount(arm.spending, measure) for measure in measures]
    return [f"{arm.mean:.3f}", ends(arm.interval), *spent]


def _amount(spending: Mapping[str, float | None], measure: str) -> str:
    mean = spending.get(measure)
    return "unknown" if mean is None else f"{mean:,.{_SPENDING[measure]}f}"


def _table(*columns: str, left: int = 1) -> Table:
    table = Table(box=box.MARKDOWN)
    for number, name in enumerate(columns):
        table.add_column(plain(name), justify="left" if number < left else "right")
    return table
