"""Ctrl-C ends a run whatever its server does: no attempt is begun after it, and no traceback shown.

The run is the real command in a process of its own, over a real HTTP server on loopback. Without
the stop, each of these would go on for a minute or more.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ragbench.experiments.store import read_records
from tests.experiments.towns import write_towns
from tests.fake_server import FakeServer, Fault, Hit, Script, plausible

N = 40


def flaky(hit: Hit) -> str | Fault:
    return Fault("500") if hit.number % 2 else plausible(hit)


def hung(hit: Hit) -> Fault:
    return Fault("hang", seconds=60)


def all_rejected(hit: Hit) -> Fault:
    return Fault("429")


def down(hit: Hit) -> Fault:
    return Fault("503")


def dripping(hit: Hit) -> Fault:
    return Fault("drip")


@contextmanager
def running(folder: Path, server: FakeServer) -> Iterator[subprocess.Popen[str]]:
    key = {"OPENAI_API_KEY": "none", "RAGBENCH_CACHE": str(folder / "cache")}
    command = [
        sys.executable, "-m", "ragbench", "eval", "--program", "vanilla", "--dataset", "jsonl",
        "--data-file", str(write_towns(folder)), "--limit", str(N), "--no-cache", "--k", "1",
        "--lm", "openai/fake", "--api-base", server.url, "--out", str(folder / "run"),
        "--workers", "8",
    ]  # fmt: skip
    with subprocess.Popen(
        command, env={**os.environ, **key}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL) and None,
    ) as process:  # fmt: skip
        deadline = time.monotonic() + 60
        while len(server.hits) < 8 and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.02)
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("script", [flaky, hung, all_rejected, down, dripping])
def test_ctrl_c_ends_the_run(script: Script, tmp_path: Path) -> None:
    with FakeServer(script, latency_s=0.02) as server, running(tmp_path, server) as process:
        time.sleep(0.5)  # some are asleep between two attempts by now
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        sent = len(server.hits)
        _, err = process.communicate(timeout=15)
        assert process.returncode == 130, err
        assert "Traceback" not in err
        assert err.count("the same command continues") == 1
        assert len(server.hits) == sent
    assert read_records(tmp_path / "run").damaged == ()


def test_a_second_ctrl_c_ends_it_at_once(tmp_path: Path) -> None:
    with FakeServer(hung) as server, running(tmp_path, server) as process:
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=10)
        assert process.returncode == 130, err
        assert "Traceback" not in err
