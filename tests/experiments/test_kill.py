"""A run killed at any moment loses no finished record and asks no finished question twice."""

from pathlib import Path

from tests.kills import kill_often


def test_kill_9_loses_and_repeats_nothing(tmp_path: Path) -> None:
    damage = kill_often(tmp_path, kills=4, n=30, seed=1)
    assert damage.lost == []
    assert damage.repeated == []
    assert damage.finished == 30
    assert damage.during_run > 0, "no kill came while questions were being answered"
