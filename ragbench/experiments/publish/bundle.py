"""`ragbench export --to bundle`: runs with their records, cards, prompts and figures in one file.

runs/NAME/run.db      records, calls, prompts and replies, as the run left them
runs/NAME/card.json   what was run, on what, by which settings and versions
manifest.json         the figures as they were printed, and the hash of every file
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import ragbench
from ragbench.errors import RunError
from ragbench.experiments.publish.archive import pack
from ragbench.experiments.report.names import label_runs
from ragbench.experiments.report.tables import row_of_run
from ragbench.experiments.runs.summary import Evaluation, reopen
from ragbench.experiments.store.schema import CARD, DATABASE
from ragbench.outputs import Output

#: Decimals of a figure; sums of floats may differ in the last ones between machines.
DECIMALS = 9


def publish(folders: Sequence[Path], out: Path, *, force: bool = False) -> dict[str, Any]:
    """Writes the bundle of the runs in `folders` to `out`, and returns what it claims.

    Raises:
        RunError: a folder holds no run, or one that cannot be read.
        ConfigError: `out` is a file that ragbench did not write, unless `force`.
    """
    output = Output(out, "export", force)
    output.check()
    runs = list(map(reopen, folders))
    run_names = names_of(runs)
    files: dict[str, bytes] = {}
    for name, run in zip(run_names, runs, strict=True):
        files[f"runs/{name}/{DATABASE}"] = _database(run.folder / DATABASE)
        files[f"runs/{name}/{CARD}"] = card_text(run)
    stated = {"runs": claims_of(run_names, runs), "ragbench": ragbench.__version__}
    output.write(pack(files, stated))
    return stated


def card_text(run: Evaluation) -> bytes:
    """Returns the card of the run, as a bundle has it beside the database."""
    return run.card.model_dump_json(indent=1).encode()


def claims_of(run_names: Sequence[str], runs: Sequence[Evaluation]) -> dict[str, dict[str, Any]]:
    """Returns what is claimed of each run: the figures of its row, and its label."""
    claims = {}
    for name, label, run in zip(run_names, label_runs(runs), runs, strict=True):
        claims[name] = {"label": label, **figures(run)}
    return claims


def figures(run: Evaluation) -> dict[str, Any]:
    """Returns the figures of the run's row in the table, rounded to `DECIMALS`."""
    row: Mapping[str, Any] = row_of_run(run)
    values = {}
    for name, value in row.items():
        values[name] = round(value, DECIMALS) if isinstance(value, float) else value
    plain: dict[str, Any] = json.loads(json.dumps(values))
    return plain


def names_of(runs: Sequence[Evaluation]) -> list[str]:
    """Returns the names of the runs' folders, made to differ."""
    run_names: list[str] = []
    for run in runs:
        name = run.folder.resolve().name
        number = 2
        while name in run_names:
            name = f"{run.folder.resolve().name}-{number}"
            number += 1
        run_names.append(name)
    return run_names


def _database(path: Path) -> bytes:
    """Returns a whole copy of the database, without what was deleted from it."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, DATABASE)
        try:
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("VACUUM INTO ?", (str(copy),))
        except sqlite3.Error as error:
            raise RunError(f"{path} cannot be copied: {error}") from None
        return copy.read_bytes()
