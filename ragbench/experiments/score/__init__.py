"""Scores of finished runs and the annotation summaries in `scores.json`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from ragbench.experiments.store import read_object
from ragbench.metrics import ASKED, GROUNDED, JUDGED

SUMMARY = "scores.json"
#: Entry of an annotation in `scores.json`: counts, and fields of its kind.
AnnotationSummary: TypeAlias = Mapping[str, Any]


def summaries_of(folder: Path) -> dict[str, AnnotationSummary]:
    """Return the annotation summaries by name; empty if the run was not scored."""
    path = folder / SUMMARY
    summaries: dict[str, AnnotationSummary] = read_object(path)["judges"] if path.is_file() else {}
    return summaries


#: Maps each metric to the annotation that fills it.
_FILLED_BY = {
    **{name: (name,) for name in JUDGED},
    **dict.fromkeys(GROUNDED, ("grounding",)),
    **dict.fromkeys(ASKED, ("statements",)),
}
#: Maps a prefix of metrics to the annotations that fill them if the program cites nothing.
_FAMILIES = {
    "sp_": ("attribution",),
    "support_": ("attribution",),
    "evidence_": ("evidence",),
    "joint_": ("attribution", "evidence"),
}


def judge_of(folder: Path, metric: str) -> str | None:
    """Return the model that filled a metric when the run was scored, or None.

    Args:
        folder: Folder of the run.
        metric: Name of the metric.
    """
    annotations: tuple[str, ...] = _FILLED_BY.get(metric, ())
    for beginning, fillers in _FAMILIES.items():
        if metric.startswith(beginning):
            annotations = fillers
    summaries = summaries_of(folder)
    models = []
    for name in annotations:
        if name in summaries:
            models.append(summaries[name]["model"])
    return " and ".join(dict.fromkeys(models)) or None
