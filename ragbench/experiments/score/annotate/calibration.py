"""How far a judge of claims can be believed, and its metrics corrected for its errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ragbench.experiments.score.annotate.asking import Asking
from ragbench.experiments.score.annotate.grounding import label_claims
from ragbench.experiments.score.annotate.labelled import labelled_claims
from ragbench.experiments.score.annotate.wording import number
from ragbench.metrics import JudgeErrors, corrected_share
from ragbench.record import Record


def calibrate(folder: Path, records: Sequence[Record], asking: Asking, n: int) -> dict[str, Any]:
    """The judge's errors on `n` labelled claims, and the judged metrics of `records` corrected.

    `records` have their judged scores. JSON-ready; part of the summary of `Grounding`.

    Raises:
        RagbenchError: the judge cannot be asked, or the journal cannot be written.
    """
    made = labelled_claims(records, n)
    labels, annotated = label_claims(folder, [one.group for one in made], asking)
    said = Counter(
        (kind, label)
        for one, row in zip(made, labels, strict=True)
        for kind, label in zip(one.kinds, row, strict=True)
    )
    kinds = sorted({kind for kind, label in said if label is not None})
    rates = {
        kind: {"right": said[kind, kind == "true"], "n": said[kind, True] + said[kind, False]}
        for kind in kinds
    }
    true = rates.pop("true", {"right": 0, "n": 0})
    errors = JudgeErrors(
        caught=sum(rate["right"] for rate in rates.values()),
        false=sum(rate["n"] for rate in rates.values()),
        passed=true["right"],
        true=true["n"],
    )
    return {
        "labelled": {
            "claims": errors.false + errors.true,
            "unscored": sum(count for (_, label), count in said.items() if label is None),
            "errors": errors._asdict(),
            "false_by_kind": rates,
            "as_if": asdict(annotated.replies.totals()),
            "billed": asdict(annotated.replies.billed()),
        },
        "corrected": _corrected(records, errors),
    }


def _corrected(records: Sequence[Record], errors: JudgeErrors) -> dict[str, Any]:
    means: dict[str, Any] = {}
    for name in ("chain_fidelity_judged", "hallucination_rate_judged"):
        scores = [r.scores.get(name) for r in records if not r.failed]
        values = [score for score in scores if score is not None]
        supported = name == "chain_fidelity_judged"  # else the share of false claims
        corrected = corrected_share([1 - v for v in values] if supported else values, errors)
        if corrected is None:
            continue
        mean, low, high = corrected
        if supported:
            mean, low, high = 1 - mean, 1 - high, 1 - low
        plain = sum(values) / len(values)
        means[name] = {"judged": plain, "mean": mean, "low": low, "high": high, "n": len(values)}
    return means


def describe_calibration(summary: Mapping[str, Any]) -> list[str]:
    """Lines of what `calibrate` found; none where it was not asked for."""
    if "labelled" not in summary:
        return []
    labelled = summary["labelled"]
    errors = JudgeErrors(**labelled["errors"])
    kinds = ", ".join(
        f"{kind} {rate['right']} of {rate['n']}" for kind, rate in labelled["false_by_kind"].items()
    )
    lines = [
        f"  on {labelled['claims']} labelled claims it catches {errors.caught} of {errors.false} "
        f"false ones ({kinds}) and passes {errors.passed} of {errors.true} true ones; "
        f"{labelled['unscored']} unscored"
    ]
    lines += [
        f"  {name}: {number(row['mean'])} [{number(row['low'])}, {number(row['high'])}] corrected "
        f"for these errors, {number(row['judged'])} as judged, over {row['n']} answered questions"
        for name, row in summary["corrected"].items()
    ]
    if not summary["corrected"]:
        lines.append("  it is no better than chance on them, so its scores cannot be corrected")
    return lines
