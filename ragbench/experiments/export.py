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
from typing import Any, Literal, NamedTuple

from ragbench.errors import ConfigError, RunError, UnknownNameError, needs_extra
from ragbench.experiments.predictions import write_predictions
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


class Column(NamedTuple):
    """A column of the export: its type and the function that computes it.

    `amount` is the name in `Record.unknown` that makes the value None.
    """

    name: str
    kind: Kind
    of: Callable[[ExportedRun, Record], Any]
    amount: str = ""

    def value(self, run: ExportedRun, record: Record) -> Any:
        """Return the value of a question. None if it is missing or unknown.

        Args:
            run: The run.
            record: Record of the question.
        """
        return record.known(self.amount, self.of(run, record))


#: Columns that precede the scores.
COLUMNS = (
    Column("run", "text", lambda run, r: run.name),
    Column("program", "text", lambda run, r: run.folder.card.program),
    Column("variant", "text", lambda run, r: str(run.folder.card.knobs.get("variant") or "")),
    Column("knobs", "json", lambda run, r: json.dumps(run.folder.card.changed_knobs)),
    Column("lm", "text", lambda run, r: run.folder.card.model),
    Column("retriever", "text", lambda run, r: run.folder.card.identity.get("retriever")),
    Column("seed", "integer", lambda run, r: run.folder.card.identity.get("seed")),
    Column("repeat", "integer", lambda run, r: run.folder.card.identity.get("repeat", 1)),
    Column("dataset", "text", lambda run, r: run.folder.card.data.name),
    Column("split", "text", lambda run, r: str(run.folder.card.identity.get("split", ""))),
    Column("qid", "text", lambda run, r: r.qid),
    Column("question", "text", lambda run, r: r.question),
    Column("type", "text", lambda run, r: r.qtype),
    Column("hops", "integer", lambda run, r: r.hops),
    Column("gold", "text", lambda run, r: r.answers[0]),
    Column("gold_answers", "texts", lambda run, r: list(r.answers)),
    Column("answer", "text", lambda run, r: r.answer),
    Column("failed", "boolean", lambda run, r: r.failed),
    Column("failure", "text", lambda run, r: r.failure.name if r.failure else None),
    Column("error", "text", lambda run, r: r.failure.error if r.failure else None),
    Column("message", "text", lambda run, r: r.failure.message if r.failure else None),
    Column("stop_reason", "text", lambda run, r: r.stop_reason),
    Column("gold_pids", "texts", lambda run, r: list(r.gold_pids)),
    Column("pids", "texts", lambda run, r: [passage.pid for passage in r.passages]),
    Column("queries", "texts", lambda run, r: [search.query for search in r.searches]),
    Column("searches", "integer", lambda run, r: len(r.searches), "retrievals"),
    Column("steps", "integer", lambda run, r: len(r.steps)),
    Column("calls", "integer", lambda run, r: r.ledger.as_if.calls, "calls"),
    Column("critical_path_calls", "integer", lambda run, r: r.ledger.path.calls,
           "critical_path_calls"),
    Column("prompt_tokens", "integer", lambda run, r: r.ledger.as_if.prompt_tokens, "tokens"),
    Column("completion_tokens", "integer", lambda run, r: r.ledger.as_if.completion_tokens,
           "tokens"),
    Column("tokens", "integer", lambda run, r: r.ledger.as_if.tokens, "tokens"),
    Column("embedder_tokens", "integer", lambda run, r: r.ledger.as_if.other_tokens, "tokens"),
    Column("cost_usd", "number", lambda run, r: r.ledger.as_if.cost_usd, "cost_usd"),
    Column("billed_calls", "integer", lambda run, r: r.ledger.billed.calls, "calls"),
    Column("billed_tokens", "integer", lambda run, r: r.ledger.billed.tokens, "tokens"),
    Column("billed_cost_usd", "number", lambda run, r: r.ledger.billed.cost_usd, "cost_usd"),
    Column("failed_calls", "integer", lambda run, r: r.ledger.as_if.failed, "calls"),
    Column("latency_s", "number", lambda run, r: r.latency_s, "latency_s"),
    Column("counts", "json", lambda run, r: json.dumps(r.counts, default=str)),
    Column("extra", "json", lambda run, r: json.dumps(r.extra, ensure_ascii=False, default=str)),
)  # fmt: skip


def columns_of(runs: Iterable[ExportedRun]) -> dict[str, Kind]:
    """Return name and kind of every column of a table of `runs`, scores included."""
    scores: dict[str, Kind] = {}
    for run in runs:
        scores.update(dict.fromkeys(run.scores, "number"))
    for column in COLUMNS:
        if column.name in scores:
            raise ConfigError(f"--metric {column.name} is already a column. Remove it.")
    return {column.name: column.kind for column in COLUMNS} | scores


def rows_of(runs: Sequence[ExportedRun]) -> Iterator[dict[str, Any]]:
    """Yield one row per question with every column of `columns_of`, None if missing."""
    columns = columns_of(runs)
    for run in runs:
        for place, record in enumerate(run.records):
            row = {column.name: column.value(run, record) for column in COLUMNS}
            row |= {name: column[place] for name, column in run.scores.items()}
            yield {name: row.get(name) for name in columns}


def to_csv(runs: Sequence[ExportedRun], output: Output) -> str:
    """Write the table as CSV, with lists as JSON.

    Args:
        runs: The runs.
        output: File to write.

    Returns:
        A line with the path and the number of questions.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns_of(runs))
    rows = list(rows_of(runs))
    for row in rows:
        cells = []
        for value in row.values():
            if isinstance(value, list):
                value = json.dumps(value, ensure_ascii=False)
            cells.append(safe_cell(value))
        writer.writerow(cells)
    output.write(out.getvalue().encode("utf-8", "replace"))
    return f"{output.path}: {len(rows)} questions"


def to_jsonl(runs: Sequence[ExportedRun], output: Output) -> str:
    """Write each complete record with the name of its run as JSON Lines.

    Args:
        runs: The runs.
        output: File to write.

    Returns:
        A line with the path and the number of questions.
    """
    lines = []
    for run in runs:
        for record in run.records:
            lines.append(
                json.dumps({"run": run.name, **record.to_dict()}, ensure_ascii=False, default=str)
            )
    output.write("".join(f"{line}\n" for line in lines).encode("utf-8", "replace"))
    return f"{output.path}: {len(lines)} questions"


def to_parquet(runs: Sequence[ExportedRun], output: Output) -> str:
    """Write the table as Parquet, with lists as lists.

    Args:
        runs: The runs.
        output: File to write.

    Returns:
        A line with the path and the number of questions.
    """
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
    table = pa.Table.from_pylist(list(rows_of(runs)), schema=schema)
    out = io.BytesIO()
    pq.write_table(table, out)
    output.write(out.getvalue())
    return f"{output.path}: {table.num_rows} questions"


def _official(target: str) -> Callable[[Sequence[ExportedRun], Output], str]:
    def to_official(runs: Sequence[ExportedRun], output: Output) -> str:
        return write_predictions(target, [run.records for run in runs], output)

    return to_official


#: Maps each format to the function that writes it.
TARGETS: dict[str, Callable[[Sequence[ExportedRun], Output], str]] = {
    "parquet": to_parquet,
    "csv": to_csv,
    "jsonl": to_jsonl,
    "hotpotqa": _official("hotpotqa"),
    "2wiki": _official("2wiki"),
    "musique": _official("musique"),
}


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
        return TARGETS[target](runs, output)
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror or error}") from None
