"""Damages files of a run, a compiled program and an index at random, and counts what is noticed.

    python benchmarks/corruption.py [--damages 1000] [--kept 100] [--seed 0]

`--kept` is how many damages the SQLite files of answers, vectors and extractions get. See
`tests/disk/corruption.py` and `tests/disk/kept.py`. Exits with 1 if any damage changed what a
command prints without a word, or ended it with a traceback.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import click

from tests.disk.corruption import Folders, corrupt
from tests.disk.kept import corrupt_kept


@click.command()
@click.option("--damages", type=int, default=1_000, show_default=True)
@click.option("--kept", type=int, default=100, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
def main(damages: int, kept: int, seed: int) -> None:
    """Print how many damages came to what, by kind of file."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as made:
        os.environ.update(OPENAI_API_KEY="none", RAGBENCH_CACHE=str(Path(made, "cache")))
        found = corrupt(Folders(Path(made, "work")), damages, seed)
        files = corrupt_kept(Path(made, "kept"), damages=kept, n=30, seed=seed)
    for what, counts in (("harmless", found.harmless), ("noticed", found.noticed)):
        kinds = ", ".join(f"{name} {n}" for name, n in sorted(counts.items()))
        print(f"{what}: {counts.total()} ({kinds})")
    bad = {"by doctor alone": found.by_doctor_alone, "silent": found.silent}
    for what, cases in {**bad, "crashed": found.crashed}.items():
        print(f"{what}: {len(cases)}")
        for case in cases:
            print(f"  {case}")
    print(f"SQLite files: {files.damages} damages, {files.bought_again} cost calls")
    for case in files.bad:
        print(f"  {case}")
    sys.exit(bool(files.bad or found.by_doctor_alone or found.silent or found.crashed))


if __name__ == "__main__":
    main()
