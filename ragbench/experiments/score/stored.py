"""The scores of a run as they are stored: read back where they still hold, and written whole.

`scores.jsonl` has a line per question (its scores, sentences and triples attributed to it), and
`scores.json` the summary. What models said before is kept as long as the answer is the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragbench.errors import RunError
from ragbench.experiments.records import (
    StoredRecords,
    encode,
    read_card,
    read_each,
    read_object,
    read_records,
    tell_corrupt,
    usable,
    write_json,
    write_whole,
)
from ragbench.experiments.score.annotate import key_of
from ragbench.experiments.score.lines import wrong_with_scores
from ragbench.metrics import ASKED, GROUNDED, JUDGED
from ragbench.record import Record

if TYPE_CHECKING:
    from ragbench.experiments.score.annotate import Annotation, Asking

LINES = "scores.jsonl"
SUMMARY = "scores.json"

#: Metrics that a model filled: they are kept from one scoring to the next.
_KEPT = (*JUDGED, *ASKED)
#: Fields of a record that a model filled; likewise.
_ATTRIBUTED = ("attribution", "attributed_triples")
#: Annotations whose summaries stand in `scores.json` by their own name, not among the judges.
_NO_JUDGES = ("attribution", "evidence")


@dataclass
class StoredScores:
    """The records of a run with all scores merged in, and the summaries of annotations by name."""

    folder: Path
    records: list[Record]
    old: dict[str, dict[str, float | None]]
    summaries: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def open(cls, folder: Path, records: Sequence[Record]) -> StoredScores:
        """The records with the scores of before merged in, where the answer is still the same.

        Raises:
            RunError: a line of the scores cannot be used.
        """
        rows = {row["qid"]: row for row in _rows(folder / LINES)}
        records = sorted(records, key=lambda record: record.qid)
        merged, old, same = [], {}, bool(rows)
        for record in records:
            row = rows.get(record.qid)
            if row is None or row["of"] != digest(record):
                same = False
                merged.append(record)
                continue
            old[record.qid] = row["scores"]
            merged.append(_merge(record, row))
        return cls(folder, merged, old, _summaries(folder) if same else {})

    @property
    def judges(self) -> dict[str, dict[str, Any]]:
        """The summaries of judges, by name."""
        return {name: one for name, one in self.summaries.items() if name not in _NO_JUDGES}

    def judged(self) -> list[str]:
        """Metrics that some record has a verdict for."""
        return [name for name in _KEPT if any(name in r.scores for r in self.records)]

    def annotate(self, annotation: Annotation, asking: Asking) -> None:
        """Ask the model, and merge what it says into the records.

        Raises:
            RagbenchError: the model cannot be asked, or the journal cannot be used.
        """
        from ragbench.experiments.score.annotate import annotate, fill  # slow: loads DSPy

        if not annotation.concerns(self.records):
            return
        annotated = annotate(self.folder, self.records, annotation, asking)
        self.summaries[annotation.name] = annotation.summarize(self.records, annotated)
        self.records = fill(self.records, annotation, annotated)

    def write(
        self, columns: Mapping[str, Sequence[float | None]], summary: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Write both files, each in one step, and return the whole summary."""
        lines = []
        for i, record in enumerate(self.records):
            scores = {name: column[i] for name, column in columns.items()}
            row = {
                "qid": record.qid,
                "of": digest(record),
                "scores": {**self.old.get(record.qid, {}), **scores},
            }
            row |= {n: value for n in _ATTRIBUTED if (value := getattr(record, n)) is not None}
            lines.append(encode(row))
        whole = {**summary, "judges": self.judges}
        whole |= {name: self.summaries.get(name) for name in _NO_JUDGES}
        write_whole(self.folder / LINES, b"".join(lines))
        write_json(self.folder / SUMMARY, whole, sealed=True)
        return whole


def scored_records(folder: Path) -> StoredRecords:
    """The records of a run by qid, with what it was scored by before merged in.

    Raises:
        RunError: it is not a run folder, has no records, or a line of its scores cannot be used.
    """
    read_card(folder)
    loaded = read_records(folder)
    records = loaded.records
    if not records:
        raise RunError(f"{folder} has no records")
    tell_corrupt(folder, loaded)
    rows = {}
    for row in _rows(folder / LINES):  # what no model said is computed from the record
        kept = {name: row["scores"][name] for name in _KEPT if name in row["scores"]}
        rows[row["qid"]] = {**row, "scores": kept}

    def merged(record: Record) -> Record:
        row = rows.get(record.qid)
        return record if row is None or row["of"] != digest(record) else _merge(record, row)

    return records.changed(merged, sorted(records))


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    for line in read_each(path, usable(wrong_with_scores)):
        if line.row is None:
            raise RunError(
                f"{path} line {line.number} cannot be read, or was changed after it was written; "
                "`ragbench doctor --repair` moves it out, then score the run again"
            )
        yield line.row


def judge_of(folder: Path, metric: str) -> str | None:
    """The model that filled `metric` when the run in `folder` was scored; None if none did."""
    summaries = _summaries(folder)
    filled_by = dict.fromkeys(ASKED, "statements") | dict.fromkeys(GROUNDED, "grounding")
    names = [filled_by.get(metric, metric)]
    if metric.startswith(("sp_", "joint_", "support_", "2wiki_sp_")):
        names = ["attribution"]
    elif metric.startswith("evidence_"):
        names = ["evidence"]
    elif metric.startswith("2wiki_joint_"):
        names = ["attribution", "evidence"]
    models = [summaries[name]["model"] for name in names if name in summaries]
    return " and ".join(dict.fromkeys(models)) or None


def digest(record: Record) -> str:
    """A hash of what scores depend on: a question that was asked again has another."""
    pids = [passage.pid for passage in record.passages]
    failed = record.failure is not None
    return key_of(record.question, record.answers, record.answer, failed, pids)


def _summaries(folder: Path) -> dict[str, dict[str, Any]]:
    if not (folder / SUMMARY).is_file():
        return {}
    summary = read_object(folder / SUMMARY)
    others = {name: section for name in _NO_JUDGES if (section := summary.get(name))}
    return {**(summary.get("judges") or {}), **others}


def _merge(record: Record, row: Mapping[str, Any]) -> Record:
    kept = {name: row["scores"][name] for name in _KEPT if name in row["scores"]}
    said = {name: row[name] for name in _ATTRIBUTED if name in row}
    return replace(record, scores={**record.scores, **kept}, **said)
