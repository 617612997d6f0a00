"""Commands killed at any moment lose no finished work, repeat none, and end in the same summary."""

from functools import partial
from pathlib import Path

import pytest

from tests.disk.builds import kill_builds
from tests.disk.index_jobs import graph_job, index_job, tree_job
from tests.kills import Make, compile_job, eval_job, judge_job, kill_often, sweep_job


@pytest.mark.slow
@pytest.mark.parametrize(("make", "n"), [(index_job, 20), (graph_job, 40), (tree_job, 24)])
def test_a_killed_build_leaves_no_damaged_index_and_loses_no_reply(
    make: Make, n: int, tmp_path: Path
) -> None:
    outcome = kill_builds(make, tmp_path, kills=1, n=n)
    assert (outcome.lost, outcome.paid_again, outcome.other) == ([], 0, [])


@pytest.mark.parametrize(
    ("make", "kills", "n"),
    [
        (eval_job, 4, 30),
        pytest.param(eval_job, 15, 60, marks=pytest.mark.slow),
        pytest.param(judge_job, 2, 40, marks=pytest.mark.slow),
        pytest.param(sweep_job, 2, 30, marks=pytest.mark.slow),
        pytest.param(
            partial(compile_job, optimizer="random_search"), 1, 20, marks=pytest.mark.slow
        ),
    ],
    ids=["eval", "eval often", "judge", "sweep", "compile"],
)
def test_kill_9_changes_nothing(make: Make, kills: int, n: int, tmp_path: Path) -> None:
    both = kill_often(make, tmp_path / "work", kills=kills, n=n, seed=1)
    quiet, killed = both.quiet, both.killed
    assert killed.kills == kills
    assert killed.lost == []
    assert killed.repeated == []
    assert killed.overpaid == 0, "a finished call was asked again"
    assert killed.summary == quiet.summary
    if make is eval_job or make is judge_job:
        assert killed.finished == quiet.finished == n
