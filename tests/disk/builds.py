"""Kills commands that build an index at any moment, and looks at what the next one makes of it."""

import json
import random
import shutil
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.fake_server import FakeServer
from tests.kills import WORKERS, Job, Make, script, start


@dataclass
class Outcome:
    """What the kills did; all but `kills` must stay empty or 0."""

    kills: int = 0  # that found the process alive
    lost: list[str] = field(default_factory=list)  # replies and vectors that were on disk before
    paid_again: int = 0  # requests answered and sent again, but for those under way at the kill
    other: list[str] = field(default_factory=list)  # results, or what is left over


def kill_builds(make: Make, folder: Path, *, kills: int, n: int, seed: int = 0) -> Outcome:
    """Start the command in an empty folder, kill it at a random moment, and start it again.

    As often as it takes for `kills` to find it alive, three times as often at the most.
    """
    rng, outcome, work = random.Random(seed), Outcome(), folder / "work"
    with FakeServer(script, latency_s=0.01) as server:
        job = make(work, server.url, n)
        _run(job, folder / "log")  # the first start of all takes longer
        shutil.rmtree(work)
        job, begun = make(work, server.url, n), time.monotonic()
        _run(job, folder / "log")
        seconds, wanted = time.monotonic() - begun, job.summary()
        for _ in range(3 * kills):
            if outcome.kills == kills:
                break
            shutil.rmtree(work)
            job, first = make(work, server.url, n), len(server.hits)
            process = start(job.argv, folder / "log", job.cache)
            process.join(rng.uniform(0, seconds))
            outcome.kills += process.is_alive()
            process.kill()
            process.join()
            kept = job.finished()
            _run(job, folder / "log")
            after = job.finished()
            outcome.lost += [unit for unit, line in kept.items() if after.get(unit) != line]
            sent = [hit for hit in server.hits[first:] if job.replays(hit)]
            bodies = Counter(json.dumps(hit.body, sort_keys=True) for hit in sent)
            outcome.paid_again += max(0, sum(bodies.values()) - len(bodies) - WORKERS)
            outcome.other += [found for found in [job.summary()] if found != wanted]
    return outcome


def _run(job: Job, log: Path) -> None:
    process = start(job.argv, log, job.cache)
    process.join(300)
    assert process.exitcode == 0, log.read_text()[-2000:]
