"""Damage to what is kept of calls, vectors and indexes costs calls, and nothing else."""

from pathlib import Path

import pytest

from tests.disk.kept import corrupt_kept


@pytest.mark.slow
def test_random_damage_to_what_is_kept_costs_calls_and_nothing_else(tmp_path: Path) -> None:
    found = corrupt_kept(tmp_path, damages=3, n=12)
    assert found.bad == []
    assert found.damages == 3
