"""Kills a run again and again with SIGKILL, and checks that it lost and repeated nothing.

Used by a test with a few kills and by `benchmarks/kill_eval.py` with many. The LM is a real HTTP
server on loopback; the run is the real command in a process of its own.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from ragbench.experiments.records import RECORDS, read_records
from tests.fake_server import FakeServer


@dataclass
class Damage:
    """What the kills did; `lost` and `repeated` must stay empty."""

    kills: int = 0
    during_run: int = 0  # kills that came while questions were being answered
    lost: list[str] = field(default_factory=list)  # finished questions whose record went away
    repeated: list[str] = field(default_factory=list)  # finished questions asked again
    finished: int = 0
    lines: int = 0


def write_questions(folder: Path, n: int) -> Path:
    """A data set with at least `n` test questions of one passage each."""
    path = folder / "questions.jsonl"
    rows = [
        {
            "id": f"q{i}",
            "question": f"Which town number {i} lies on river number {i}?",
            "answer": f"Town {i}",
            "context": [{"title": f"Town {i}", "text": f"Town {i} lies on river number {i}."}],
        }
        for i in range(3 * n)  # two fifths of them are the test split
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def command(data: Path, out: Path, url: str, *, limit: int) -> list[str]:
    """The run under test."""
    return [
        sys.executable, "-m", "ragbench", "eval", "--program", "ircot", "--set", "max_steps=2",
        "--dataset", "jsonl", "--data-file", str(data), "--limit", str(limit), "--no-cache",
        "--lm", "openai/fake", "--api-base", url, "--out", str(out), "--workers", "4",
    ]  # fmt: skip


def kill_often(folder: Path, *, kills: int, n: int, seed: int, latency_s: float = 0.05) -> Damage:
    """Start the run, kill it at a random moment, start it again; `kills` times, then let it end."""
    data, out, rng, damage = (
        write_questions(folder, n),
        folder / "run",
        random.Random(seed),
        Damage(),
    )
    environment = {**os.environ, "OPENAI_API_KEY": "none", "RAGBENCH_CACHE": str(folder / "cache")}
    with FakeServer(latency_s=latency_s) as server:
        while True:
            finished = read_records(out).finished
            asked_before = len(server.hits)
            limit = max(1, min(n, (damage.kills + 1) * n // (kills + 1)))
            process = subprocess.Popen(
                command(data, out, server.url, limit=limit if damage.kills < kills else n),
                env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            if damage.kills < kills:
                _wait_for_calls(server, asked_before, process)
                time.sleep(rng.uniform(0, 0.4))
                damage.during_run += process.poll() is None
                process.send_signal(signal.SIGKILL)
            assert process.wait() in (0, -signal.SIGKILL), "the run failed by itself"
            _check(server, asked_before, finished, out, damage)
            if damage.kills == kills:
                damage.finished = len(read_records(out).finished)
                damage.lines = len((out / RECORDS).read_bytes().splitlines())
                return damage
            damage.kills += 1


def _wait_for_calls(server: FakeServer, before: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    while len(server.hits) == before and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)


def _check(
    server: FakeServer, asked_before: int, finished: set[str], out: Path, damage: Damage
) -> None:
    damage.lost += sorted(finished - read_records(out).finished)
    prompts = "\n".join(hit.prompt for hit in server.hits[asked_before:])
    asked = Counter(qid for qid in finished if f"town number {qid[1:]} lies" in prompts)
    damage.repeated += sorted(asked)
