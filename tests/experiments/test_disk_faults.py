"""A sample of `benchmarks/storm.py`: files that fail under a command, and a loss of power."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.disk.faults import Shim, each_call
from tests.disk.jobs import JOBS
from tests.disk.power import lost_with_power

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("cc") is None or not Path("/proc/self/fd").is_dir(),
        reason="needs a C compiler and Linux",
    ),
]


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shim]:
    with Shim(tmp_path_factory.mktemp("shim")) as found:
        yield found


def test_a_call_that_fails_costs_no_record_and_no_number(tmp_path: Path, shim: Shim) -> None:
    make, prepare, n = JOBS["eval"]
    outcome = each_call(make, tmp_path, shim, n=n, step=23, prepare=prepare)
    assert outcome.bad == []
    assert outcome.faults >= 3


def test_a_disk_that_fills_up_in_a_sweep_costs_no_record(tmp_path: Path, shim: Shim) -> None:
    make, prepare, n = JOBS["sweep"]
    outcome = each_call(
        make, tmp_path, shim, n=n, first=60, step=170, prepare=prepare, kinds=["ENOSPC"]
    )
    assert outcome.bad == []
    assert outcome.faults >= 2
    assert set(outcome.codes) <= {0, 1, 2}


def test_a_data_file_that_cannot_be_read_names_no_other_run(tmp_path: Path, shim: Shim) -> None:
    make, prepare, n = JOBS["sweep"]
    outcome = each_call(
        make, tmp_path, shim, n=n, first=4, step=1, prepare=prepare, kinds=["EIO"], most=3
    )
    assert outcome.bad == []
    assert outcome.faults == 3


def test_a_call_that_fails_damages_no_index(tmp_path: Path, shim: Shim) -> None:
    make, prepare, n = JOBS["index"]
    outcome = each_call(make, tmp_path, shim, n=n, step=29, prepare=prepare)
    assert outcome.bad == []
    assert outcome.faults >= 3


def test_a_loss_of_power_after_a_build_costs_no_index_and_no_vector(
    tmp_path: Path, shim: Shim
) -> None:
    make, prepare, n = JOBS["index"]
    assert lost_with_power(make, tmp_path, shim, n=n, prepare=prepare) == []


def test_a_loss_of_power_after_a_run_costs_nothing(tmp_path: Path, shim: Shim) -> None:
    make, prepare, n = JOBS["eval"]
    assert lost_with_power(make, tmp_path, shim, n=n, prepare=prepare) == []


def test_a_loss_of_power_after_a_compile_costs_no_program(tmp_path: Path, shim: Shim) -> None:
    make, prepare, n = JOBS["compile"]
    lost = lost_with_power(make, tmp_path, shim, n=n, prepare=prepare)
    assert [unit for unit in lost if not unit.startswith("line ")] == []
