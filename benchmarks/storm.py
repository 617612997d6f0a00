"""Lets every call to a file fail, one after another, and loses power, under every command.

    python -m benchmarks.storm [--step 1] [--first 1] [--only eval,compile]

See `tests/disk/faults.py`. Needs a C compiler. Prints a line per command
and exits with 1 if a run ended with a traceback, lost or changed finished work, or came to another
result.
"""

import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import click

from tests.disk.faults import Shim, each_call, lost_with_power
from tests.disk.jobs import JOBS


@click.command()
@click.option("--step", type=int, default=1, show_default=True, help="Every how many calls.")
@click.option("--first", type=int, default=1, show_default=True, help="The first that fails.")
@click.option("--only", default=",".join(JOBS), help="Commands, separated by commas.")
def main(step: int, first: int, only: str) -> None:
    """Print what came of the faults."""
    bad = 0
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as made:
        folder = Path(made)
        with Shim(folder / "shim") as shim:
            for name in only.split(","):
                make, prepare, n = JOBS[name]
                found = each_call(
                    make, folder / name, shim, n=n, step=step, first=first, prepare=prepare
                )
                lost = lost_with_power(make, folder / f"{name}-power", shim, n=n, prepare=prepare)
                calls = ", ".join(f"{what} {n}" for what, n in found.faults.most_common())
                print(
                    f"{name}: {found.faults.total()} faults ({calls}); wrong {len(found.bad)}; "
                    f"lost with the power {lost or 'nothing'}",
                    flush=True,
                )
                for line in found.bad:
                    print(f"  {line}", flush=True)
                bad += len(found.bad) + len(lost)
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
