"""Bundles: runs in one file with their reported figures, which anyone can verify offline.

runs/NAME/run.db    records, calls, prompts and replies of a run
manifest.json       the figures of each run, and the version of ragbench

The bytes of the archive are a function of its content: stored files, sorted, with a fixed date.
Reading therefore rebuilds the archive and compares.
"""

from __future__ import annotations

import io
import json
import re
import sqlite3
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import ragbench
from ragbench.errors import ConfigError, DataError, RunError
from ragbench.experiments.report.names import label_runs
from ragbench.experiments.report.rows import row_of_run
from ragbench.experiments.runs.summary import Evaluation, reopen
from ragbench.experiments.store import DATABASE, RunFolder
from ragbench.outputs import Output
from ragbench.paths import read_file

MANIFEST = "manifest.json"
FORMAT = 4
#: Decimals of a figure. Sums of floats may differ in the last ones between machines.
DECIMALS = 9
#: Maximum size of a bundle in bytes, because it is read into memory.
MOST_BYTES = 2 * 1024**3
_DATE = (1980, 1, 1, 0, 0, 0)
_FILE = re.compile(rf"runs/(?!\.{{1,2}}/)([^/\\\x00-\x1f]{{1,100}})/{DATABASE}")
#: Placeholder for a figure that one side lacks.
_ABSENT = "absent"

Figures = Mapping[str, Mapping[str, Any]]


def publish(folders: Sequence[Path], out: Path, *, force: bool = False) -> int:
    """Write the bundle of runs and return their number.

    Args:
        folders: Folders of the runs.
        out: File to write.
        force: Replace a file that `ragbench export` did not write.

    Raises:
        RunError: A folder is not a readable run.
        ConfigError: `out` is a file of another origin.
    """
    output = Output(out, "export", force)
    output.check()
    runs: dict[str, Evaluation] = {}
    files = {}
    for run in map(reopen, folders):
        name = base = run.folder.resolve().name
        while name in runs:
            name = f"{base}-{len(runs) + 1}"
        runs[name] = run
        files[f"runs/{name}/{DATABASE}"] = _database(run.folder / DATABASE)
    output.write(pack(files, figures_of(runs)))
    return len(runs)


def verify(path: Path, claims: Mapping[str, str] | None = None) -> tuple[int, list[str]]:
    """Recompute every figure of a bundle, without network access.

    Args:
        path: The bundle.
        claims: External figures, such as those of a paper: `RUN.FIGURE` -> the number as written.

    Returns:
        The number of figures, and a line for each change and each figure that differs.

    Raises:
        DataError: The file is not a bundle, or is damaged.
        ConfigError: A claim names a figure that the bundle does not have.
    """
    try:
        data = read_file(path, MOST_BYTES)
    except OSError as error:
        raise DataError(f"{path} is not a bundle: {error.strerror or error}") from None
    files, stated, problems = unpack(data)
    with tempfile.TemporaryDirectory() as folder:
        figures = _flat(figures_of(_open_runs(files, Path(folder), problems)))
    own = _flat(stated)
    for address in dict.fromkeys([*figures, *own]):
        states, gives = (json.dumps(side.get(address, _ABSENT)) for side in (own, figures))
        if states != gives:
            problems.append(f"{address}: the bundle states {states}, and the records give {gives}")
    for address, text in (claims or {}).items():
        if address not in figures:
            raise ConfigError(f"no figure {address!r} in {path}; its figures: {', '.join(figures)}")
        value = figures[address]
        decimals = len(text.partition(".")[2])
        if not isinstance(value, int | float) or f"{value:.{decimals}f}" != text:
            problems.append(f"{address}: {text} is claimed, and the records give {value}")
    return len(figures), problems


def _flat(figures: Figures) -> dict[str, Any]:
    """Return each figure by `RUN.FIGURE`."""
    return {f"{name}.{key}": value for name, row in figures.items() for key, value in row.items()}


def figures_of(runs: Mapping[str, Evaluation]) -> dict[str, dict[str, Any]]:
    """Return the rounded figures of each run's row in the table, and its label."""
    figures = {}
    for name, label in zip(runs, label_runs(list(runs.values())), strict=True):
        row = {"label": label, **row_of_run(runs[name])}
        for key, value in row.items():
            if isinstance(value, float):
                row[key] = round(value, DECIMALS)
        figures[name] = json.loads(json.dumps(row))
    return figures


def pack(files: Mapping[str, bytes], figures: Any, version: str = ragbench.__version__) -> bytes:
    """Build the archive of a bundle.

    Args:
        files: Content by name.
        figures: Figures of each run, JSON-ready.
        version: Version of ragbench that computed them.
    """
    body = {"format": FORMAT, "ragbench": version, "runs": figures}
    members = {**files, MANIFEST: json.dumps(body, sort_keys=True, indent=1).encode()}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(members):
            archive.writestr(zipfile.ZipInfo(name, _DATE), members[name])
    return buffer.getvalue()


def unpack(data: bytes) -> tuple[dict[str, bytes], Figures, list[str]]:
    """Return the files, the stated figures, and one line for each change.

    Raises:
        DataError: The data is not a bundle of this format, or is damaged.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
                raise zipfile.BadZipFile("its files are compressed")
            if sum(entry.file_size for entry in entries) > len(data):
                raise zipfile.BadZipFile("its files are larger than the bundle")
            files = {entry.filename: archive.read(entry) for entry in entries}
        body = json.loads(files.pop(MANIFEST))
        if body["format"] != FORMAT:
            raise DataError(f"a bundle of format {body['format']}; this version reads {FORMAT}")
        figures = {name: dict(row) for name, row in body["runs"].items()}
        rebuilt = pack(files, body["runs"], body["ragbench"])
    except (zipfile.BadZipFile, AttributeError, KeyError, TypeError, ValueError, RecursionError,
            NotImplementedError, RuntimeError, OSError) as error:  # fmt: skip
        why = f"{type(error).__name__}: {error}"
        raise DataError(f"not a bundle, or a damaged one: {why}") from None
    changes = []
    if rebuilt != data:
        changes.append("the archive was changed")
    if body["ragbench"] != ragbench.__version__:
        changes.append(f"made by ragbench {body['ragbench']}; verify it by that version")
    return files, figures, changes


def _database(path: Path) -> bytes:
    """Return a compact copy of the database, without deleted content."""
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(folder, DATABASE)
        try:
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("VACUUM INTO ?", (str(copied),))
        except sqlite3.Error as error:
            raise RunError(f"{path} cannot be copied: {error}") from None
        return copied.read_bytes()


def _open_runs(
    files: Mapping[str, bytes], folder: Path, changes: list[str]
) -> dict[str, Evaluation]:
    """Open the runs of a bundle in `folder` by name; add faults to `changes`."""
    runs: dict[str, Evaluation] = {}
    for file in sorted(files):
        match = _FILE.fullmatch(file)
        if match is None:
            changes.append(f"{file}: not a file of a bundle")
            continue
        target = folder / match[1]
        target.mkdir()
        (target / DATABASE).write_bytes(files[file])
        try:
            run = Evaluation(RunFolder(target, check=True))
            if changed := {*run.records.damaged, *run.records.with_other_facts()}:
                changes.append(f"{file}: {len(changed)} records were changed")
            run.card  # noqa: B018  # it is a run, or this raises
            runs[match[1]] = run
        except RunError as error:
            changes.append(f"{file}: {str(error).replace(str(target), 'it')}")
    return runs
