"""Kills a compile 20 times per optimizer and compares the result with a quiet one.

    python benchmarks/kill_compile.py [--kills 20] [--questions 150]

Prints what was repeated: calls that were under way when a kill came are asked again, at most one
per worker and kill; no other call may be.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.compile_kills import WORKERS, compile_with_kills


def main() -> int:
    """Run both and return 1 if the program differs or a finished call was repeated."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--questions", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    failed = False
    for optimizer in ("bootstrap", "random_search"):
        with tempfile.TemporaryDirectory() as folder:
            size = {"n": given.questions, "seed": given.seed}
            quiet = compile_with_kills(Path(folder, "quiet"), optimizer, kills=0, **size)
            killed = compile_with_kills(
                Path(folder, "killed"), optimizer, kills=given.kills, **size
            )
        same = killed.program == quiet.program
        allowed = killed.during * WORKERS
        failed |= not same or killed.repeated > allowed
        print(
            f"{optimizer}: {killed.kills} kills ({killed.during} while running); "
            f"same program: {same}; calls {quiet.hits} quiet, {killed.hits} killed, "
            f"{killed.repeated} repeated (at most {allowed} were under way); "
            f"billed by the sidecar {quiet.billed} and {killed.billed}",
            flush=True,
        )
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
