"""Pack recorded runs as the demonstration that `ragbench report --demo` opens.

The replies of these runs were written by hand, as a strong model would answer, from the
prompts only.
The time of a reply is the time of a person, so the seconds of a question are stored as unknown.

    python benchmarks/demo.py RUN... -o ragbench/cli/demo.zip
"""

import argparse
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from ragbench.experiments.store import RunFolder, Store, read_card, read_records
from ragbench.experiments.store.reader import unpacked

#: Amounts that depend on the time of a reply.
TIMES = ["latency_s", "critical_path_s"]


def without_times(run: Path, target: Path) -> None:
    """Copy the records and prompts of `run` to `target` with unknown times."""
    card = read_card(run).model_copy(update={"unknown": ["p50_s", "p95_s"]})
    with Store(target, card) as store:
        for (text,) in RunFolder(run).reader.rows("SELECT text FROM prompts"):
            store.keep(unpacked(text) or "")
        for record in read_records(run).values():
            store.write(replace(record, unknown=TIMES))


def pack(runs: list[Path], file: Path) -> None:
    """Write `runs` into the ZIP archive `file`, with fixed dates."""
    with (
        TemporaryDirectory() as folder,
        ZipFile(file, "w", ZIP_DEFLATED, compresslevel=9) as archive,
    ):
        for run in runs:
            without_times(run, Path(folder) / run.name)
            for part in ("card.json", "run.db"):
                entry = ZipInfo(f"runs/{run.name}/{part}", (2026, 11, 28, 0, 0, 0))
                entry.compress_type = ZIP_DEFLATED
                archive.writestr(entry, (Path(folder) / run.name / part).read_bytes())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    pack(options.runs, options.output)
