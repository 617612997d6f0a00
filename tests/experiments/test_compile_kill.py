"""A compile that is killed ends in the same program and pays for no finished call twice."""

from pathlib import Path

import pytest

from tests.compile_kills import WORKERS, compile_with_kills


@pytest.mark.parametrize(("optimizer", "kills"), [("bootstrap", 1), ("random_search", 2)])
def test_kill_9_changes_nothing(optimizer: str, kills: int, tmp_path: Path) -> None:
    quiet = compile_with_kills(tmp_path / "quiet", optimizer, kills=0, n=25)
    killed = compile_with_kills(tmp_path / "killed", optimizer, kills=kills, n=25, seed=1)
    assert killed.during > 0, "no kill came while the compile was running"
    assert killed.program == quiet.program
    assert quiet.repeated == 0
    assert killed.repeated <= killed.during * WORKERS, "a finished call was asked again"
    assert killed.billed <= killed.hits
