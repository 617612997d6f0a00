"""A run loses nothing and counts right while its server goes wrong in every way."""

from pathlib import Path

import pytest

from tests.storm import FAULTS, each_fault_in_turn, in_this_process, weather


@pytest.mark.slow
def test_every_fault_ends_in_one_record_with_the_servers_own_totals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "cache"))
    n = 3 * len(FAULTS)
    outcome = weather(
        tmp_path, each_fault_in_turn(), in_this_process,
        n=n, program="vanilla", timeout_s=5.0, workers=16,
    )  # fmt: skip
    assert not outcome.bad
    assert outcome.faulty.total() >= n  # a filtered answer is asked for once more in other words
    assert set(outcome.faulty) == {fault.kind for fault, _ in FAULTS}
    # What a retry can mend is mended; a prompt that was filtered stays filtered.
    assert outcome.failures == {"provider/LMInvalidRequestError": 3}
