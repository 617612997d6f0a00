"""Agreement of the grounding rule with hand labels.

The cases marked `held_out` were written after the rule and never used to change it. The floors keep
the rule from getting worse unnoticed; docs/metrics.md has the figures.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ragbench.metrics.grounding import grounded
from ragbench.record import ShownPassage

DATA: dict[str, Any] = json.loads(
    (Path(__file__).parent / "grounding_cases.json").read_text(encoding="utf-8")
)


def agreement(*, held_out: bool) -> tuple[float, float]:
    """The share of cases where rule and label agree, and Cohen's kappa."""
    pairs = []
    for case in DATA["cases"]:
        if case.get("held_out", False) == held_out:
            passages = [ShownPassage(t, t, text) for t, text in DATA["worlds"][case["world"]]]
            pairs.append((grounded([case["claim"]], passages)[0], case["supported"]))
    n = len(pairs)
    agree = sum(rule == label for rule, label in pairs) / n
    rules, labels = (sum(column) / n for column in zip(*pairs, strict=True))
    chance = rules * labels + (1 - rules) * (1 - labels)
    return agree, (agree - chance) / (1 - chance)


@pytest.mark.parametrize(("held_out", "share", "kappa"), [(False, 0.85, 0.70), (True, 0.76, 0.52)])
def test_rule_agrees_with_hand_labels(held_out: bool, share: float, kappa: float) -> None:
    found = agreement(held_out=held_out)
    assert found[0] >= share
    assert found[1] >= kappa


def test_there_are_enough_cases_of_both_labels() -> None:
    labels = [case["supported"] for case in DATA["cases"]]
    assert len(labels) >= 60
    assert 0.4 <= sum(labels) / len(labels) <= 0.6
