"""The formats that runs can be exported to: tables and lines of JSON here, other tools beside."""

import csv
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from ragbench.errors import ConfigError, RunError, needs_extra
from ragbench.experiments.export.inspect_logs import to_inspect
from ragbench.experiments.export.rows import ExportedRun, columns_of, open_runs, rows_of
from ragbench.experiments.report.table import safe_cell
from ragbench.experiments.store import check_output, write_whole


def to_csv(runs: Sequence[ExportedRun], path: Path) -> str:
    """Write the table as CSV, lists as JSON, and say what was written."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns_of(runs))
    rows = list(rows_of(runs))
    for row in rows:
        writer.writerow(
            safe_cell(json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value)
            for value in row.values()
        )
    write_whole(path, out.getvalue().encode("utf-8", "replace"))
    return f"{path}: {len(rows)} questions"


def to_jsonl(runs: Sequence[ExportedRun], path: Path) -> str:
    """Write each record whole, a line of JSON each with the name of its run."""
    lines = [
        json.dumps({"run": run.name, **record.to_dict()}, ensure_ascii=False, default=str)
        for run in runs
        for record in run.records
    ]
    write_whole(path, "".join(f"{line}\n" for line in lines).encode("utf-8", "replace"))
    return f"{path}: {len(lines)} questions"


def to_parquet(runs: Sequence[ExportedRun], path: Path) -> str:
    """Write the table as Parquet, lists as lists, and say what was written."""
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
    write_whole(path, out.getvalue())
    return f"{path}: {table.num_rows} questions"


#: Format -> what writes a file or folder of it.
TARGETS: dict[str, Callable[[Sequence[ExportedRun], Path], str]] = {
    "parquet": to_parquet,
    "csv": to_csv,
    "jsonl": to_jsonl,
    "inspect": to_inspect,
}


def export_runs(
    folders: Sequence[Path], target: str, output: Path | None, metrics: Sequence[str] = ()
) -> str:
    """Write the runs in `folders` as `target` to `output`, and say in a line what was written.

    `metrics` are given beside the scores that are stored.

    Raises:
        RunError: a folder is no run, or the output cannot be written.
        ConfigError: no output, or one that the format cannot be written to.
        MissingExtraError: the format's package is not installed.
    """
    runs = open_runs(folders, metrics)
    try:
        if output is None:
            raise ConfigError(f"--to {target} writes to a path; name it with -o PATH")
        if target != "inspect" and output.is_dir():
            raise ConfigError(f"{output} is a folder; name a file, such as {output}/runs.{target}")
        check_output(output)
        output.parent.mkdir(parents=True, exist_ok=True)
        return TARGETS[target](runs, output)
    except OSError as error:
        raise RunError(f"cannot write {output}: {error.strerror or error}") from None
