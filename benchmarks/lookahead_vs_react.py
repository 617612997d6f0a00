"""Measures how long `lookahead` takes beside `react`, at equal difficulty.

Both answer the same questions over a server that takes a fixed time for every call; its scripted
replies make no detour, so each program takes the fewest calls that it can: `react`, whose model
makes the first search as published, one search per look-up, then
finish. The questions differ in shape: hops that follow each other, hops that do not depend on each
other, and two chains that are compared. The ratio of wall times and the calls on the critical path
are printed.

    python -m benchmarks.lookahead_vs_react [--latency 0.5] [--runs 3]
"""

import os

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import dspy

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the fakes of the tests

from ragbench.ledger import open_ledger
from ragbench.lms.adapters import make_adapter
from ragbench.lms.factory import make_lm
from ragbench.programs import PROGRAMS, RAGProgram
from tests.fake_server import FakeServer, Hit
from tests.programs.shelf import shelf

QUESTION = "In which county was the author of Salt Road born?"


@dataclass(frozen=True)
class Shape:
    """A question as the look-ups that it needs: what each waits for, by place."""

    name: str
    waits_for: tuple[tuple[int, ...], ...]

    @property
    def nodes(self) -> list[dict[str, Any]]:
        """The plan that a planner would make of it."""
        used = {i for after in self.waits_for for i in after}
        return [
            {
                "id": f"n{i}",
                "query": " ".join(["Harwick", str(i), *(f"{{v{j}}}" for j in after)]),
                "op": "bridge" if i in used else "lookup",
                "depends_on": [f"n{j}" for j in after],
                "confidence": 0.9,
                "cost": 1,
                "produces": [f"v{i}"] if i in used else [],
            }
            for i, after in enumerate(self.waits_for)
        ]


SHAPES = (
    Shape("chain of 2", ((), (0,))),
    Shape("chain of 3", ((), (0,), (1,))),
    Shape("2 apart", ((), ())),
    Shape("4 apart", ((), (), (), ())),
    Shape("2 chains of 2", ((), (), (0,), (1,))),
)
PROGRAMS_MEASURED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("react", {"variant": "spec"}),
    ("lookahead", {"variant": "bound"}),
    ("lookahead", {"variant": "engine"}),
)


class Replies:
    """What a model without a fault would reply for one question of a shape."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self._actions = self._react()

    def __call__(self, hit: Hit) -> str:
        """The reply, by the fields that the request's schema asks for."""
        schema = hit.body["response_format"]["json_schema"]["schema"]
        asked = set(schema["properties"])
        if "nodes" in asked:
            return json.dumps({"nodes": self.shape.nodes})
        if "bindings" in asked:
            every = range(len(self.shape.waits_for))
            return json.dumps(
                {"bindings": [{"variable": f"v{i}", "value": f"Eastmere {i}"} for i in every]}
            )
        if "tool" in asked:
            return json.dumps(next(self._actions))
        return json.dumps({"answer": "Dunmoor", "citations": ["n1.1"]})

    def _react(self) -> Iterator[dict[str, str]]:
        for i in range(len(self.shape.waits_for)):
            yield {
                "thought": "next",
                "answer": "",
                "tool": "search",
                "argument": f"Harwick {i}",
            }
        for _ in count():
            yield {"thought": "done", "answer": "Dunmoor", "tool": "finish", "argument": ""}


def measure(program: RAGProgram, shape: Shape, latency: float) -> tuple[float, int, int, int]:
    """Seconds of one question, calls on the critical path and in all, searches."""
    with FakeServer(Replies(shape), latency_s=latency) as server:
        lm = make_lm(
            "openai/fake", api_base=server.url, cache=False, schema=True, price="in=1,out=1"
        )
        with dspy.context(lm=lm, adapter=make_adapter("json", lm)), open_ledger() as ledger:
            start = time.perf_counter()
            prediction = program(question=QUESTION)
            seconds = time.perf_counter() - start
        lm.close()
    assert prediction.answer == "Dunmoor", prediction.answer
    return seconds, ledger.path.calls, len(ledger.calls), len(prediction.searches)


def main() -> None:
    """Print a line per shape and program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--latency", type=float, default=0.5, help="seconds of a call")
    parser.add_argument("--runs", type=int, default=3, help="the fastest counts")
    options = parser.parse_args()
    print(f"{'question':14} {'program':18} {'path':>4} {'calls':>5} {'searches':>8} {'s':>6} ratio")
    for shape in SHAPES:
        base = 0.0
        for name, knobs in PROGRAMS_MEASURED:
            program = PROGRAMS.get(name)(shelf(), **knobs)
            runs = [measure(program, shape, options.latency) for _ in range(options.runs)]
            wall, path, calls, searches = min(runs)
            base = base or wall  # react comes first
            label = f"{name}:{program.knobs.variant}"
            row = f"{shape.name:14} {label:18} {path:4} {calls:5} {searches:8}"
            print(f"{row} {wall:6.2f} {wall / base:5.2f}", flush=True)


if __name__ == "__main__":
    main()
