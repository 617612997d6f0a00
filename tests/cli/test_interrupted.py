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
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ragbench.experiments.store import read_records
from tests.experiments.towns import write_towns
from tests.fake_server import FakeServer, Fault, Hit, Script, plausible

N = 10


class Command:
    """The command under test, over `N` questions."""

    def __init__(self, folder: Path, server: FakeServer, out: Path) -> None:
        self.server, self.out, self.data = server, out, write_towns(folder)
        self.environment = {
            **os.environ, "OPENAI_API_KEY": "none", "RAGBENCH_CACHE": str(folder / "cache"),
        }  # fmt: skip

    def start(self, before: Callable[[], Any] | None = None) -> subprocess.Popen[str]:
        def prepare() -> None:
            """Take Ctrl-C also where these tests ignore it, as in the background."""
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            if before:
                before()

        command = [
            sys.executable, "-m", "ragbench", "eval", "--program", "vanilla", "--dataset", "jsonl",
            "--data-file", str(self.data), "--limit", str(N), "--no-cache", "--k", "1",
            "--lm", "openai/fake", "--api-base", self.server.url, "--out", str(self.out),
            "--workers", "2",
        ]  # fmt: skip
        return subprocess.Popen(
            command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, preexec_fn=prepare,
        )  # fmt: skip

    def interrupted(self, hits: int, times: int = 1) -> tuple[str, str]:
        """What it prints when Ctrl-C comes after so many `hits`, and again until it has ended."""
        process = self.start()
        deadline = time.monotonic() + 60
        while len(self.server.hits) < hits and time.monotonic() < deadline:
            time.sleep(0.02)
        for _ in range(times):
            process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
        assert process.returncode == 130, err
        assert "Traceback" not in err
        return out, err

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
        assert (len(loaded.finished), loaded.damaged) == (N, ())


def the_line(err: str) -> str:
    """The only line on standard error beside the title of the run."""
    assert "Traceback" not in err
    lines = [line for line in err.splitlines() if line.strip() and "questions to ask" not in line]
    assert len(lines) == 1, err
    return lines[0]


def test_ctrl_c_keeps_what_is_finished_and_the_same_command_continues(tmp_path: Path) -> None:
    with FakeServer(latency_s=0.2) as server:
        run = Command(tmp_path, server, tmp_path / "run")
        out, err = run.interrupted(hits=4)
        assert "the same command continues" in the_line(err)
        loaded = read_records(run.out)
        done = len(loaded.finished)
        assert f"not finished: {done} of {N} answered, {N - done} not" in out
        assert 0 < done < N
        assert loaded.damaged == ()
        assert all(record.failure is None for record in loaded.values())
        assert '"event": "interrupted"' in (run.out / "log.jsonl").read_text()
        run.finish()


def flaky(hit: Hit) -> str | Fault:
    return Fault("500") if hit.number % 2 else plausible(hit)


@pytest.mark.parametrize(
    ("script", "times"),
    [
        (flaky, 1),
        (lambda hit: Fault("429"), 1),
        (lambda hit: Fault("drip"), 1),
        (lambda hit: Fault("hang", seconds=60), 1),
        (lambda hit: Fault("hang", seconds=60), 2),
    ],
)
def test_ctrl_c_ends_it_whatever_the_server_does(
    script: Script, times: int, tmp_path: Path
) -> None:
    """Without the stop each of these would go on for a minute or more."""
    with FakeServer(script, latency_s=0.02) as server:
        run = Command(tmp_path, server, tmp_path / "run")
        run.interrupted(hits=2, times=times)
    assert read_records(tmp_path / "run").damaged == ()


def test_full_disk(tmp_path: Path) -> None:
    """A real file system without room where one may be mounted, else a limit on files' sizes."""
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(small)]
    mounted = (
        shutil.which("mount") is not None
        and not subprocess.run(mount, capture_output=True, check=False).returncode
    )

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    with FakeServer(latency_s=0.2) as server:
        run, kept = Command(tmp_path, server, small / "run"), tmp_path / "kept"
        try:
            process = run.start(None if mounted else limit)
            _, err = process.communicate(timeout=60)
            assert process.returncode == 2, err
            [line] = [line for line in err.splitlines() if line.startswith("error: ")]
            assert "cannot write" in line
            assert "Traceback" not in err
            assert read_records(run.out).damaged == ()
            assert len(server.hits) < N, "more was asked than could be kept"
            shutil.copytree(run.out, kept)
        finally:
            if mounted:
                subprocess.run(["umount", str(small)], check=False)
        run.out = kept
        run.finish()


def test_read_only_folder(tmp_path: Path) -> None:
    """A folder on a read-only file system, or one that this user may not write."""
    folder = tmp_path / "mine"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "ro,size=8k", "tmpfs", str(folder)]
    root = os.getuid() == 0
    mounted = root and not subprocess.run(mount, capture_output=True, check=False).returncode
    if root and not mounted:
        pytest.skip("root may write everything, and nothing can be mounted here")
    folder.chmod(0o555) if not mounted else None
    with FakeServer() as server:
        try:
            process = Command(tmp_path, server, folder / "run").start()
            _, err = process.communicate(timeout=60)
        finally:
            subprocess.run(["umount", str(folder)], check=False) if mounted else folder.chmod(0o755)
        assert process.returncode == 2, err
        assert "cannot use the run folder" in the_line(err)
        assert server.hits == []


def test_a_reader_that_leaves_ends_the_command_without_a_word() -> None:
    command = [sys.executable, "-m", "ragbench", "list", "programs"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1
