"""Fuzzes the loaders and the record reader for a time, and prints what was found.

    python -m benchmarks.fuzz --minutes 10 [--target records] [--seed 0]

Each round has a seed of its own, printed with what it found, so that a finding can be run again.
"""

import argparse
import time
import traceback
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzzing import TARGETS

ROUND = 2000


def fuzz(name: str, *, minutes: float, first_seed: int) -> tuple[int, list[str]]:
    """The number of examples run on the target, and the findings."""
    strategy, check = TARGETS[name]
    ran, found, end = 0, [], time.monotonic() + 60 * minutes
    number = first_seed
    while time.monotonic() < end:

        def once(case: Any) -> None:
            nonlocal ran
            if time.monotonic() < end:  # the rest of the last round is drawn in vain
                ran += 1
                check(case)

        quick = settings(
            max_examples=ROUND, deadline=None, database=None, derandomize=False,
            suppress_health_check=list(HealthCheck), phases=(Phase.generate, Phase.shrink),
        )  # fmt: skip
        try:
            seed(number)(quick(given(strategy)(once)))()
        except Exception:  # a finding, whatever it is
            found.append(f"seed {number}\n{traceback.format_exc(limit=-4)}")
            print(found[-1], flush=True)
        number += 1
    return ran, found


def main() -> None:
    """Run every target, or one, for the minutes given."""
    parser = argparse.ArgumentParser(prog="benchmarks.fuzz")
    parser.add_argument("--minutes", type=float, default=10.0, help="for each target")
    parser.add_argument("--target", choices=sorted(TARGETS))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for name in [options.target] if options.target else sorted(TARGETS):
        ran, found = fuzz(name, minutes=options.minutes, first_seed=options.seed)
        print(
            f"{name}: {ran} examples in {options.minutes:g} min, {len(found)} findings", flush=True
        )


if __name__ == "__main__":
    main()
