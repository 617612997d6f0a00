"""Kills, disks that fail, losses of power, servers gone wrong: nothing lost or repeated."""

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.disk.faults import Shim, each_call, lost_with_power
from tests.disk.jobs import JOBS, graph_job, index_job, tree_job
from tests.kills import Make, compile_job, eval_job, judge_job, kill_often, sweep_job
from tests.storm import FAULTS, weather

SHIMMED = pytest.mark.skipif(
    shutil.which("cc") is None or not Path("/proc/self/fd").is_dir(),
    reason="needs a C compiler and Linux",
)


@pytest.mark.parametrize(
    ("make", "kills", "n"),
    [
        (eval_job, 2, 20),
        pytest.param(judge_job, 2, 40, marks=pytest.mark.slow),
        pytest.param(sweep_job, 2, 30, marks=pytest.mark.slow),
        pytest.param(
            partial(compile_job, optimizer="random_search"), 1, 20, marks=pytest.mark.slow
        ),
        pytest.param(index_job, 1, 20, marks=pytest.mark.slow),
        pytest.param(graph_job, 1, 40, marks=pytest.mark.slow),
        pytest.param(tree_job, 1, 24, marks=pytest.mark.slow),
    ],
    ids=["eval", "judge", "sweep", "compile", "index", "graph", "tree"],
)
def test_kill_9_changes_nothing(make: Make, kills: int, n: int, tmp_path: Path) -> None:
    quiet, killed = kill_often(make, tmp_path / "work", kills=kills, n=n, seed=1)
    assert (killed.kills, killed.lost, killed.repeated) == (kills, [], [])
    assert killed.overpaid == 0, "a finished call was asked again"
    assert killed.summary == quiet.summary
    if make is eval_job or make is judge_job:
        assert killed.finished == quiet.finished == n


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shim]:
    with Shim(tmp_path_factory.mktemp("shim")) as found:
        yield found


@SHIMMED
@pytest.mark.slow
@pytest.mark.parametrize(
    ("job", "how", "least"),
    [
        ("eval", {"step": 23}, 3),
        ("index", {"step": 29}, 3),
        ("sweep", {"first": 60, "step": 170, "kinds": ["ENOSPC"]}, 2),
        # A data file that cannot be read names no other run.
        ("sweep", {"first": 4, "step": 1, "kinds": ["EIO"], "most": 3}, 3),
    ],
)
def test_a_call_of_the_system_that_fails_costs_no_record_index_or_number(
    job: str, how: dict[str, Any], least: int, tmp_path: Path, shim: Shim
) -> None:
    make, prepare, n = JOBS[job]
    outcome = each_call(make, tmp_path, shim, n=n, prepare=prepare, **how)
    assert outcome.bad == []
    assert outcome.faults.total() >= least


@SHIMMED
@pytest.mark.slow
@pytest.mark.parametrize("job", ["index", "eval", "compile"])
def test_a_loss_of_power_after_the_end_costs_nothing(job: str, tmp_path: Path, shim: Shim) -> None:
    make, prepare, n = JOBS[job]
    lost = lost_with_power(make, tmp_path, shim, n=n, prepare=prepare)
    assert [unit for unit in lost if not (job == "compile" and unit.startswith("line "))] == []


@pytest.mark.slow
def test_every_fault_of_a_server_ends_in_one_record_with_its_own_totals(tmp_path: Path) -> None:
    n = 3 * len(FAULTS)
    bad, faulty, failures = weather(tmp_path, n=n, timeout_s=5.0, workers=16)
    assert not bad
    assert faulty.total() >= n  # a filtered answer is asked for once more in other words
    assert set(faulty) == {fault.kind for fault in FAULTS}
    # What a retry can mend is mended; a prompt that was filtered stays filtered.
    assert failures == {"provider/LMInvalidRequestError": 3}
