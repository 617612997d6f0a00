"""Means are printed with intervals: of runs, of groups, and of what was chosen among candidates."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ragbench.experiments.report.compiled import by_choosing
from ragbench.experiments.report.tables import headline_intervals, notes
from ragbench.experiments.runs import reopen
from ragbench.metrics import expected_lead, mean_interval
from tests.experiments.scored_runs import answered, make_run
from tests.metrics.records import record


def test_a_run_is_printed_with_the_intervals_of_its_means(tmp_path: Path) -> None:
    rows = [answered(f"q{n}", "Norway" if n % 2 else "Chad") for n in range(10)]
    run = reopen(make_run(tmp_path / "run", rows))
    wanted = mean_interval([0.0, 1.0] * 5, (0.0, 1.0))
    assert wanted is not None
    line = next(line for line in notes(run) if line.startswith("95 % intervals"))
    assert f"em [{wanted.low:.3f}, {wanted.high:.3f}]" in line


def test_intervals_go_by_the_clusters_that_records_name() -> None:
    def of(**extra: Any) -> float:
        made = []
        for n in range(12):
            also = {k: v(n) for k, v in extra.items()}
            made.append(record("Norway" if n < 6 else "Chad", qid=f"q{n}", extra=also))
        found = headline_intervals(made)["em"]
        return found.high - found.low

    assert of(cluster=lambda n: f"c{n // 3}") > of()
    assert of(cluster=lambda n: "one") == of()
    assert headline_intervals([record()]) == {}


@pytest.mark.parametrize(("candidates", "shown"), [(1, "-"), (8, "up to 0.071 of 8")])
def test_the_luck_of_being_chosen_is_said(candidates: int, shown: str) -> None:
    card: Any = SimpleNamespace(scores={"interval": {"low": -0.08, "high": 0.116}})
    assert expected_lead(8, 0.05) == pytest.approx(0.0712, abs=1e-4)
    assert by_choosing(card, candidates) == shown
    card.scores = {"interval": None}
    assert by_choosing(card, candidates) == "-"
