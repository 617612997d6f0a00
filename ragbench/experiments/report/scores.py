"""Tables of a scored run: metrics, judges, protocols."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ragbench.experiments.report.table import Column, Table, print_table, say, with_interval
from ragbench.experiments.report.tables import name_of_system, unread_lines
from ragbench.experiments.score.scoring import Scored, describe

_MEAN = Column("mean", kind="mean", interval=True)


def print_scores(runs: Sequence[Scored]) -> None:
    """Print the table of all `runs`, and what it does not show."""
    names = [f"{name_of_system(r.card)} on {r.card.data.name}, {r.card.model}" for r in runs]
    for name, run in zip(names, runs, strict=True):
        say(f"{name}: {run.folder}")
    print_table(metric_table(runs))
    for name, run in zip(names, runs, strict=True):
        prefix = f"{name}: " if len(runs) > 1 else ""
        say(*(prefix + line for line in notes(run)))


def metric_table(runs: Sequence[Scored]) -> Table:
    """A row per metric, a column per run; n where not every question has the score."""
    folders = [run.folder.name for run in runs]
    names = [f"{n} {i}" if folders.count(n) > 1 else n for i, n in enumerate(folders, start=1)]
    names = names if len(runs) > 1 else ["mean"]
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


def notes(run: Scored) -> list[str]:
    """What the table does not show: where support comes from, judges, protocol, bad lines."""
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
