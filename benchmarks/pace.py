"""What chance rejections (HTTP 429) cost, and how many calls a true limit has to reject.

    python -m benchmarks.pace                     # chance 2, 5, 10 %; 50 calls a second
    python -m benchmarks.pace --latency 0.3 --limit 20

A real server on loopback, in a process of its own, answers after `--latency`, and rejects at once:
each call by chance, or those above a limit (a token bucket that holds one second's worth). The LM
that `make_lm` gives is asked `--calls` times from `--workers` threads. Shown are seconds, their
ratio to the time without rejections, rejections, and calls that were lost.
"""

import os
import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import click
import dspy

from benchmarks import loopback
from ragbench.ledger import open_ledger
from ragbench.lms.factory import make_lm

SERVER_ARGUMENT = "--as-server"


def serve(latency_s: float, chance: float, limit: float) -> None:
    """Answer chat requests, but those that chance or the limit rejects."""
    draw, level, before = random.Random(0), limit, time.monotonic()

    def takes() -> bool:
        nonlocal level, before
        now = time.monotonic()
        level, before = min(limit, level + (now - before) * limit), now
        if draw.random() < chance or (limit and level < 1):
            return False
        level -= 1
        return True

    loopback.serve(latency_s, takes)


def asked(calls: int, workers: int, latency: float, chance: float, limit: float) -> float:
    """Ask a new server, print what came of it, and give the seconds."""
    server = subprocess.Popen(
        [sys.executable, __file__, SERVER_ARGUMENT, str(latency), str(chance), str(limit)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert server.stdout is not None
    lm = make_lm("openai/fake", api_base=server.stdout.readline().strip(), cache=False)
    lost = 0

    def call(number: int) -> None:
        nonlocal lost
        try:
            lm(f"prompt {number}")
        except dspy.LMError:
            lost += 1

    with open_ledger() as ledger, ThreadPoolExecutor(workers) as pool:
        start = time.monotonic()
        contexts = [copy_context() for _ in range(calls)]
        list(pool.map(lambda n: contexts[n].run(call, n), range(calls)))
        seconds = time.monotonic() - start
    rejected = sum(one.attempts for one in ledger.calls) - calls
    server.communicate()
    print(f"chance {chance:4.0%}, limit {limit or 'none'}: {seconds:5.1f} s, {rejected} rejected, "
          f"{lost} lost", flush=True)  # fmt: skip
    return seconds


@click.command()
@click.option("--calls", type=int, default=1000, show_default=True)
@click.option("--workers", type=int, default=64, show_default=True)
@click.option("--latency", type=float, default=0.1, show_default=True, help="Of an answer.")
@click.option("--chances", default="0.02,0.05,0.1", show_default=True)
@click.option("--limit", type=float, default=50.0, show_default=True, help="Calls a second.")
def main(calls: int, workers: int, latency: float, chances: str, limit: float) -> None:
    """Print a line for each server."""
    without = asked(calls, workers, latency, 0.0, 0.0)
    for chance in map(float, chances.split(",")):
        ratio = asked(calls, workers, latency, chance, 0.0) / without
        print(f"  {ratio:.2f} times the time without")
    asked(3 * calls // 2, workers, latency, 0.0, limit)


if __name__ == "__main__":
    match sys.argv[1:]:
        case [first, *rest] if first == SERVER_ARGUMENT:
            serve(*map(float, rest))
        case _:
            main()
