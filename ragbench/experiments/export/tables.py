"""Runs as one table, in Parquet or CSV, with the columns of `columns`."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ragbench.errors import needs_extra
from ragbench.experiments.export.columns import columns_of, rows_of
from ragbench.experiments.export.source import ExportedRun
from ragbench.experiments.records import write_whole


def to_csv(runs: Sequence[ExportedRun], path: Path) -> str:
    """Write the table as CSV, lists as JSON, and say what was written."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(columns_of(runs)), lineterminator="\n")
    writer.writeheader()
    rows = 0
    for row in rows_of(runs):
        writer.writerow({name: _cell(value) for name, value in row.items()})
        rows += 1
    write_whole(path, out.getvalue().encode("utf-8"))
    return f"{path}: {rows} questions"


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value


def to_parquet(runs: Sequence[ExportedRun], path: Path) -> str:
    """Write the table as Parquet, lists as lists, and say what was written.

    Raises:
        MissingExtraError: pyarrow is not installed.
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
    write_whole(path, out.getvalue())
    return f"{path}: {table.num_rows} questions"
