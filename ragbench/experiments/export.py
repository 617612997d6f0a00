"""Export of runs with one row per question, as Parquet, CSV, JSON Lines or official predictions.

Parquet, CSV and pandas have the same columns (docs/comparing.md).
"""

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from ragbench.errors import ConfigError, RunError, UnknownNameError, needs_extra
from ragbench.experiments.predictions import FILES, write_predictions
from ragbench.experiments.report.table import safe_cell
from ragbench.experiments.store import RunFolder, repeats_in
from ragbench.metrics import get_metric
from ragbench.outputs import Output
from ragbench.record import Record

Kind = Literal["text", "texts", "integer", "number", "boolean", "json"]


@dataclass(frozen=True)
class ExportedRun:
    """A run, its records in the order first asked, and additional metrics to export.

    The records include the results of judges.
    """

    folder: RunFolder
    records: Sequence[Record]
    metrics: Sequence[str] = ()
    repeat: bool = False

    @property
    def name(self) -> str:
        """Name of the folder. A repeat has the name of its parent folder first."""
        path = self.folder.path.resolve()
        if self.repeat:
            return f"{path.parent.name}/{path.name}"
        return path.name

    @cached_property
    def scores(self) -> dict[str, list[float | None]]:
        """Scores of all records by metric, in order. Failed records have the worst score."""
        metric_names: dict[str, None] = {}
        for record in self.records:
            metric_names.update(dict.fromkeys(record.scores))
        metric_names.update(dict.fromkeys(self.metrics))
        columns = {}
        for name in metric_names:
            columns[name] = [_score(name, record) for record in self.records]
        return columns


def _score(name: str, record: Record) -> float | None:
    try:
        return get_metric(name).score(record)
    except UnknownNameError:  # The metric is of a plug-in that is not installed any more.
        return record.scores.get(name)


def open_runs(folders: Iterable[Path], metrics: Sequence[str] = ()) -> list[ExportedRun]:
    """Open the runs in `folders` and all their repeats, without writing to them.

    Args:
        folders: Folders of runs, or of the repeats of a run.
        metrics: Metrics to add to the stored scores.

    Raises:
        UnknownNameError: A metric does not exist.
        RunError: A folder is not a run.
    """
    for name in metrics:
        get_metric(name)
    runs = []
    for folder_given in folders:
        repeats = repeats_in(folder_given)
        for path in repeats or [folder_given]:
            folder = RunFolder(path, check=True)
            folder.card  # noqa: B018  # it is a run, or this raises
            records = list(folder.records.values())
            runs.append(ExportedRun(folder, records, metrics, repeat=bool(repeats)))
    return runs


#: Type of each column that precedes the scores, in order.
COLUMNS: dict[str, Kind] = {
    "run": "text", "program": "text", "variant": "text", "knobs": "json", "lm": "text",
    "retriever": "text", "seed": "integer", "repeat": "integer", "dataset": "text",
    "split": "text", "qid": "text", "question": "text", "type": "text", "hops": "integer",
    "gold": "text", "gold_answers": "texts", "answer": "text", "failed": "boolean",
    "failure": "text", "error": "text", "message": "text", "stop_reason": "text",
    "gold_pids": "texts", "pids": "texts", "queries": "texts", "searches": "integer",
    "steps": "integer", "calls": "integer", "critical_path_calls": "integer",
    "prompt_tokens": "integer", "completion_tokens": "integer", "tokens": "integer",
    "embedder_tokens": "integer", "cost_usd": "number", "billed_calls": "integer",
    "billed_tokens": "integer", "billed_cost_usd": "number", "failed_calls": "integer",
    "latency_s": "number", "counts": "json", "extra": "json",
}  # fmt: skip


def columns_of(runs: Iterable[ExportedRun]) -> dict[str, Kind]:
    """Return name and kind of every column of a table of `runs`, scores included."""
    scores: dict[str, Kind] = {}
    for run in runs:
        scores.update(dict.fromkeys(run.scores, "number"))
    for name in COLUMNS:
        if name in scores:
            raise ConfigError(f"--metric {name} is already a column. Remove it.")
    return COLUMNS | scores


def rows_of(runs: Sequence[ExportedRun]) -> Iterator[dict[str, Any]]:
    """Yield one row per question with every column of `columns_of`, None if missing."""
    columns = columns_of(runs)
    for run in runs:
        settings = _settings(run)
        for place, record in enumerate(run.records):
            row = settings | _answer(record) | _amounts(record)
            row |= {name: column[place] for name, column in run.scores.items()}
            yield {name: row.get(name) for name in columns}


def _settings(run: ExportedRun) -> dict[str, Any]:
    """Return the values that all questions of a run share."""
    card = run.folder.card
    return {
        "run": run.name,
        "program": card.program,
        "variant": str(card.knobs.get("variant") or ""),
        "knobs": json.dumps(card.changed_knobs),
        "lm": card.model,
        "retriever": card.identity.get("retriever"),
        "seed": card.identity.get("seed"),
        "repeat": card.identity.get("repeat", 1),
        "dataset": card.data.name,
        "split": str(card.identity.get("split", "")),
    }


def _answer(record: Record) -> dict[str, Any]:
    """Return the question, its answer or failure, and its passages."""
    failure = record.failure
    return {
        "qid": record.qid,
        "question": record.question,
        "type": record.qtype,
        "hops": record.hops,
        "gold": record.answers[0],
        "gold_answers": list(record.answers),
        "answer": record.answer,
        "failed": record.failed,
        "failure": failure and failure.name,
        "error": failure and failure.error,
        "message": failure and failure.message,
        "stop_reason": record.stop_reason,
        "gold_pids": list(record.gold_pids),
        "pids": [passage.pid for passage in record.passages],
        "queries": [search.query for search in record.searches],
        "steps": len(record.steps),
        "counts": json.dumps(record.counts, default=str),
        "extra": json.dumps(record.extra, ensure_ascii=False, default=str),
    }


def _amounts(record: Record) -> dict[str, Any]:
    """Return what a question used. An amount that the record does not know is None."""
    as_if = record.ledger.as_if
    billed = record.ledger.billed
    amounts: dict[str, dict[str, float | None]] = {
        "calls": {"calls": as_if.calls, "billed_calls": billed.calls, "failed_calls": as_if.failed},
        "critical_path_calls": {"critical_path_calls": record.ledger.path.calls},
        "tokens": {
            "prompt_tokens": as_if.prompt_tokens,
            "completion_tokens": as_if.completion_tokens,
            "tokens": as_if.tokens,
            "embedder_tokens": as_if.other_tokens,
            "billed_tokens": billed.tokens,
        },
        "cost_usd": {"cost_usd": as_if.cost_usd, "billed_cost_usd": billed.cost_usd},
        "retrievals": {"searches": len(record.searches)},
        "latency_s": {"latency_s": record.latency_s},
    }
    row: dict[str, Any] = {}
    for amount, values in amounts.items():
        for name, value in values.items():
            row[name] = record.known(amount, value)
    return row


def _csv(runs: Sequence[ExportedRun]) -> bytes:
    """Return the table as CSV, with lists as JSON."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns_of(runs))
    for row in rows_of(runs):
        cells = []
        for value in row.values():
            if isinstance(value, list):
                value = json.dumps(value, ensure_ascii=False)
            cells.append(safe_cell(value))
        writer.writerow(cells)
    return out.getvalue().encode("utf-8", "replace")


def _jsonl(runs: Sequence[ExportedRun]) -> bytes:
    """Return each complete record with the name of its run as JSON Lines."""
    lines = []
    for run in runs:
        for record in run.records:
            row = {"run": run.name, **record.to_dict()}
            lines.append(f"{json.dumps(row, ensure_ascii=False, default=str)}\n")
    return "".join(lines).encode("utf-8", "replace")


def _parquet(runs: Sequence[ExportedRun]) -> bytes:
    """Return the table as Parquet, with lists as lists."""
    with needs_extra("Parquet"):
        import pyarrow as pa
        import pyarrow.parquet as pq
    types = {
        "text": pa.string(),
        "texts": pa.list_(pa.string()),
        "integer": pa.int64(),
        "number": pa.float64(),
        "boolean": pa.bool_(),
        "json": pa.string(),
    }
    schema = pa.schema([(name, types[kind]) for name, kind in columns_of(runs).items()])
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(list(rows_of(runs)), schema=schema), out)
    return out.getvalue()


_TABLES: dict[str, Callable[[Sequence[ExportedRun]], bytes]] = {
    "parquet": _parquet,
    "csv": _csv,
    "jsonl": _jsonl,
}
#: Formats of `export_runs`: tables, and the files of official scripts.
TARGETS = (*_TABLES, *FILES)


def export_runs(
    folders: Sequence[Path],
    target: str,
    path: Path | None,
    metrics: Sequence[str] = (),
    *,
    force: bool = False,
) -> str:
    """Write runs as a file of another tool.

    Args:
        folders: Folders of the runs.
        target: One of `TARGETS`.
        path: File to write.
        metrics: Metrics to add to the stored scores.
        force: Replace a file that `ragbench export` did not write.

    Returns:
        A line with the path and the number of questions.

    Raises:
        ConfigError: `path` is missing, a folder, or a file of another origin.
        RunError: A folder is not a run, or `path` is not writable.
    """
    runs = open_runs(folders, metrics)
    if path is None:
        raise ConfigError(f"--to {target} needs an output file. Add -o PATH.")
    output = Output(path, "export", force)
    output.check()
    try:
        if target in FILES:
            return write_predictions(target, [run.records for run in runs], output)
        output.write(_TABLES[target](runs))
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror or error}") from None
    return f"{path}: {sum(len(run.records) for run in runs)} questions"
