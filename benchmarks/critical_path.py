"""Measures whether a program's independent calls run at once.

Each program answers one question over a fake LM that takes a fixed time for every call, once with
replies that end soon and once with replies that go through all there is. The wall time against the
ledger's critical path (the longest chain of calls that wait for each other) times that latency must
be at most 1.15; beside it stands the time that one call after the other would take.

    python -m benchmarks.critical_path [--latency 0.2] [--runs 3] [program ...]
"""

import os

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")

import argparse
import sys
import time
from pathlib import Path

import dspy

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the fakes of the tests

from ragbench.ledger import open_ledger
from ragbench.lms.adapters import make_adapter
from ragbench.programs import PROGRAMS, RAGProgram
from tests.fakes import Script, ScriptedLM, plausible
from tests.programs.shelf import shelf
from tests.programs.test_contract import never_stops

TARGET = 1.15
QUESTION = "In which county was the author of Salt Road born?"


def measure(program: RAGProgram, script: Script, latency: float) -> tuple[float, int, int]:
    """Seconds of one question, and its calls: on the critical path, and in all."""
    lm = ScriptedLM(script, latency_s=latency)
    with dspy.context(lm=lm, adapter=make_adapter("json", lm)), open_ledger() as ledger:
        start = time.perf_counter()
        program(question=QUESTION)
        return time.perf_counter() - start, ledger.path.calls, len(ledger.calls)


def main() -> None:
    """Print a line per program, variant and script; exit with 1 if one misses the target."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="*", default=PROGRAMS.names())
    parser.add_argument("--latency", type=float, default=0.2, help="seconds of a call")
    parser.add_argument("--runs", type=int, default=3, help="the fastest counts")
    options = parser.parse_args()
    missed = False
    print(f"{'program':28} {'replies':12} {'calls':>5} {'path':>5} {'wall/path':>9} {'serial':>7}")
    for name in options.programs:
        for variant in PROGRAMS.get(name).variants:
            for script in (plausible, never_stops):
                program = PROGRAMS.get(name)(shelf(), variant=variant)
                runs = [measure(program, script, options.latency) for _ in range(options.runs)]
                wall, path, calls = min(runs)
                ratio = wall / (path * options.latency)
                missed |= ratio > TARGET
                shown = f"{name}:{variant}".removesuffix(":default")
                row = f"{shown:28} {script.__name__:12} {calls:5} {path:5}"
                print(f"{row} {ratio:9.3f} {calls / path:7.2f}", flush=True)
    sys.exit(missed)


if __name__ == "__main__":
    main()
