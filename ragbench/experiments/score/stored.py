"""The scores of a run as they are stored: read back where they still hold, and written whole.

The run's table `scores` has a row for each answer (its scores, and the sentences and triples that a
model attributed to it), and `scores.json` the summary. A question that is asked again has a new
answer, which has no scores until it is scored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragbench.experiments.store import Store, StoredRecords, read_object, read_scores, write_json
from ragbench.metrics import ASKED, GROUNDED, JUDGED
from ragbench.record import Record

if TYPE_CHECKING:
    from ragbench.experiments.score.annotate.annotator import Annotation
    from ragbench.experiments.score.annotate.asking import Asking

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
    def open(cls, folder: Path, records: StoredRecords) -> StoredScores:
        """The records of the run in `folder`, and what it was scored by before.

        Raises:
            RunError: the scores cannot be read.
        """
        old = read_scores(folder)
        summaries = _summaries(folder) if old.keys() >= records.keys() else {}
        return cls(folder, [records[qid] for qid in sorted(records)], old, summaries)

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
        from ragbench.experiments.score.annotate.annotator import annotate, fill  # slow: loads DSPy

        if not annotation.concerns(self.records):
            return
        annotated = annotate(self.folder, self.records, annotation, asking)
        self.summaries[annotation.name] = annotation.summarize(self.records, annotated)
        self.records = fill(self.records, annotation, annotated)

    def write(
        self, columns: Mapping[str, Sequence[float | None]], summary: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Write the scores and their summary, and return the whole summary."""
        rows = {}
        for i, record in enumerate(self.records):
            scores = {name: column[i] for name, column in columns.items()}
            scores = {**self.old.get(record.qid, {}), **scores}
            row: dict[str, Any] = {"scores": scores}
            row["judged"] = [name for name in _KEPT if name in scores]
            row |= {n: value for n in _ATTRIBUTED if (value := getattr(record, n)) is not None}
            rows[record.qid] = row
        whole = {**summary, "judges": self.judges}
        whole |= {name: self.summaries.get(name) for name in _NO_JUDGES}
        with Store(self.folder) as store:
            store.write_scores(rows)
        write_json(self.folder / SUMMARY, whole, sealed=True)
        return whole


def judge_of(folder: Path, metric: str) -> str | None:
    """The model that filled `metric` when the run in `folder` was scored; None if none did."""
    summaries = _summaries(folder)
    filled_by = dict.fromkeys(ASKED, "statements") | dict.fromkeys(GROUNDED, "grounding")
    names = [filled_by.get(metric, metric)]
    if metric.startswith(("sp_", "support_")):
        names = ["attribution"]
    elif metric.startswith("evidence_"):
        names = ["evidence"]
    elif metric.startswith("joint_"):
        names = ["attribution", "evidence"]
    models = [summaries[name]["model"] for name in names if name in summaries]
    return " and ".join(dict.fromkeys(models)) or None


def _summaries(folder: Path) -> dict[str, dict[str, Any]]:
    if not (folder / SUMMARY).is_file():
        return {}
    summary = read_object(folder / SUMMARY)
    others = {name: section for name in _NO_JUDGES if (section := summary.get(name))}
    return {**(summary.get("judges") or {}), **others}
