"""Kills a compile again and again with SIGKILL, and compares what comes out with a quiet one.

Used by a test with a few kills and by `benchmarks/kill_compile.py` with many. The LM is a real HTTP
server on loopback whose reply is a function of the prompt; the compile is the real command in a
process of its own.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from tests.fake_server import FakeServer, Hit, plausible

WORKERS = 2


@dataclass
class Outcome:
    """A compile's program, the calls its server saw, and how many were asked more than once."""

    program: str
    billed: int  # by the sidecar
    hits: int
    repeated: int  # requests beyond the first of each
    kills: int = 0
    during: int = 0  # kills that came while the compile was running


def write_questions(folder: Path, n: int) -> Path:
    """A data set of `n` questions of one passage each; two fifths are for training."""
    path = folder / "questions.jsonl"
    rows = [
        {
            "id": f"q{i}",
            "question": f"Which town number {i} lies on river number {i}?",
            "answer": f"Town {i}",
            "context": [{"title": f"Town {i}", "text": f"Town {i} lies on river number {i}."}],
        }
        for i in range(n)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def script(hit: Hit) -> str:
    """Right or wrong by a hash of the prompt, so that every candidate scores differently."""
    asked = re.findall(r"Which town number (\d+) lies", hit.prompt)
    right = asked and crc32(hit.prompt.encode()) % 2
    return plausible(hit).replace("some answer", f"Town {asked[-1]}" if right else "elsewhere")


def command(optimizer: str, data: Path, out: Path, url: str) -> list[str]:
    """The compile under test."""
    return [
        sys.executable, "-m", "ragbench", "compile", "--program", "vanilla", "--k", "1",
        "--optimizer", optimizer, "--dataset", "jsonl", "--data-file", str(data),
        "--train-limit", "0", "--val-limit", "0", "--lm", "openai/fake", "--api-base", url,
        "--adapter", "chat", "--opt-set", "rounds=2", "--opt-set", "bootstrapped=6",
        "--opt-set", "labeled=0", "--out", str(out), "--workers", str(WORKERS),
    ]  # fmt: skip


def compile_with_kills(
    folder: Path, optimizer: str, *, kills: int, n: int, seed: int = 0, latency_s: float = 0.02
) -> Outcome:
    """Start the compile, kill it after a random number of new calls, and again; then let it end."""
    folder.mkdir(parents=True, exist_ok=True)
    data, out, rng = write_questions(folder, n), folder / "out", random.Random(seed)
    environment = {**os.environ, "OPENAI_API_KEY": "none", "RAGBENCH_CACHE": str(folder / "cache")}
    made, during = 0, 0
    with FakeServer(script, latency_s=latency_s) as server:
        while True:
            before = len(server.hits)
            process = subprocess.Popen(
                command(optimizer, data, out, server.url),
                env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            )  # fmt: skip
            if made < kills:
                _wait_for_calls(server, before + rng.randint(1, 6), process)
                time.sleep(rng.uniform(0, 0.05))
                during += process.poll() is None
                process.send_signal(signal.SIGKILL)
            _, errors = process.communicate()
            assert process.returncode in (0, -signal.SIGKILL), errors.decode()
            if made == kills:
                return _outcome(out, server, made, during)
            made += 1


def _outcome(out: Path, server: FakeServer, kills: int, during: int) -> Outcome:
    sidecar = json.loads((out / "sidecar.json").read_text())
    bodies = Counter(json.dumps(hit.body, sort_keys=True) for hit in server.hits)
    return Outcome(
        program=(out / "program.json").read_text(),
        billed=sidecar["cost"]["billed"]["all"]["calls"],
        hits=len(server.hits),
        repeated=sum(count - 1 for count in bodies.values()),
        kills=kills,
        during=during,
    )


def _wait_for_calls(server: FakeServer, n: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    while len(server.hits) < n and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
