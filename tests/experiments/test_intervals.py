"""Means are printed with intervals: of runs, of groups, and of what was chosen among candidates."""

from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ragbench.experiments.report.compiled import by_choosing
from ragbench.experiments.report.scores import breakdown_table, metric_table
from ragbench.experiments.report.tables import run_table
from ragbench.experiments.runs import headline_intervals, reopen
from ragbench.experiments.score.scoring import ScoreRequest, score_run
from ragbench.metrics import corrected_best, mean_interval
from tests.experiments.scored_runs import answered, make_run
from tests.experiments.test_design import stored
from tests.metrics.records import record


def test_a_run_is_printed_with_the_intervals_of_its_means(tmp_path: Path) -> None:
    rows = [answered(f"q{n}", "Norway" if n % 2 else "Chad") for n in range(10)]
    run = reopen(make_run(tmp_path / "run", rows))
    wanted = mean_interval([0.0, 1.0] * 5, (0.0, 1.0))
    assert wanted is not None
    [row] = run_table([run]).rows
    assert (row["em"], row["em_low"], row["em_high"]) == (0.5, wanted.low, wanted.high)


def test_intervals_go_by_the_clusters_that_records_name() -> None:
    def of(**extra: Any) -> float:
        made = []
        for n in range(12):
            also = {k: v(n) for k, v in extra.items()}
            made.append(record("Norway" if n < 6 else "Chad", qid=f"q{n}", extra=also))
        found = headline_intervals(stored(made))["em"]
        return found.high - found.low

    assert of(cluster=lambda n: f"c{n // 3}") > of()
    assert headline_intervals(stored([record()])) == {}


def test_every_mean_of_a_table_of_scores_has_its_interval(tmp_path: Path) -> None:
    rows = [answered(f"q{n}", "Norway" if n % 2 else "Chad") for n in range(10)]
    scored = score_run(make_run(tmp_path / "run", rows), ScoreRequest())
    wanted = mean_interval([0.0, 1.0] * 5, (0.0, 1.0))
    assert wanted is not None
    em = next(row for row in metric_table([scored]).rows if row["metric"] == "em")
    assert (em["mean"], em["mean_low"], em["mean_high"]) == (0.5, wanted.low, wanted.high)
    group = breakdown_table([scored]).rows[0]
    assert (group["em"], group["em_low"], group["em_high"]) == (0.5, wanted.low, wanted.high)


def test_a_compiled_program_is_listed_with_the_best_of_its_candidates_corrected() -> None:
    best = corrected_best([[0.0, 1.0, 1.0, 0.0], [1.0, 1.0, 1.0, 0.0]])
    card: Any = SimpleNamespace(scores={"corrected": asdict(best)})
    low, high = best.interval.low, best.interval.high
    assert by_choosing(card) == f"{best.corrected:.3f} [{low:.3f}, {high:.3f}] of 2"
    card.scores = {}
    assert by_choosing(card) == "-"
