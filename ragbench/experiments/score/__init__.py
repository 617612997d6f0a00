"""Scores of finished runs, and what `scores.json` holds beside means: what models said."""

from pathlib import Path
from typing import Any

from ragbench.experiments.store import read_object
from ragbench.metrics import ASKED, GROUNDED

SUMMARY = "scores.json"


def summaries_of(folder: Path) -> dict[str, dict[str, Any]]:
    """The summaries of annotations, by name, of the run in `folder`; empty if it was not scored."""
    path = folder / SUMMARY
    summaries: dict[str, dict[str, Any]] = read_object(path)["judges"] if path.is_file() else {}
    return summaries


def judge_of(folder: Path, metric: str) -> str | None:
    """The model that filled `metric` when the run in `folder` was scored; None if none did."""
    family = {"sp": "attribution", "support": "attribution", "evidence": "evidence"}
    filled_by = dict.fromkeys(ASKED, "statements") | dict.fromkeys(GROUNDED, "grounding") | family
    prefix = metric.partition("_")[0]
    both = ["attribution", "evidence"]
    if prefix == "joint":
        judges = both
    else:
        judges = [filled_by.get(metric) or family.get(prefix, metric)]
    summaries = summaries_of(folder)
    models = []
    for name in judges:
        if name in summaries:
            models.append(summaries[name]["model"])
    return " and ".join(dict.fromkeys(models)) or None
