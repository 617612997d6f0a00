"""Random runs under random limits against a real server, and how far they passed the limits.

Used by a test with a few runs and by `benchmarks/budget_runs.py` with many.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ragbench.experiments.config import make_config
from ragbench.experiments.runs import ready
from ragbench.experiments.runs.context import RunContext, limited
from ragbench.experiments.runs.runner import run
from ragbench.lms.calls import Limits
from tests.fake_server import FakeServer, Fault, Hit, plausible

PROGRAMS = ("direct", "vanilla", "ircot", "self_rag", "planner", "multi_query", "react")
#: US dollars per token of the prompt and of the reply.
IN_USD, OUT_USD = 1e-6, 2e-6
FAULTS = ("429", "500", "503", "reset", "truncated", "empty")


@dataclass(frozen=True)
class Outcome:
    """One run, and the server's own count in the limit's unit, with that of its largest call."""

    program: str
    workers: int
    unit: str
    limit: float
    spent: float
    largest: float
    stopped: bool

    @property
    def over(self) -> float:
        """How far the limit was passed; 0 if it was not."""
        return max(0.0, self.spent - self.limit)

    @property
    def calls_over(self) -> float:
        """The same in the largest calls of the run."""
        return self.over / self.largest if self.largest else 0.0


def random_run(folder: Path, seed: int, like: RunContext | None = None) -> Outcome:
    """A run that `seed` decides, until its limit or its end, in one to three commands."""
    chance = random.Random(seed)
    unit = chance.choice(["calls", "tokens", "cost"])
    limit = {
        "calls": chance.randint(1, 40),
        "tokens": chance.randint(100, 12_000),
        "cost": round(chance.uniform(0.0001, 0.015), 5),
    }[unit]
    density = chance.choice([2.0, 4.0, 5.0])  # a limit reckons with 4 characters a token
    latency = chance.choice([0, 0.002, 0.02])
    with FakeServer(
        _server(chance, density), latency_s=latency, characters_per_token=density
    ) as server:
        given = {
            "program": chance.choice(PROGRAMS), "lm": "openai/fake", "api_base": server.url,
            "price": f"in={IN_USD * 1e6},out={OUT_USD * 1e6}", "size": 200,
            "limit": chance.randint(2, 12), "workers": chance.choice([1, 2, 4, 16]),
            "cache": chance.random() < 0.3, "reply_tokens": chance.choice([32, 256, 1024]),
            "out": str(folder / "run"),
        }  # fmt: skip
        config = make_config(given)
        for _ in range(chance.randint(1, 3)):  # the same command again must not spend more
            with limited(Limits(**{unit: limit}), config.folder()):
                bench = ready(config, like=like)
                # Retries follow at once; faults at random are no rate limit and no outage.
                caller = bench.lm.metered.caller
                caller.breaker = caller.rate = None
                caller.base_s = 0.0
                done = run(bench)
    sizes = {
        "calls": [1.0 for _ in server.hits],
        "tokens": [float(hit.prompt_tokens + hit.completion_tokens) for hit in server.hits],
        "cost": [h.prompt_tokens * IN_USD + h.completion_tokens * OUT_USD for h in server.hits],
    }[unit]
    largest, stopped = max(sizes, default=0.0), bool(done.stopped_by)
    return Outcome(config.program, config.workers, unit, limit, sum(sizes), largest, stopped)


def _server(chance: random.Random, density: float) -> Callable[[Hit], str | Fault]:
    rate = chance.choice([0.0, 0.1, 0.4])
    longest = chance.choice([1, 20, 200])
    seed = chance.random()

    def reply(hit: Hit) -> str | Fault:
        mine = random.Random(f"{seed} {hit.number}")
        if mine.random() < rate:
            kind = mine.choice(FAULTS)
            return Fault(kind, retry_after=0.001 if kind in ("429", "503") else None)
        limit = int(density * int(hit.body.get("max_tokens") or 512))
        text = plausible(hit).replace("some ", "some " + "word " * mine.randint(0, longest))
        return text[:limit]  # a real server keeps to the limit of the reply

    return reply
