"""The drop in accuracy by misleading passages: two runs of the same questions, compared."""

import re
from pathlib import Path

import pytest

from ragbench.experiments.compare.paired import compare_all
from ragbench.experiments.runs import evaluate
from tests.experiments.towns import World, town
from tests.fakes import Asked, Reply, plausible


def trusting(asked: Asked) -> Reply:
    """Believes a passage that answers the question at once, and is right where there is none."""
    claimed = re.search(r"river number \d+: (Town \d+)\.", asked.inputs["context"])
    return {**plausible(asked), "answer": claimed[1] if claimed else f"Town {town(asked)}"}


def test_the_drop_has_an_interval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, monkeypatch)
    world.use(trusting)
    misleading = {"inner": "bm25", "rate": 0.5, "per_search": 1, "kinds": "false_shortcut"}
    plain = evaluate(world.config(split="all", out=tmp_path / "plain"))
    misled = evaluate(
        world.config(
            split="all", out=tmp_path / "misled", retriever="distracting", retriever_set=misleading
        )
    )
    injected = [
        any(pid.startswith("distractor-") for search in record.searches for pid, _ in search.hits)
        for record in misled.records.values()
    ]
    assert 0.2 < sum(injected) / len(injected) < 0.8
    drop = compare_all([plain, misled], metrics=("em",))[0].scores["em"]
    assert drop.mean_a == 1
    assert drop.mean_b == 1 - sum(injected) / len(injected)
    assert drop.difference == pytest.approx(drop.mean_b - drop.mean_a)
    assert drop.interval.low <= drop.difference <= drop.interval.high < 0
