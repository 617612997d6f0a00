"""Tables of a scored run: metrics, breakdowns, judges, protocols."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ragbench.experiments.report.table import Column, Table, print_table, say, with_interval
from ragbench.experiments.report.tables import name_of_system, unread_lines
from ragbench.experiments.runs import GROUP_NAMES
from ragbench.experiments.score.scoring import Scored, describe

#: What a row of a breakdown holds beside its means.
_NO_METRIC = frozenset({"n", "n_failed", "intervals"})
_MEAN = Column("mean", kind="mean", interval=True)


def print_scores(runs: Sequence[Scored]) -> None:
    """Print the tables of all `runs`, and what the tables do not show."""
    for run in runs:
        say(f"{name_of(run)}: {run.folder}")
    for table in (metric_table(runs), breakdown_table(runs)):
        if table.rows:
            print_table(table)
    for run in runs:
        prefix = f"{name_of(run)}: " if len(runs) > 1 else ""
        say(*(prefix + line for line in notes(run)))


def name_of(run: Scored) -> str:
    """Program, variant and data of a run."""
    return f"{name_of_system(run.card)} on {run.card.data.name}, {run.card.model}"


def metric_table(runs: Sequence[Scored]) -> Table:
    """A row per metric, a column per run; n where not every question has the score."""
    names = column_names(runs)
    scores = [run.summary["scores"] for run in runs]
    rows = [
        {"metric": words} | dict(zip(names, (r.summary[key] for r in runs), strict=True))
        for words, key in (("questions", "n"), ("failed", "n_failed"))
    ]
    for metric in dict.fromkeys(metric for by_metric in scores for metric in by_metric):
        row: dict[str, Any] = {"metric": metric}
        for name, by_metric in zip(names, scores, strict=True):
            score = by_metric.get(metric, {})
            row |= with_interval(name, score.get("mean"), score.get("interval"))
            row[f"{name}_n"] = score.get("n")
        rows.append(row)
    columns = [Column("metric")]
    for name, run in zip(names, runs, strict=True):
        columns.append(Column(name, kind="mean", interval=True))
        if any(score["n"] != run.summary["n"] for score in run.summary["scores"].values()):
            columns.append(Column(f"{name}_n", f"n of {name}" if len(runs) > 1 else "n", "count"))
    return Table("metrics", columns, rows)


def breakdown_table(runs: Sequence[Scored]) -> Table:
    """A row per run and group of questions."""
    rows: list[dict[str, Any]] = []
    metrics: dict[str, None] = {}
    for run in runs:
        for by, groups in run.summary["breakdowns"].items():
            for group, found in groups.items():
                row = {"run": run.folder.name, "by": GROUP_NAMES.get(by, by), "group": group,
                       "n": found["n"], "failed": found["n_failed"]}  # fmt: skip
                for name in found.keys() - _NO_METRIC:
                    row |= with_interval(name, found[name], found.get("intervals", {}).get(name))
                metrics |= dict.fromkeys(name for name in found if name not in _NO_METRIC)
                rows.append(row)
    columns = [
        *([Column("run")] if len(runs) > 1 else []),
        Column("by"),
        Column("group"),
        Column("n", kind="count"),
        Column("failed", kind="count", drop=len(metrics) + 1),
        *(Column(name, kind="mean", interval=True, drop=at) for at, name in enumerate(metrics)),
    ]
    return Table("groups", columns, rows, "results by group of questions")


def notes(run: Scored) -> list[str]:
    """What the tables do not show: where support comes from, judges, protocol, bad lines."""
    summary, lines = run.summary, list[str]()
    for words, kinds in (("supporting sentences", summary["support_kinds"]),
                         ("evidence triples", summary["evidence_kinds"])):  # fmt: skip
        if kinds:
            counts = ", ".join(f"{kind} {n}" for kind, n in kinds.items())
            lines.append(f"{words}: {counts} of {summary['n']}")
    for name, found in summary["judges"].items():
        lines += describe(name, found)
    if "protocol" in summary:
        lines += protocol_lines(summary["protocol"])
    return [*lines, *unread_lines(run.damaged)]


def protocol_lines(protocol: Mapping[str, Any]) -> Iterator[str]:
    """The scores under a protocol, every deviation, and what was not checked."""
    yield f"protocol {protocol['name']}"
    for name, score in protocol["scores"].items():
        empty = score.get("without_score")
        note = f", {empty} without the score count 0" if empty else ""
        cell = _MEAN.cell(with_interval("mean", score["mean"], score.get("interval")))
        yield f"  {name}: {cell} over {score['n']} ({score['over']}{note})"
    yield from (f"  {name}: no question has it" for name in protocol["missing"])
    yield from (f"  differs: {text}" for text in protocol["deviations"])
    yield from (f"  not checked: {text}" for text in protocol["unchecked"])


def column_names(runs: Sequence[Scored]) -> list[str]:
    """What the column of each run is called: "mean" where there is but one."""
    if len(runs) == 1:
        return ["mean"]
    names = [run.folder.name for run in runs]
    return [f"{n} {i}" if names.count(n) > 1 else n for i, n in enumerate(names, start=1)]
