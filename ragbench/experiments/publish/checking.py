"""`ragbench verify`: every figure of a bundle from its records, and whether it may be cited."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ragbench
from ragbench.errors import ConfigError, RunError
from ragbench.experiments.publish.archive import read_bundle, unpack
from ragbench.experiments.publish.bundle import card_text, claims_of
from ragbench.experiments.runs.summary import Evaluation
from ragbench.experiments.store import CARD, DATABASE, RunFolder

#: With fewer questions a mean is within ten points of the truth at best.
LEAST_QUESTIONS = 100
#: With a greater share of failed questions, the score is one of the server.
MOST_FAILED = 0.05
#: What pins a hosted model: a date, or a revision. Without it the name stands for what is newest.
_PINNED = re.compile(r"\d{4}-\d{2}-\d{2}|\d{8}|[-@]\d{4}$|@[0-9a-f]{7,}|^llamacpp/")
#: Files of one's own, of which the bundle holds what was shown and the hash of the rest.
_OWN_DATA = ("data_file", "test_file", "corpus_file")
#: A file of a bundle: the run's name, and what it is.
_FILE = re.compile(rf"runs/(?!\.{{1,2}}/)([^/\\\x00-\x1f]{{1,100}})/({DATABASE}|{CARD})")
#: In the place of a figure that one side has not.
_ABSENT = "absent"


@dataclass(frozen=True)
class Figure:
    """A figure of a run as it was claimed, and as its records have it."""

    run: str
    name: str
    claimed: Any
    recomputed: Any
    #: Decimals that a claim from elsewhere was given with; None: it must be the same.
    decimals: int | None = None

    @property
    def holds(self) -> bool:
        """Whether the two are the same, to as many places as a claim from elsewhere has."""
        if self.decimals is None:
            return json.dumps(self.claimed) == json.dumps(self.recomputed)
        if not isinstance(self.recomputed, int | float):
            return False
        return f"{self.recomputed:.{self.decimals}f}" == f"{self.claimed:.{self.decimals}f}"


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


def verify(path: Path, claims: Mapping[str, str] | None = None) -> Checked:
    """Returns what becomes of every figure of the bundle at `path`; nothing is asked of a network.

    `claims` are figures from elsewhere, as from a paper, by `RUN.FIGURE`, as they were written.

    Raises:
        DataError: it is no bundle, or damaged beyond reading.
        ConfigError: a claim names no figure of it.
    """
    files, stated, changes = unpack(read_bundle(path))
    with tempfile.TemporaryDirectory() as folder:
        runs = _open_runs(files, Path(folder), changes)
        computed = claims_of(list(runs), list(runs.values()))
        reasons = {name: why_not_citable(run) for name, run in runs.items()}
    if stated.keys() != {"runs", "ragbench"} or not isinstance(stated["runs"], dict):
        changes.append("the claims are not those that a bundle has")
    elif stated["ragbench"] != ragbench.__version__:
        changes.append(
            f"made by ragbench {stated['ragbench']}, and this is {ragbench.__version__}: verify it "
            "by the version that made it"
        )
    checked = _compared(stated.get("runs"), computed)
    for address, text in (claims or {}).items():
        name, _, figure = address.rpartition(".")
        if figure not in computed.get(name, {}):
            addresses = ", ".join(f"{run}.{key}" for run, row in computed.items() for key in row)
            raise ConfigError(f"no figure {address!r} in {path}; its figures: {addresses}")
        decimals = len(text.partition(".")[2])
        checked.append(Figure(name, figure, float(text), computed[name][figure], decimals))
    return Checked(checked, changes, reasons)


def _open_runs(
    files: Mapping[str, bytes], folder: Path, changes: list[str]
) -> dict[str, Evaluation]:
    """Returns the runs of a bundle by name, opened in `folder`; adds what is wrong to `changes`.

    Of each run the database alone is written to the disk: its card is to be the one within.
    """
    runs: dict[str, Evaluation] = {}
    for file in sorted(files):
        match = _FILE.fullmatch(file)
        if match is None:
            changes.append(f"{file}: no file that a bundle has")
            continue
        name = match.group(1)
        if match.group(2) == CARD:
            if f"runs/{name}/{DATABASE}" not in files:
                changes.append(f"{file}: the card of a run that is not there")
            continue
        target = folder / name
        target.mkdir()
        (target / DATABASE).write_bytes(files[file])
        try:
            run = Evaluation(RunFolder(target, check=True))
            if changed := {*run.records.damaged, *run.records.with_other_facts()}:
                changes.append(f"{file}: {len(changed)} records were changed")
            if files.get(f"runs/{name}/{CARD}") != card_text(run):
                changes.append(f"runs/{name}/{CARD}: not the card of its database")
            runs[name] = run
        except RunError as error:
            changes.append(f"runs/{name}: {str(error).replace(str(target), 'it')}")
    return runs


def _compared(stated: Any, computed: Mapping[str, Mapping[str, Any]]) -> list[Figure]:
    """Returns each figure that is claimed or should be, beside what the records say."""
    checked = []
    claimed = stated if isinstance(stated, dict) else {}
    for run in dict.fromkeys([*computed, *claimed]):
        row = computed.get(run, {})
        own = claimed.get(run)
        if not isinstance(own, dict):
            own = {"claims": own}
        for figure in dict.fromkeys([*row, *own]):
            value = own.get(figure, _ABSENT)
            checked.append(Figure(run, figure, value, row.get(figure, _ABSENT)))
    return checked


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
    own = list(filter(config.get, _OWN_DATA))
    if own:
        why.append(f"the data are files of one's own ({', '.join(own)}), of which the hash is here")
    total = card.data_card.get("questions")
    if config.get("limit") and total and run.summary.n < total:
        why.append(
            f"{run.summary.n} of {total} questions: whether more were looked at is not recorded"
        )
    return why
