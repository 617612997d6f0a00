"""A run that is interrupted, or whose disk is full or read-only, ends in one line; nothing is lost.

The run is the real command in a process of its own, over a real HTTP server on loopback.
"""

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ragbench.experiments.store import read_records
from tests.experiments.towns import write_towns
from tests.fake_server import FakeServer

N = 10


class Process:
    """The command under test, over `N` questions."""

    def __init__(self, folder: Path, server: FakeServer, out: Path) -> None:
        self.server, self.out = server, out
        self.data = write_towns(folder)
        key = {"OPENAI_API_KEY": "none", "RAGBENCH_CACHE": str(folder / "cache")}
        self.environment = {**os.environ, **key}

    def start(self, before: Callable[[], Any] | None = None) -> subprocess.Popen[str]:
        command = [
            sys.executable, "-m", "ragbench", "eval", "--program", "vanilla", "--dataset", "jsonl",
            "--data-file", str(self.data), "--limit", str(N), "--no-cache", "--k", "1",
            "--lm", "openai/fake", "--api-base", self.server.url, "--out", str(self.out),
            "--workers", "2",
        ]  # fmt: skip
        return subprocess.Popen(
            command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, preexec_fn=lambda: prepare(before),
        )  # fmt: skip

    def finish(self) -> None:
        """Give the same command again, and check that nothing finished is asked again."""
        before = read_records(self.out).finished
        asked = len(self.server.hits)
        process = self.start()
        _, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        prompts = "\n".join(hit.prompt for hit in self.server.hits[asked:])
        assert not [q for q in before if f"town number {q[1:]} lies" in prompts]
        loaded = read_records(self.out)
        assert len(loaded.finished) == N
        assert loaded.damaged == ()


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    with FakeServer(latency_s=0.2) as server:
        yield lambda out=tmp_path / "run": Process(tmp_path, server, out)


def prepare(before: Callable[[], Any] | None) -> None:
    """Take Ctrl-C in the child also where these tests ignore it, as in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if before:
        before()


def one_line(err: str) -> str:
    """The only line on standard error beside the title of the run."""
    assert "Traceback" not in err
    lines = [line for line in err.splitlines() if line.strip() and "questions to ask" not in line]
    assert len(lines) == 1, err
    return lines[0]


def test_ctrl_c(make: Callable[..., Process]) -> None:
    run = make()
    process = run.start()
    deadline = time.monotonic() + 60
    while len(run.server.hits) < 4 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "the same command continues" in one_line(err)
    loaded = read_records(run.out)
    said = f"not finished: {len(loaded.finished)} of {N} answered, {N - len(loaded.finished)} not"
    assert said in out
    assert 0 < len(loaded.finished) < N
    assert loaded.damaged == ()
    assert all(record.failure is None for record in loaded.values())
    assert '"event": "interrupted"' in (run.out / "log.jsonl").read_text()
    run.finish()


def test_full_disk(make: Callable[..., Process], tmp_path: Path) -> None:
    """A real file system without room where one may be mounted, else a limit on files' sizes."""
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(small)]
    mounted = (
        shutil.which("mount") is not None
        and not subprocess.run(mount, capture_output=True, check=False).returncode
    )
    run = make(small / "run")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    try:
        process = run.start(None if mounted else limit)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 2, err
        lines = [line for line in err.splitlines() if line.startswith("error: ")]
        assert len(lines) == 1, err
        assert "cannot write" in lines[0]
        assert "Traceback" not in err
        assert read_records(run.out).damaged == ()
        assert len(run.server.hits) < N, "more was asked than could be kept"
        kept = tmp_path / "kept"
        shutil.copytree(run.out, kept)
    finally:
        if mounted:
            subprocess.run(["umount", str(small)], check=False)
    run.out = kept
    assert (kept / "run.db").is_file()
    run.finish()


def test_read_only_folder(make: Callable[..., Process], tmp_path: Path) -> None:
    """A folder on a read-only file system, or one that this user may not write."""
    folder = tmp_path / "mine"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "ro,size=8k", "tmpfs", str(folder)]
    root = os.getuid() == 0
    mounted = root and not subprocess.run(mount, capture_output=True, check=False).returncode
    if root and not mounted:
        pytest.skip("root may write everything, and nothing can be mounted here")
    folder.chmod(0o555) if not mounted else None
    run = make(folder / "run")
    try:
        process = run.start()
        _, err = process.communicate(timeout=60)
    finally:
        subprocess.run(["umount", str(folder)], check=False) if mounted else folder.chmod(0o755)
    assert process.returncode == 2, err
    assert "cannot use the run folder" in one_line(err)
    assert run.server.hits == []


def test_a_reader_that_leaves_ends_the_command_without_a_word() -> None:
    command = [sys.executable, "-m", "ragbench", "list", "programs"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1
