"""How long an LM-made index takes against an LM of fixed latency.

    python benchmarks/graph_index.py --passages 300 --latency 0.5 --workers 16

Prints, per system, the calls, the wall time, and its ratio to calls x latency / workers, which is
the least that so many workers can take. The LM is scripted: each passage names two towns of its
own, and one that every tenth passage names, so that descriptions are merged and graphs hang
together.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import tempfile
import time
from collections.abc import Callable

import dspy

from ragbench.ledger import open_ledger
from ragbench.lms.adapters.lenient import make_adapter
from ragbench.retrievers import Corpus, Passage
from ragbench.retrievers.graph import (
    HippoIndex,
    KnowledgeGraph,
    LinearIndex,
    LMIndex,
    base as graph,
)
from tests.fakes import Asked, Reply, ScriptedLM
from tests.retrievers.conftest import WordEmbedder

SYSTEMS: dict[str, type[LMIndex]] = {
    "linear_rag": LinearIndex,
    "hippo_rag": HippoIndex,
    "graph_rag": KnowledgeGraph,
}


def passage(i: int) -> Passage:
    """Passage `i`: its own towns, those of the next one, and a capital."""
    text = f"Town {i} lies on River {i}, not far from Town {i + 1}. Its capital is City {i % 10}."
    return Passage(f"p{i}", f"Town {i}", text)


def script(asked: Asked) -> Reply:
    """What an LM would list of a passage."""
    text = asked.inputs.get("text", "").partition("\n\n")[0]
    names = list(dict.fromkeys(re.findall(r"(?:Town|River|City) \d+", text)))
    if asked.signature == "ExtractEntities":
        return {"entities": names}
    if asked.signature == "ExtractTriples":
        rows = [(names[0], "is near", other) for other in names[1:]]
        return {"triples": [{"subject": s, "relation": r, "object": o} for s, r, o in rows]}
    if asked.signature == "ExtractGraph":
        known = json.loads(asked.inputs["known"].partition("\n\n")[0])
        new = [name for name in names if name.upper() not in known]
        return {
            "entities": [
                {"name": n, "type": "place", "description": f"{n} by {names[0]}"} for n in new
            ],
            "relations": [
                {"source": names[0], "target": n, "description": "near"} for n in new[1:]
            ],
        }
    if asked.signature == "Summarize":
        return {"summary": "A place named by several passages."}
    return {"title": "Places", "summary": "Some places.", "rating": 3.0, "findings": []}


def timed(make: Callable[[], object]) -> float:
    """Seconds that `make` takes."""
    start = time.perf_counter()
    make()
    return time.perf_counter() - start


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passages", type=int, default=300)
    parser.add_argument("--latency", type=float, default=0.5, help="seconds per call")
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--system", choices=SYSTEMS, action="append")
    given = parser.parse_args()
    corpus = Corpus([passage(i) for i in range(given.passages)])
    graph.make_embedder = lambda spec, api_base="": WordEmbedder()  # type: ignore[attr-defined]
    print("| system | calls | seconds | calls x latency / workers | ratio |")
    print("|---|---|---|---|---|")
    for name in given.system or SYSTEMS:
        lm = ScriptedLM(script, latency_s=given.latency, name=name)
        index = SYSTEMS[name](corpus, lm=name)
        with (
            tempfile.TemporaryDirectory() as folder,
            dspy.context(lm=lm, adapter=make_adapter("json", lm), num_threads=given.workers),
            open_ledger(),
        ):
            os.environ["RAGBENCH_CACHE"] = folder
            seconds = timed(index.build)
        least = len(lm.asked) * given.latency / given.workers
        calls = len(lm.asked)
        print(f"| {name} | {calls} | {seconds:.1f} | {least:.1f} | {seconds / least:.2f} |")


if __name__ == "__main__":
    main()
