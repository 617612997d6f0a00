"""What a run takes whose every call the cache answers: `ragbench eval --program ircot`, again.

    python -m benchmarks.replay [--questions 1000] [--workers 64]

The first run fills the cache from a server on loopback that answers at once; the second, into
another folder, sends nothing. Its wall time is compared with what its calls would take at 100 ms
each, one after the other and `workers` at once. The start, which does not depend on the number of
questions, is measured by a run of one question and left out of the time per call.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.long_runs import write_questions
from tests.fake_server import FakeServer

CALL_S = 0.1


def measured(command: list[str], cache: str) -> tuple[float, float]:
    """Wall and CPU seconds of `command`.

    Raises:
        CalledProcessError: it failed.
    """
    environment = {**os.environ, "OPENAI_API_KEY": "none", "RAGBENCH_CACHE": cache}
    start = time.perf_counter()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, env=environment, **quiet)  # type: ignore[call-overload]
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return time.perf_counter() - start, used.ru_utime + used.ru_stime


def main() -> None:
    """Print wall and CPU of the second run, in all and per call, and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--questions", type=int, default=1_000)
    parser.add_argument("--workers", type=int, default=64)
    options = parser.parse_args()
    n, workers = options.questions, options.workers
    with tempfile.TemporaryDirectory() as name, FakeServer() as server:
        folder = Path(name)
        write_questions(folder / "questions.jsonl", n)

        def run(out: str, limit: int) -> tuple[float, float]:
            command = [sys.executable, "-m", "ragbench", "eval", "--program", "ircot"]
            command += ["--dataset", "jsonl", "--data-file", str(folder / "questions.jsonl")]
            command += ["--limit", str(limit), "--lm", "openai/fake", "--api-base", server.url]
            command += ["--workers", str(workers), "--k", "1", "--out", str(folder / out)]
            return measured(command, name)

        run("first", n)
        sent = len(server.hits)
        start, (wall, cpu) = run("one", 1), run("again", n)
        assert len(server.hits) == sent, "the cache did not answer all"
        calls = json.loads((folder / "again" / "summary.json").read_text())["as_if"]["calls"]
    print(f"{n} questions, {calls} calls, load {os.getloadavg()[0]:.1f}")
    print(f"replay {wall:.1f} s, CPU {cpu:.1f} s; of it start {start[0]:.1f} s, CPU {start[1]:.1f}")
    per_call, cpu_call = (1000 * (a - b) / calls for a, b in zip((wall, cpu), start, strict=True))
    print(f"a call: {per_call:.2f} ms, CPU {cpu_call:.2f} ms")
    one_by_one = calls * CALL_S
    print(f"calls of {CALL_S:g} s one after the other: {one_by_one / wall:.0f} times the replay")
    print(f"{workers} at once: {one_by_one / workers / wall:.1f} times the replay")


if __name__ == "__main__":
    main()
