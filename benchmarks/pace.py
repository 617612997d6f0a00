"""How much of a server's changing rate limit is used, and how many calls it has to reject.

python benchmarks/pace.py --rates 20,50,10,30,30 --phase 60

A real server on loopback takes so many requests a second (a token bucket that holds one second's
worth), which it answers after `--latency`, and rejects the others with 429 after `--reach` alone.
As many callers as it would take to use twice the highest rate never rest. The named alternative, at
the same time against a server of its own: the same calls with retries after growing waits alone, as
without a pace.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import click
import dspy

from ragbench.lms import RagbenchLM, make_lm
from tests.fake_server import FakeServer, Fault, Hit


@dataclass
class Limited:
    """A server's limit: what it took and rejected, by phase."""

    rates: list[float]
    phase_s: float
    latency_s: float  # of an answer, beyond that of a rejection
    start: float = field(default_factory=time.monotonic)
    level: float = 0.0
    before: float = 0.0
    taken: list[int] = field(default_factory=list)
    rejected: list[int] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.taken, self.rejected = [0] * len(self.rates), [0] * len(self.rates)
        self.level = self.rates[0]

    def __call__(self, hit: Hit) -> str | Fault:
        """The reply to one request."""
        with self._lock:
            now = time.monotonic() - self.start
            phase = min(int(now / self.phase_s), len(self.rates) - 1)
            rate = self.rates[phase]
            self.level = min(rate, self.level + (now - self.before) * rate)
            self.before = now
            if self.level < 1:
                self.rejected[phase] += 1
                return Fault("429")
            self.level -= 1
            self.taken[phase] += 1
        time.sleep(self.latency_s)
        return "yes"

    def report(self, name: str) -> tuple[float, float]:
        """Print what happened; gives the share used, and the share rejected after a minute."""
        possible = [rate * self.phase_s for rate in self.rates]
        first = round(60 / self.phase_s)
        rejected, taken = sum(self.rejected[first:]), sum(self.taken[first:])
        used, refused = sum(self.taken) / sum(possible), rejected / max(1, rejected + taken)
        phases = ", ".join(
            f"{rate:g}/s {took / could:.2f} ({no} rejected)"
            for rate, took, could, no in zip(
                self.rates, self.taken, possible, self.rejected, strict=True
            )
        )
        print(f"{name}: {used:.3f} of what was possible, {refused:.2%} rejected after the first "
              f"minute; by phase {phases}")  # fmt: skip
        return used, refused


def keep_calling(lm: dspy.LM, until: float, callers: int) -> None:
    """Call without a rest until the time is over, whatever comes of it."""

    def caller(number: int) -> None:
        calls = 0
        while time.monotonic() < until:
            calls += 1
            with contextlib.suppress(dspy.LMError):  # of the alternative: its retries are used up
                lm(f"prompt {number}.{calls}")

    with ThreadPoolExecutor(callers) as pool:
        list(pool.map(caller, range(callers)))


def without_pace(lm: RagbenchLM) -> RagbenchLM:
    """`lm`, with nothing but retries against rejections."""
    lm.metered.middleware.clear()
    lm.metered.caller.holding = ()
    return lm


@click.command()
@click.option("--rates", default="20,50,10,30,30", show_default=True, help="Requests a second.")
@click.option("--phase", type=float, default=60.0, show_default=True, help="Seconds of each rate.")
@click.option("--latency", type=float, default=0.3, show_default=True, help="Of an answer.")
@click.option("--reach", type=float, default=0.05, show_default=True, help="Of a rejection.")
@click.option("--alone", is_flag=True, help="Without the alternative, on a busy machine.")
def main(rates: str, phase: float, latency: float, reach: float, alone: bool) -> None:
    """Print the shares used and rejected; exits with 1 below 0.9 or above 2 %."""
    wanted = [float(rate) for rate in rates.split(",")]
    callers = max(8, int(2 * max(wanted) * latency))
    limits = [Limited(wanted, phase, latency - reach) for _ in range(2)]
    with (
        FakeServer(limits[0], latency_s=reach) as one,
        FakeServer(limits[1], latency_s=reach) as other,
    ):
        paced = make_lm("openai/fake", api_base=one.url, cache=False)
        plain = without_pace(make_lm("openai/fake", api_base=other.url, cache=False))
        for limit in limits:
            limit.start = time.monotonic()
        until = limits[0].start + phase * len(wanted)
        lms = (paced,) if alone else (paced, plain)
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda lm: keep_calling(lm, until, callers), lms))
    used, refused = limits[0].report("pace")
    if not alone:
        plain_used, _ = limits[1].report("retries alone")
        print(f"pace / retries alone: {used / plain_used:.2f} times the throughput")
    sys.exit(used < 0.9 or refused > 0.02)


if __name__ == "__main__":
    main()
