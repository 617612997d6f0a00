"""Finished runs in the formats of other tools: Parquet, CSV, JSON lines, inspect_ai."""

from ragbench.experiments.export.formats import TARGETS as TARGETS, export_runs as export_runs
from ragbench.experiments.export.rows import (
    COLUMNS as COLUMNS,
    open_runs as open_runs,
    rows_of as rows_of,
)
