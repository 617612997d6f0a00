"""A wall clock that is set an hour forward and back all the time changes nothing in a run."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fake_server import FakeServer, Fault, Hit
from tests.kills import eval_job, script
from tests.runs import record_rows

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


def test_waits_limits_and_latencies_do_not_follow_the_wall_clock(tmp_path: Path) -> None:
    library, source = tmp_path / "clock.so", ROOT / "tests" / "disk" / "clock.c"
    command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True)

    def limited(hit: Hit) -> str | Fault:
        reply = Fault("429", retry_after=0.3) if hit.number % 4 == 2 else script(hit)
        assert isinstance(reply, str | Fault)
        return reply

    with FakeServer(limited, latency_s=0.05) as server:
        job = eval_job(tmp_path, server.url, 12)
        begun = time.monotonic()
        done = subprocess.run(
            [
                sys.executable, "-m", "ragbench", *job.argv, "--rpm", "600", "--max-minutes", "20",
                "--question-timeout", "300",
            ],
            cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
            env={
                **os.environ, "LD_PRELOAD": str(library), "OPENAI_API_KEY": "none",
                "RAGBENCH_CACHE": str(tmp_path / "cache"),
            },
        )  # fmt: skip
        elapsed = time.monotonic() - begun
        asked = len(server.hits)
    assert done.returncode == 0, done.stderr
    rows = record_rows(tmp_path / "run")
    calls = [call for row in rows for call in row["ledger"]["calls"]]
    assert [row["failure"] for row in rows] == [None] * 12
    assert sum(call["attempts"] for call in calls) == asked > 12
    latencies = [each["latency_s"] for each in (*rows, *calls)]
    assert 0 < min(latencies) <= max(latencies) < elapsed
