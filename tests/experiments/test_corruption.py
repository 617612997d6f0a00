"""A sample of `benchmarks/corruption.py`: damage to a file is noticed or harmless."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.disk.corruption import Folders, corrupt
from tests.disk.kept import corrupt_kept


def test_random_damage_is_noticed_or_harmless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "cache"))
    found = corrupt(Folders(tmp_path / "work"), 60)
    assert found.silent == []
    assert found.by_doctor_alone == []
    assert found.crashed == []
    assert found.noticed.total() > 5


def test_random_damage_to_what_is_kept_costs_calls_and_nothing_else(tmp_path: Path) -> None:
    found = corrupt_kept(tmp_path, damages=3, n=12)
    assert found.bad == []
    assert found.damages == 3
