"""What `scores.json` of a run holds beside its means: the summaries of what models said."""

from pathlib import Path
from typing import Any

from ragbench.experiments.store import read_object
from ragbench.metrics import ASKED, GROUNDED

SUMMARY = "scores.json"
#: Annotations whose summaries stand in `scores.json` by their own name, not among the judges.
ATTRIBUTIONS = ("attribution", "evidence")


def summaries_of(folder: Path) -> dict[str, dict[str, Any]]:
    """The summaries of annotations, by name, of the run in `folder`; empty if it was not scored.

    Raises:
        RunError: they cannot be read.
    """
    if not (folder / SUMMARY).is_file():
        return {}
    summary = read_object(folder / SUMMARY)
    others = {name: section for name in ATTRIBUTIONS if (section := summary.get(name))}
    return {**(summary.get("judges") or {}), **others}


def judge_of(folder: Path, metric: str) -> str | None:
    """The model that filled `metric` when the run in `folder` was scored; None if none did."""
    filled_by = dict.fromkeys(ASKED, "statements") | dict.fromkeys(GROUNDED, "grounding")
    names = [filled_by.get(metric, metric)]
    if metric.startswith(("sp_", "support_")):
        names = ["attribution"]
    elif metric.startswith("evidence_"):
        names = ["evidence"]
    elif metric.startswith("joint_"):
        names = ["attribution", "evidence"]
    summaries = summaries_of(folder)
    models = [summaries[name]["model"] for name in names if name in summaries]
    return " and ".join(dict.fromkeys(models)) or None
