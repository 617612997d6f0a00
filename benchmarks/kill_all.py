"""Kills eval, compile, sweep and judge with SIGKILL at random, and says what that lost or repeated.

    python -m benchmarks.kill_all [--kills 500] [--seed 0] [--only eval,judge]

Each command is compared with the same command left alone: the bytes of its summary without times
(for a compile its program and scores; without what was billed where the cache is on, since a reply
that came just before a kill is in no record), finished records that went away or changed, finished
work asked or kept twice. Where the cache is on, a request sent twice was under way at a kill.
"""

import os
import sys
import tempfile
from functools import partial
from pathlib import Path

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import click

from tests.disk.jobs import JOBS
from tests.kills import Make, compile_job, eval_job, judge_job, kill_often, sweep_job

#: Command -> share of the kills, questions per kill, most requests between kills, and the job.
COMMANDS: dict[str, tuple[float, float, int, Make]] = {
    "eval": (0.3, 8, 6, eval_job),
    "judge": (0.28, 11, 6, judge_job),
    "sweep": (0.26, 5, 6, sweep_job),
    "bootstrap": (0.08, 12, 4, partial(compile_job, optimizer="bootstrap")),
    "random_search": (0.08, 3, 6, partial(compile_job, optimizer="random_search")),
    "index": (0, 0, 1, JOBS["index"][0]),
    "graph": (0.01, 20, 3, JOBS["graph"][0]),
    "tree": (0.01, 8, 3, JOBS["tree"][0]),
}


@click.command()
@click.option("--kills", type=int, default=500, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--only", default=",".join(COMMANDS), help="Commands, separated by commas.")
def main(kills: int, seed: int, only: str) -> None:
    """Print a line per command, and exit with 1 if anything was lost or repeated."""
    bad, total = False, 0
    memory = Path("/dev/shm")  # what a process wrote outlives it there as well, and a disk is slow
    for name in only.split(","):
        share, per_kill, calls, make = COMMANDS[name]
        n = max(1, round(share * kills))
        with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
            questions = round(n * per_kill) + 40
            quiet, killed = kill_often(
                make, Path(folder, "work"), kills=n, n=questions, seed=seed, calls=calls
            )
        same = quiet.summary == killed.summary
        bad |= not same or bool(killed.lost or killed.repeated or killed.overpaid)
        total += killed.kills
        print(
            f"{name}: {killed.kills} kills; finished work lost {len(killed.lost)}, repeated "
            f"{len(killed.repeated)}; finished {killed.finished} (left alone {quiet.finished}); "
            f"same summary {same}; kept and sent again, not under way at a kill {killed.overpaid}",
            flush=True,
        )
    print(f"kills in all: {total}")
    sys.exit(bad)


if __name__ == "__main__":
    main()
