"""Table for a paper: a row and a column for each value of a setting, with seeds pooled."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from ragbench.errors import RunError, UnknownNameError
from ragbench.experiments.report.names import lm_aliases, name_of_system
from ragbench.experiments.report.rows import known_columns, mean_row, protocol_labels, protocol_row
from ragbench.experiments.report.table import Column, Table
from ragbench.experiments.report.tables import sizes_in_words
from ragbench.experiments.runs.settings import lm_name
from ragbench.experiments.runs.summary import Evaluation
from ragbench.experiments.score.protocols import Protocol
from ragbench.metrics import get_metric

#: Settings that rows and columns can show.
BY: Mapping[str, Callable[[Evaluation], str]] = {
    "program": lambda run: name_of_system(run.card),
    "dataset": lambda run: run.card.data.name,
    "lm": lambda run: lm_aliases([run.card])[lm_name(run.card.model)],
    "retriever": lambda run: str(run.card.identity.get("retriever", "")),
}


def paper_table(
    runs: Sequence[Evaluation],
    rows: str,
    columns: str,
    metrics: Sequence[str],
    protocol: Protocol | None = None,
) -> Table:
    """Return the mean of each metric with its 95 % interval, for runs by two of `BY`.

    Runs of one row and one column are seeds of one program. The score of a question is the mean
    over the seeds that have one.

    Args:
        runs: The runs.
        rows: Setting of the rows.
        columns: Setting of the columns.
        metrics: Names of metrics.
        protocol: Protocol whose scores are further columns, without an interval for pooled runs.

    Raises:
        UnknownNameError: `rows`, `columns` or a metric is unknown.
        RunError: Runs of one row and column are over different questions.
    """
    for by in (rows, columns):
        if by not in BY:
            raise UnknownNameError("grouping", by, BY)
    members: dict[tuple[str, str], list[Evaluation]] = {}
    for run in runs:
        run.records.compute([get_metric(metric).score for metric in metrics])
        members.setdefault((BY[rows](run), BY[columns](run)), []).append(run)
    across = list(dict.fromkeys(column for _, column in members))
    lines: dict[str, dict[str, Any]] = {}
    for (row, column), together in members.items():
        line = lines.setdefault(row, {rows: row})
        for metric in metrics:
            line |= _pooled(together, metric, f"{column} {metric}")
        if protocol is not None:
            for name, value in protocol_row(together, protocol).items():
                line[f"{column} {name}"] = value
    if protocol is not None:
        metrics = [*metrics, *protocol_labels(protocol)]
    heads = [Column(rows)]
    for column in across:
        labels = [f"{column} {metric}" for metric in metrics]
        heads += known_columns(list(lines.values()), labels)
    n = sizes_in_words(len(run.records) for run in runs)
    seeds = max(map(len, members.values()))
    pooled = f", up to {seeds} runs pooled" if seeds > 1 else ""
    title = f"Means with 95 % intervals over {n} questions{pooled}; differences are not tested"
    if protocol is not None:
        title += f"; in {protocol.name}: as defined by that protocol"
    return Table("paper", heads, list(lines.values()), title)


def _pooled(runs: Sequence[Evaluation], metric: str, name: str) -> dict[str, float | None]:
    base = runs[0]
    if any(set(run.records) != set(base.records) for run in runs):
        folders = ", ".join(str(run.folder) for run in runs)
        raise RunError(f"{folders} belong to one cell of the table but have different questions")
    kind = get_metric(metric)
    sides = [run.records.column(kind.score) for run in runs]
    scores: dict[str, float | None] = {}
    for qid in sorted(base.records):
        values_of_question = []
        for side in sides:
            score = side[qid]
            if score is not None:
                values_of_question.append(score)
        if values_of_question:
            scores[qid] = fmean(values_of_question)
    return mean_row(name, scores, base.records, kind.score_range)
