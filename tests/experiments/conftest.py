"""A key and a cache for every test, a server and an LM of town questions, and runs to look at."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ragbench.experiments.cells.sweep_file import Sweep, load_sweep
from ragbench.experiments.config import make_config
from ragbench.experiments.runs.context import RunContext, ready
from ragbench.record import Record
from tests.experiments import boards
from tests.experiments.scored_runs import four, make_run, study
from tests.fake_server import FakeServer
from tests.kills import script, write_questions

N_TOWNS = 20  # 8 for training, 4 for validation, 8 held out


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "sk-none")
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Five finished runs over 60 questions, to be read only."""
    return study(tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="session")
def eight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of eight runs, to be read only."""
    folder = tmp_path_factory.mktemp("eight")
    boards.eight(folder)
    return folder


@pytest.fixture(scope="session")
def decided(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A verdict with its compiles, to be read only."""
    return boards.verdict(tmp_path_factory.mktemp("verdict"))


@pytest.fixture(scope="session")
def like() -> RunContext:
    """Data and index that all runs share."""
    return ready(make_config({"program": "vanilla", "size": 200, "lm": "openai/x"}))


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    """Makes the run folder of some records, by default of four; each time another."""

    def make(*records: Record, **card: Any) -> Path:
        name = f"run-{len(list(tmp_path.iterdir()))}"
        return make_run(tmp_path / name, records or four(), **card)

    return make


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(script) as running:
        yield running


@pytest.fixture
def shared(server: FakeServer, tmp_path: Path) -> dict[str, Any]:
    """Fields of a run that all cells share."""
    return {
        "program": "vanilla", "k": 1, "dataset": "jsonl", "lm": "openai/fake", "limit": None,
        "data_file": str(write_questions(tmp_path, N_TOWNS)), "api_base": server.url,
        "adapter": "chat", "workers": 2, "cache": False,
    }  # fmt: skip


@pytest.fixture
def load(shared: dict[str, Any], tmp_path: Path) -> Callable[..., Sweep]:
    """Makes a sweep of the fields given over those that all cells share."""

    def loaded(**fields: Any) -> Sweep:
        path = tmp_path / "sweep.yaml"
        path.write_text(yaml.safe_dump({**shared, **fields}, sort_keys=False))
        return load_sweep(path, out=tmp_path / "out")

    return loaded
