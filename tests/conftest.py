"""Fixtures shared by all tests."""

import gc
import logging
import os
import shutil
import signal
import sys

# Child processes share compiled files; without them each compiles the whole package.
os.environ["PYTHONDONTWRITEBYTECODE"] = ""
# With these pytest prints compared values to their end.
os.environ["CI"] = os.environ["BUILD_NUMBER"] = ""
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")
os.environ["RAGBENCH_CONFIG"] = ""  # no settings file of the user

from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import dspy
import pytest

from ragbench.lms.calls import caller
from ragbench.lms.factory import make_lm
from ragbench.lms.lm import RagbenchLM
from tests.cli.test_mistakes import run
from tests.fake_server import FakeServer

sys.dont_write_bytecode = False
# In memory, if there is enough, commits of databases do not wait for a disk.
_MEMORY = Path("/dev/shm")
if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > 4 * 2**30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))

# No test waits as long as a provider needs to recover.
caller.Caller.base_s = 0.01
caller.FIRST_PAUSE_S = 0.05

# A suite started in the background of a script ignores SIGINT, and so would the processes it
# starts to interrupt them.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """What was imported lives on: no collection of garbage is to look at it again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    """Keep the last lines of what a test printed and logged, so that a failure fits a screen."""
    report = yield
    report.sections = [
        (name, "\n".join(text.splitlines()[-8:]) + "\n") for name, text in report.sections
    ]
    return report


@pytest.fixture(autouse=True)
def fresh_terminal() -> Iterator[None]:
    """Warnings are shown a few times in a process; what one test showed keeps no other quiet."""
    logger = logging.getLogger("ragbench")
    handlers = list(logger.handlers)
    logger.handlers.clear()
    yield
    logger.handlers[:] = handlers


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real questions beside the checkout; a clone without it skips the test."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("needs the folder of real questions beside the checkout (../shared/data)")
    return folder


@pytest.fixture(scope="session")
def local_lm() -> Iterator[RagbenchLM]:
    """The default local model, fetched at first use; nothing it says is cached."""
    lm = make_lm("local", cache=False)
    lm.check()
    yield lm
    lm.close()


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    """A fake server, in a folder of the test's own with a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "cache"))
    with FakeServer() as server:
        yield server


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs `ragbench ARGS` in this process: exit code, stdout and stderr."""
    return lambda *args: run(capsys, *map(str, args))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Towns to ask about and an LM of them, in a folder of the test's own."""
    from tests.experiments.towns import World  # which most tests need not import

    monkeypatch.chdir(tmp_path)
    return World(tmp_path, monkeypatch)


@pytest.fixture(autouse=True)
def fresh_dspy() -> Iterator[None]:
    """No cached reply and no setting survives a test."""
    dspy.configure_cache(
        enable_memory_cache=True, enable_disk_cache=False, memory_max_entries=10_000
    )
    before = dict(dspy.settings.config)
    yield
    dspy.settings.configure(**before)
