"""Random runs under random limits: how far is a limit ever passed?

    python -m benchmarks.budget_runs --runs 200

Programs, workers, limits of calls, tokens and cost, lengths of replies, faults and the server's own
tokeniser are drawn at random; each run is a command given one to three times against a real HTTP
server, whose log says what was spent. Exits with 1 if a limit was passed by more than one call per
worker.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")
os.environ.setdefault("OPENAI_API_KEY", "none")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ragbench.experiments.config import make_config
from ragbench.experiments.runs import ready
from tests.budgets import Outcome, random_run


def main() -> None:
    """Run, and print the worst of each kind of limit."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RAGBENCH_CACHE"] = str(Path(folder) / "cache")
        like = ready(make_config({"program": "vanilla", "size": 200, "lm": "openai/x"}))
        start = time.perf_counter()
        outcomes = []
        for number in range(given.runs):
            place = Path(folder) / str(number)
            outcomes.append(random_run(place, given.seed + number, like))
        seconds = time.perf_counter() - start
    for unit in ("calls", "tokens", "cost"):
        print(_line(unit, [one for one in outcomes if one.unit == unit]))
    worst = max(outcomes, key=lambda one: one.calls_over / one.workers)
    print(f"worst: {worst}")
    print(f"{len(outcomes)} runs in {seconds:.0f} s")
    sys.exit(any(one.calls_over > one.workers for one in outcomes))


def _line(unit: str, some: list[Outcome]) -> str:
    stopped = [one for one in some if one.stopped]
    used = sorted(one.spent / one.limit for one in stopped)
    return (
        f"{unit}: {len(some)} runs, {len(stopped)} stopped; the limit was passed in "
        f"{sum(one.over > 1e-9 for one in some)}, by {max(one.calls_over for one in some):.2f} "
        f"calls and {max(one.over / one.limit for one in some):.1%} of it at the most; "
        f"{used[len(used) // 2]:.1%} of it used where stopped (median)"
    )


if __name__ == "__main__":
    main()
