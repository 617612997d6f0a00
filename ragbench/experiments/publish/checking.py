"""`ragbench verify`: every figure of a bundle from its records, and whether it may be cited."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragbench.errors import ConfigError, RunError
from ragbench.experiments.publish.archive import read_bundle, unpack
from ragbench.experiments.publish.bundle import figures
from ragbench.experiments.runs.summary import Evaluation, reopen
from ragbench.experiments.store.schema import DATABASE

#: With fewer questions a mean is within ten points of the truth at best.
LEAST_QUESTIONS = 100
#: With a greater share of failed questions, the score is one of the server.
MOST_FAILED = 0.05
#: What pins a hosted model: a date, or a revision. Without it the name stands for what is newest.
_PINNED = re.compile(r"\d{4}-\d{2}-\d{2}|\d{8}|[-@]\d{4}$|@[0-9a-f]{7,}|^llamacpp/")
#: Files of one's own, of which the bundle holds what was shown and the hash of the rest.
_OWN_DATA = ("data_file", "test_file", "corpus_file")


@dataclass(frozen=True)
class Figure:
    """A figure of a run as it was claimed, and as its records have it."""

    run: str
    name: str
    claimed: Any
    recomputed: Any

    @property
    def holds(self) -> bool:
        """Whether the two are the same; numbers to as many places as were claimed."""
        if self.claimed == self.recomputed:
            return True
        if not isinstance(self.claimed, float) or not isinstance(self.recomputed, int | float):
            return False
        places = len(f"{self.claimed:.9f}".rstrip("0").partition(".")[2])
        return round(float(self.recomputed), places) == self.claimed


@dataclass(frozen=True)
class Checked:
    """What a bundle is worth.

    `changes` has a line for everything that was changed after it was made; `not_citable` the
    reasons of each run against citing it.
    """

    figures: Sequence[Figure]
    changes: Sequence[str]
    not_citable: Mapping[str, Sequence[str]]

    @property
    def holds(self) -> bool:
        """Whether nothing was changed and every figure comes out again."""
        return not self.changes and all(figure.holds for figure in self.figures)


def verify(path: Path, claims: Mapping[str, float] | None = None) -> Checked:
    """Returns what becomes of every figure of the bundle at `path`; nothing is asked of a network.

    `claims` are figures from elsewhere, as from a paper, by `RUN.FIGURE`.

    Raises:
        DataError: it is no bundle, or damaged beyond reading.
        ConfigError: a claim names no figure of it.
    """
    files, stated, changes = unpack(read_bundle(path))
    runs = stated.get("runs")
    claimed: Mapping[str, Any] = runs if isinstance(runs, dict) else {}
    checked: list[Figure] = []
    reasons: dict[str, list[str]] = {}
    computed: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in _run_names(files):
            target = Path(folder, str(len(computed)))
            target.mkdir()
            for file, data in files.items():
                if file.startswith(f"runs/{name}/"):
                    (target / Path(file).name).write_bytes(data)
            try:
                run = reopen(target)
                computed[name] = figures(run)
                reasons[name] = why_not_citable(run)
            except RunError as error:
                changes.append(f"runs/{name}: {str(error).replace(str(target), 'it')}")
                computed[name] = {}
    for name, entry in claimed.items():
        if isinstance(entry, dict):
            numbers = entry.get("figures", {})
        else:
            numbers = {}
        for figure, value in numbers.items():
            checked.append(Figure(name, figure, value, computed.get(name, {}).get(figure)))
    for address, number in (claims or {}).items():
        name, _, figure = address.rpartition(".")
        if figure not in computed.get(name, {}):
            addresses = ", ".join(f"{run}.{key}" for run, row in computed.items() for key in row)
            raise ConfigError(f"no figure {address!r} in {path}; its figures: {addresses}")
        checked.append(Figure(name, figure, number, computed[name][figure]))
    return Checked(checked, changes, reasons)


def why_not_citable(run: Evaluation) -> list[str]:
    """Returns the reasons against citing a run; none where it may be cited."""
    card = run.card
    why = []
    if not run.progress.complete:
        why.append(f"the run is not finished: {run.progress.words()}")
    if card.unknown:
        why.append("the answers were imported: how they came about is not recorded")
    if run.summary.n < LEAST_QUESTIONS:
        why.append(f"{run.summary.n} questions, fewer than {LEAST_QUESTIONS}")
    if run.summary.failed > MOST_FAILED * run.summary.n:
        why.append(f"{run.summary.failed} of {run.summary.n} questions failed")
    if not _PINNED.search(card.model):
        why.append(f"{card.model} is no pinned model: its name stands for what is newest")
    config = card.config or {}
    own = []
    for name in _OWN_DATA:
        if config.get(name):
            own.append(name)
    if own:
        why.append(f"the data are files of one's own ({', '.join(own)}), of which the hash is here")
    total = card.data_card.get("questions")
    if config.get("limit") and total and run.summary.n < total:
        why.append(
            f"{run.summary.n} of {total} questions: whether more were looked at is not recorded"
        )
    return why


def _run_names(files: Mapping[str, bytes]) -> list[str]:
    run_names = []
    for file in files:
        steps = file.split("/")
        if len(steps) == 3 and steps[0] == "runs" and steps[2] == DATABASE:
            run_names.append(steps[1])
    return run_names
