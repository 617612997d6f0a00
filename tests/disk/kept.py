"""Damages the SQLite files of answers, vectors and extractions at random, and runs over them.

A changed row may cost a new call, and nothing else: the run must end with exit code 0 and come to
the records and the index of one that found nothing kept.
"""

import random
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.disk.index_jobs import graph_job
from tests.fake_server import FakeServer
from tests.kills import Job, script, start


@dataclass
class Outcome:
    """What the damages did, by kind of file; `bad` must stay empty."""

    damages: int = 0
    bought_again: int = 0  # damages that cost calls
    bad: list[str] = field(default_factory=list)


def damaged(content: bytes, rng: random.Random) -> tuple[bytes, str]:
    """`content` with one damage, and what that is."""
    at = rng.randrange(len(content))
    kind = rng.choice(["flip", "flip", "cut", "zero"])
    if kind == "flip":
        bit = rng.randrange(8)
        changed = bytes([content[at] ^ (1 << bit)])
        return content[:at] + changed + content[at + 1 :], f"bit {bit} of byte {at} flipped"
    if kind == "cut":
        return content[:at], f"cut at byte {at}"
    n = min(rng.randint(1, 64), len(content) - at)
    return content[:at] + bytes(n) + content[at + n :], f"{n} bytes zeroed at {at}"


def corrupt_kept(folder: Path, *, damages: int, n: int, seed: int = 0) -> Outcome:
    """Damage one file at a time, `damages` times, under a run with an index over `n` passages."""
    rng, outcome, work = random.Random(seed), Outcome(), folder / "work"
    with FakeServer(script) as server:
        job = graph_job(work, server.url, n)
        job = replace(job, argv=[each for each in job.argv if each != "--no-cache"])
        _, wanted = _run(job, folder)
        good = folder / "good"
        shutil.copytree(work / "cache", good)
        # What is left of shared memory is made anew.
        files = [p for p in sorted(good.rglob("*")) if ".sqlite" in p.name or ".db" in p.name]
        files = [p for p in files if not p.name.endswith("-shm") and p.stat().st_size]
        for _ in range(damages):
            path, asked = rng.choice(files), len(server.hits)
            shutil.rmtree(work / "run")
            shutil.rmtree(work / "cache")
            shutil.copytree(good, work / "cache", ignore=shutil.ignore_patterns("*-shm"))
            bad, what = damaged(path.read_bytes(), rng)
            (work / "cache" / path.relative_to(good)).write_bytes(bad)
            code, found = _run(job, folder)
            outcome.damages += 1
            outcome.bought_again += len(server.hits) > asked
            if code or found != wanted:
                said = (folder / "log").read_text()[-1500:]
                outcome.bad.append(f"{path.relative_to(good)}: {what}: exit {code}, {said}")
    return outcome


def _run(job: Job, folder: Path) -> tuple[int | None, str]:
    (folder / "log").unlink(missing_ok=True)
    process = start(job.argv, folder / "log", job.cache)
    process.join(300)
    return process.exitcode, job.summary() if process.exitcode == 0 else ""
