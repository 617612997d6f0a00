"""Bundles: runs in one file with their reported figures, which anyone can verify offline.

runs/NAME/run.db    records, calls, prompts and replies of a run
manifest.json       the figures, the version of ragbench, and the hash of every file

The bytes of the archive are a function of its content: stored files, sorted, with a fixed date.
Reading therefore rebuilds the archive and compares.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import sqlite3
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any

import ragbench
from ragbench.errors import ConfigError, DataError, RunError
from ragbench.experiments.report.names import label_runs
from ragbench.experiments.report.tables import row_of_run
from ragbench.experiments.runs.summary import Evaluation, reopen
from ragbench.experiments.store import DATABASE, RunFolder
from ragbench.outputs import Output
from ragbench.paths import read_file

MANIFEST = "manifest.json"
FORMAT = 3
#: Decimals of a figure. Sums of floats may differ in the last ones between machines.
DECIMALS = 9
#: Maximum size of a bundle in bytes, because it is read into memory.
MOST_BYTES = 2 * 1024**3
_DATE = (1980, 1, 1, 0, 0, 0)
_FILE = re.compile(rf"runs/(?!\.{{1,2}}/)([^/\\\x00-\x1f]{{1,100}})/{DATABASE}")
#: Placeholder for a figure that one side lacks.
_ABSENT = "absent"
#: Minimum number of questions. With fewer, a mean is at best accurate to ten points.
LEAST_QUESTIONS = 100
#: Maximum fraction of failed questions. Above it, the score measures the server.
MOST_FAILED = 0.05
#: Parts of a name that pin a hosted model: a date or a revision.
_PINNED = re.compile(r"\d{4}-\d{2}-\d{2}|\d{8}|[-@]\d{4}$|@[0-9a-f]{7,}|^llamacpp/")
_OWN_DATA = ("data_file", "test_file", "corpus_file")


@dataclass(frozen=True)
class Figure:
    """A figure of a run: the claim, and the value recomputed from the records.

    `decimals` is the precision of an external claim. None requires equality.
    """

    run: str
    name: str
    claimed: Any
    recomputed: Any
    decimals: int | None = None

    @property
    def holds(self) -> bool:
        """True if both values are equal, to the decimals of an external claim."""
        if self.decimals is None:
            return json.dumps(self.claimed) == json.dumps(self.recomputed)
        if not isinstance(self.recomputed, int | float):
            return False
        return f"{self.recomputed:.{self.decimals}f}" == f"{self.claimed:.{self.decimals}f}"


@dataclass(frozen=True)
class Checked:
    """Figures of a bundle, its changes, and the reasons against citing each run."""

    figures: Sequence[Figure]
    changes: Sequence[str]
    not_citable: Mapping[str, Sequence[str]]

    @property
    def holds(self) -> bool:
        """True if nothing was changed and every figure holds."""
        return not self.changes and all(figure.holds for figure in self.figures)


def publish(folders: Sequence[Path], out: Path, *, force: bool = False) -> dict[str, Any]:
    """Write the bundle of runs.

    Args:
        folders: Folders of the runs.
        out: File to write.
        force: Replace a file that `ragbench export` did not write.

    Returns:
        The claims of the bundle.

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
    claims = {"runs": claims_of(runs), "ragbench": ragbench.__version__}
    output.write(pack(files, claims))
    return claims


def verify(path: Path, claims: Mapping[str, str] | None = None) -> Checked:
    """Recompute every figure of a bundle, without network access.

    Args:
        path: The bundle.
        claims: External figures, such as those of a paper: `RUN.FIGURE` -> the number as written.

    Raises:
        DataError: The file is not a bundle, or is damaged.
        ConfigError: A claim names a figure that the bundle does not have.
    """
    try:
        data = read_file(path, MOST_BYTES)
    except OSError as error:
        raise DataError(f"{path} is not a bundle: {error.strerror or error}") from None
    files, stated, changes = unpack(data)
    with tempfile.TemporaryDirectory() as folder:
        runs = _open_runs(files, Path(folder), changes)
        computed = claims_of(runs)
        reasons = {name: why_not_citable(run) for name, run in runs.items()}
    if stated.get("ragbench") != ragbench.__version__:
        changes.append(f"made by ragbench {stated.get('ragbench')}; verify it by that version")
    figures = _compared(stated.get("runs"), computed)
    for address, text in (claims or {}).items():
        name, _, figure = address.rpartition(".")
        if figure not in computed.get(name, {}):
            addresses = ", ".join(f"{run}.{key}" for run, row in computed.items() for key in row)
            raise ConfigError(f"no figure {address!r} in {path}; its figures: {addresses}")
        decimals = len(text.partition(".")[2])
        figures.append(Figure(name, figure, float(text), computed[name][figure], decimals))
    return Checked(figures, changes, reasons)


def claims_of(runs: Mapping[str, Evaluation]) -> dict[str, dict[str, Any]]:
    """Return the rounded figures of each run's row in the table, and its label."""
    claims = {}
    for name, label in zip(runs, label_runs(list(runs.values())), strict=True):
        row: Mapping[str, Any] = row_of_run(runs[name])
        values = {"label": label, **row}
        for key, value in row.items():
            if isinstance(value, float):
                values[key] = round(value, DECIMALS)
        claims[name] = json.loads(json.dumps(values))
    return claims


def pack(files: Mapping[str, bytes], claims: Mapping[str, object]) -> bytes:
    """Build the archive of a bundle.

    Args:
        files: Content by name.
        claims: JSON-ready figures.

    Returns:
        The bytes of the archive, with a manifest of hashes and claims.
    """
    hashes = {}
    for name in sorted(files):
        hashes[name] = hashlib.sha256(files[name]).hexdigest()
    body = {"format": FORMAT, "claims": claims, "files": hashes}
    members = {**files, MANIFEST: json.dumps(body, sort_keys=True, indent=1).encode()}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(members):
            archive.writestr(zipfile.ZipInfo(name, _DATE), members[name])
    return buffer.getvalue()


def unpack(data: bytes) -> tuple[dict[str, bytes], dict[str, Any], list[str]]:
    """Return the files, the claims, and one line for each change.

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
        claims = dict(body["claims"])
        hashes = dict(body["files"])
        rebuilt = pack(files, claims)
    except (zipfile.BadZipFile, AttributeError, KeyError, TypeError, ValueError, RecursionError,
            NotImplementedError, RuntimeError, OSError) as error:  # fmt: skip
        why = f"{type(error).__name__}: {error}"
        raise DataError(f"not a bundle, or a damaged one: {why}") from None
    changes = []
    for name in sorted({*files, *hashes}):
        digest = hashlib.sha256(files.get(name, b"")).hexdigest()
        if name not in files or hashes.get(name) != digest:
            changes.append(f"{name}: changed, added or removed")
    if not changes and rebuilt != data:
        changes.append("the archive itself was changed")
    return files, claims, changes


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


def _compared(stated: Any, computed: Mapping[str, Mapping[str, Any]]) -> list[Figure]:
    """Return each claimed or expected figure with the value from the records."""
    figures = []
    claimed = stated if isinstance(stated, dict) else {"claims": stated}
    for run in dict.fromkeys([*computed, *claimed]):
        row = computed.get(run, {})
        own = claimed.get(run)
        if not isinstance(own, dict):
            own = {"claims": own}
        for name in dict.fromkeys([*row, *own]):
            figures.append(Figure(run, name, own.get(name, _ABSENT), row.get(name, _ABSENT)))
    return figures


def why_not_citable(run: Evaluation) -> list[str]:
    """Return the reasons against citing a run."""
    card = run.card
    n = run.summary.n
    config = card.config or {}
    own_files = list(filter(config.get, _OWN_DATA))
    total = card.data_card.get("questions")
    reasons = {
        f"the run is not finished: {run.progress.words()}": not run.progress.complete,
        "the answers were imported: how they came about is not recorded": card.unknown,
        f"{n} questions, fewer than {LEAST_QUESTIONS}": n < LEAST_QUESTIONS,
        f"{run.summary.failed} of {n} questions failed": run.summary.failed > MOST_FAILED * n,
        f"{card.model} is no pinned model": not _PINNED.search(card.model),
        f"the data are files of the user ({', '.join(own_files)})": own_files,
        f"{n} of {total} questions were asked": config.get("limit") and total and n < total,
    }
    return list(compress(reasons, map(bool, reasons.values())))
