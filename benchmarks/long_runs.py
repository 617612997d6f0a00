"""Measures what commands over long runs take: peak memory and CPU time of each, by length.

A run of N questions is continued for the last 20 of them against a server on loopback; its records
are those of `score_speed.py` (of the size of an IRCoT run on HotpotQA). The run is then summarized,
checked by `doctor`, and compared with itself. Each command is a process of its own; what its peak
memory holds besides records is that of the first length.

    python -m benchmarks.long_runs [--records 5000 20000 50000]
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.score_speed import made_record
from ragbench.experiments.store import DATABASE, Store
from ragbench.record import parse_record
from tests.fake_server import FakeServer

#: Questions that are still to be asked when the run is continued.
LEFT = 20
#: Different records; others repeat one under another id.
DISTINCT = 500


def write_questions(path: Path, n: int) -> None:
    """A data set of `n` questions of one short passage each."""
    with path.open("w") as file:
        for i in range(n):
            passage = {"title": f"Town {i}", "text": f"Town {i} lies on river {i}."}
            row = {"id": str(i), "question": f"Which town lies on river {i}?"}
            file.write(json.dumps({**row, "answer": f"Town {i}", "context": [passage]}) + "\n")


def add_records(folder: Path, n: int) -> None:
    """Append `n` made-up records to the run in `folder`, from id 0."""
    rng = random.Random(0)
    some = [made_record(number, rng) for number in range(min(n, DISTINCT))]
    with Store(folder) as store:
        for i in range(n):
            store.write(parse_record(json.dumps({**some[i % len(some)], "qid": str(i)})))


def measured(*arguments: str) -> tuple[float, float]:
    """CPU seconds and peak memory in MB of `ragbench` with these arguments.

    Raises:
        CalledProcessError: it failed.
    """
    command = [sys.executable, "-m", "ragbench", *arguments]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, env={**os.environ, "OPENAI_API_KEY": "none"}
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def measure(folder: Path, n: int, url: str) -> None:
    """Print what each command takes over a run of `n` questions."""
    questions, run = folder / "questions.jsonl", folder / "run"
    write_questions(questions, n)
    command = ["eval", "--program", "direct", "--dataset", "jsonl", "--data-file", str(questions)]
    command += ["--split", "all", "--limit", "0", "--lm", "openai/fake", "--api-base", url]
    command += ["--out", str(run)]
    subprocess.run(
        [sys.executable, "-m", "ragbench", *command, "--max-calls", "1", "--workers", "1"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
        env={**os.environ, "OPENAI_API_KEY": "none"},
    )  # fmt: skip
    add_records(run, n - LEFT)
    size = (run / DATABASE).stat().st_size / 2**20
    print(f"{n} records, {size:.0f} MB")
    for name, arguments in (
        ("resume", command),
        ("show", ["show", str(run)]),
        ("verify", ["verify", str(run)]),
        ("compare", ["compare", str(run), str(run)]),
    ):
        seconds, memory = measured(*arguments)
        print(f"  {name:10} {seconds:6.1f} s  {memory:6.0f} MB", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, nargs="+", default=[5_000, 20_000, 50_000])
    for n in parser.parse_args().records:
        with tempfile.TemporaryDirectory() as folder, FakeServer() as server:
            measure(Path(folder), n, server.url)


if __name__ == "__main__":
    main()
