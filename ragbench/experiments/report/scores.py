"""Tables of a scored run: metrics, treatments of failures, breakdowns, judges, protocols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table

from ragbench.experiments.report.means import half
from ragbench.experiments.report.score_tables import budget_table, efficiency_table, gold_table
from ragbench.experiments.report.tables import console, plain, print_table
from ragbench.experiments.runs import GROUP_NAMES
from ragbench.experiments.score import Scored
from ragbench.experiments.score.annotate import describe

#: What a row of a breakdown holds beside its means.
_NO_METRIC = ("n", "n_failed", "intervals")
#: From here on a mean is shown as a whole number.
_LARGE = 100


def print_scores(runs: Sequence[Scored]) -> None:
    """Print the tables of all `runs`, and what the tables do not show."""
    out = console()
    for run in runs:
        out.print(plain(f"{name_of(run)}: {run.folder}"), soft_wrap=True)
    print_table(metric_table(runs), "metrics")
    failing = [run for run in runs if run.summary["n_failed"]]
    if failing:
        out.print(plain("policies for failed questions: scored as the worst, left out, "
                        "and not available"), soft_wrap=True)  # fmt: skip
        print_table(failure_table(failing), "failures")
    out.print(plain("results by group of questions"))
    print_table(breakdown_table(runs), "groups")
    out.print(plain("cost, as if nothing had been cached"))
    print_table(efficiency_table(runs), "costs")
    out.print(plain("exact match within a share of the highest cost of a question, and area"))
    print_table(budget_table(runs), "budgets", drop=("75%", "25%", "of", "50%"))
    gold = gold_table(runs)
    if gold:
        out.print(plain("which search first found each gold passage"))
        print_table(gold, "gold passages")
    for run in runs:
        for line in notes(run):
            prefix = f"{name_of(run)}: " if len(runs) > 1 else ""
            out.print(plain(prefix + line), soft_wrap=True)


def name_of(run: Scored) -> str:
    """Program, variant and data of a run."""
    identity = run.card.identity
    variant = run.card.knobs.get("variant", "")
    more = f" ({variant})" if variant not in ("", "default") else ""
    return f"{identity['program']}{more} on {run.card.data.name}, {run.card.model}"


def metric_table(runs: Sequence[Scored]) -> Table:
    """A row per metric, a column per run; n where not every question has the score."""
    table = _table("metric", [_column(run, i, runs) for i, run in enumerate(runs)])
    scores = [run.summary["scores"] for run in runs]
    table.add_row("questions", *(str(run.summary["n"]) for run in runs))
    table.add_row("failed", *(str(run.summary["n_failed"]) for run in runs))
    for name in dict.fromkeys(name for by_name in scores for name in by_name):
        cells = [_cell(run.summary, name) for run in runs]
        table.add_row(plain(name), *cells)
    return table


def failure_table(runs: Sequence[Scored]) -> Table:
    """The three treatments of failed questions, for the metrics that they change."""
    table = _table("run", ["metric", "failed", "as worst", "without", "n/a"])
    for run in runs:
        for name, score in run.summary["scores"].items():
            failures = score.get("failures")
            if failures is None or failures["excluded"] == failures["as_worst"]:
                continue
            without = _number(failures["excluded"]) + half(failures.get("excluded_interval"))
            cells = (name, failures["n"], _mean(score), without, "-")
            table.add_row(plain(run.folder.name), *(plain(cell) for cell in cells))
    return table


def breakdown_table(runs: Sequence[Scored]) -> Table:
    """A row per run and group of questions."""
    every = [
        (run, by, group, row)
        for run in runs
        for by, groups in run.summary["breakdowns"].items()
        for group, row in groups.items()
    ]
    metrics = list(dict.fromkeys(
        name for _, _, _, row in every for name in row if name not in _NO_METRIC
    ))  # fmt: skip
    head = ["by", "group", "n", "failed", *metrics]
    table = _table("run", head) if len(runs) > 1 else _table(head[0], head[1:])
    for run, by, group, row in every:
        cells: list[object] = [GROUP_NAMES.get(by, by), group, row["n"], row["n_failed"]]
        halves = row.get("intervals", {})
        cells += [_number(row.get(name)) + half(halves.get(name)) for name in metrics]
        first = [run.folder.name] if len(runs) > 1 else []
        table.add_row(*(plain(cell) for cell in [*first, *cells]))
    return table


def notes(run: Scored) -> list[str]:
    """What the tables do not show: where support comes from, judges, protocol, bad lines."""
    summary = run.summary
    lines: list[str] = []
    if summary["support_kinds"]:
        counts = ", ".join(f"{kind} {n}" for kind, n in summary["support_kinds"].items())
        lines.append(f"supporting sentences: {counts} of {summary['n']}")
    if summary["evidence_kinds"]:
        counts = ", ".join(f"{kind} {n}" for kind, n in summary["evidence_kinds"].items())
        lines.append(f"evidence triples: {counts} of {summary['n']}")
    asked = {"attribution": summary["attribution"], "evidence": summary["evidence"]}
    for name, counts in {**asked, **summary["judges"]}.items():
        lines += describe(name, counts) if counts else []
    if "protocol" in summary:
        lines += protocol_lines(summary["protocol"])
    if run.corrupt:
        numbers = ", ".join(map(str, run.corrupt))
        lines.append(f"warning: records.jsonl line {numbers} could not be read and was left out")
    return lines


def protocol_lines(protocol: Mapping[str, Any]) -> list[str]:
    """The scores under a protocol, every deviation, and what was not checked."""
    lines = [f"protocol {protocol['name']}"]
    for name, score in protocol["scores"].items():
        empty = score.get("without_score")
        note = f", {empty} without the score count 0" if empty else ""
        lines.append(f"  {name}: {_mean(score)} over {score['n']} ({score['over']}{note})")
    lines += [f"  {name}: no question has it" for name in protocol["missing"]]
    lines += [f"  differs: {text}" for text in protocol["deviations"]]
    lines += [f"  not checked: {text}" for text in protocol["unchecked"]]
    return lines


def _column(run: Scored, index: int, runs: Sequence[Scored]) -> str:
    if len(runs) == 1:
        return "mean"
    same = [other.folder.name for other in runs].count(run.folder.name) > 1
    return f"{run.folder.name} {index + 1}" if same else run.folder.name


def _cell(summary: Mapping[str, Any], name: str) -> str:
    score = summary["scores"].get(name)
    if score is None:
        return "-"
    part = f" (n {score['n']})" if score["n"] != summary["n"] else ""
    return _mean(score) + part


def _mean(score: Mapping[str, Any]) -> str:
    """A mean with half the width of its interval; older scores have none."""
    width = half(score.get("interval")) if abs(score["mean"]) < _LARGE else ""
    return _number(score["mean"]) + width


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if abs(value) < _LARGE else f"{value:,.0f}"


def _table(first: str, others: Sequence[str]) -> Table:
    table = Table(box=box.MARKDOWN)
    table.add_column(first, no_wrap=True)
    for name in others:
        text = name in ("metric", "group")
        table.add_column(plain(name), justify="left" if text else "right", no_wrap=True)
    return table
