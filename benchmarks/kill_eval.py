"""Kills a run with SIGKILL at random moments, and says what was lost and what was asked twice.

python benchmarks/kill_eval.py --kills 200
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import click

from tests.kills import kill_often


@click.command()
@click.option("--kills", type=int, default=200, show_default=True)
@click.option("--questions", type=int, default=2000, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
def main(kills: int, questions: int, seed: int) -> None:
    """Print the damage."""
    with tempfile.TemporaryDirectory() as folder:
        damage = kill_often(Path(folder), kills=kills, n=questions, seed=seed)
    print(
        f"kills {damage.kills} ({damage.during_run} while answering): lost {len(damage.lost)}, "
        f"asked again {len(damage.repeated)}, finished {damage.finished} of {questions}, "
        f"{damage.lines} record lines"
    )
    sys.exit(bool(damage.lost or damage.repeated))


if __name__ == "__main__":
    main()
