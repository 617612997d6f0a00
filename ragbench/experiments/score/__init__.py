"""Scores of finished runs, and what `scores.json` holds beside means: what models said."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from ragbench.experiments.store import read_object
from ragbench.metrics import ASKED, GROUNDED, JUDGED

SUMMARY = "scores.json"
#: What `scores.json` has of an annotation: counts, and what its kind adds to them.
AnnotationSummary: TypeAlias = Mapping[str, Any]


def summaries_of(folder: Path) -> dict[str, AnnotationSummary]:
    """The summaries of annotations, by name, of the run in `folder`; empty if it was not scored."""
    path = folder / SUMMARY
    summaries: dict[str, AnnotationSummary] = read_object(path)["judges"] if path.is_file() else {}
    return summaries


#: Metric -> the annotation that fills it.
_FILLED_BY = {
    **{name: (name,) for name in JUDGED},
    **dict.fromkeys(GROUNDED, ("grounding",)),
    **dict.fromkeys(ASKED, ("statements",)),
}
#: Beginning of metrics -> the annotations that fill them where a program says nothing itself.
_FAMILIES = {
    "sp_": ("attribution",),
    "support_": ("attribution",),
    "evidence_": ("evidence",),
    "joint_": ("attribution", "evidence"),
}


def judge_of(folder: Path, metric: str) -> str | None:
    """The model that filled `metric` when the run in `folder` was scored; None if none did."""
    annotations: tuple[str, ...] = _FILLED_BY.get(metric, ())
    for beginning, names in _FAMILIES.items():
        if metric.startswith(beginning):
            annotations = names
    summaries = summaries_of(folder)
    models = []
    for name in annotations:
        if name in summaries:
            models.append(summaries[name]["model"])
    return " and ".join(dict.fromkeys(models)) or None
