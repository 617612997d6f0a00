"""How long an LM-made index takes against an LM of fixed latency.

    python -m benchmarks.graph_index --passages 300 --latency 0.5 --workers 16
    python -m benchmarks.graph_index --passages 100 --latency 0.2 --kill-after 3

Prints, per system, the calls, the wall time, its ratio to calls x latency / workers, which is the
least that so many workers can take, and the CPU time of a call. With --kill-after, the making is
killed after so many seconds and begun again: printed are the calls that were answered before the
kill, and how many of them were asked again (at most those that were being written down).

The LM is scripted: each passage names two towns of its own, and one that every tenth passage names,
so that descriptions are merged and graphs hang together.
"""

import argparse
import hashlib
import json
import multiprocessing
import os
import re
import tempfile
import time
from pathlib import Path

import dspy

from ragbench.ledger import open_ledger
from ragbench.lms.adapters import make_adapter
from ragbench.retrievers import Corpus, Passage
from ragbench.retrievers.lm_index import (
    HippoIndex,
    KnowledgeGraph,
    LinearIndex,
    LMIndex,
    base as graph,
)
from tests.fakes import Asked, Reply, Script, ScriptedLM
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


def killed(name: str, corpus: Corpus, given: argparse.Namespace) -> tuple[int, int, int]:
    """Calls answered before the kill, those of them asked again, and all that were asked after."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RAGBENCH_CACHE"] = folder
        log = Path(folder) / "answered.txt"

        def noted(asked: Asked) -> Reply:
            key = hashlib.sha256(asked.prompt.encode()).hexdigest()
            with log.open("a") as file:  # one short line: written whole or not at all
                file.write(key + "\n")
            return script(asked)

        child = multiprocessing.get_context("fork").Process(
            target=made, args=(name, corpus, given, noted)
        )
        child.start()
        child.join(given.kill_after)
        child.kill()
        child.join()
        before = log.read_text().split()
        log.write_text("")
        made(name, corpus, given, noted)
        after = log.read_text().split()
    return len(before), len({*before} & {*after}), len(after)


def made(name: str, corpus: Corpus, given: argparse.Namespace, answers: Script) -> ScriptedLM:
    """The LM that was asked for the index of `name`."""
    lm = ScriptedLM(answers, latency_s=given.latency, name=name)
    with (
        dspy.context(lm=lm, adapter=make_adapter("json", lm), num_threads=given.workers),
        open_ledger(),
    ):
        SYSTEMS[name](corpus, lm=name).build()
    return lm


def timed(name: str, corpus: Corpus, given: argparse.Namespace) -> str:
    """A row of the table."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RAGBENCH_CACHE"] = folder
        start, cpu = time.perf_counter(), time.process_time()
        calls = len(made(name, corpus, given, script).asked)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    least = calls * given.latency / given.workers
    each = 1000 * cpu / calls
    return (
        f"| {name} | {calls} | {seconds:.1f} | {least:.1f} | {seconds / least:.2f} | {each:.1f} |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passages", type=int, default=300)
    parser.add_argument("--latency", type=float, default=0.5, help="seconds per call")
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--system", choices=SYSTEMS, action="append")
    parser.add_argument("--kill-after", type=float, help="seconds until the making is killed")
    given = parser.parse_args()
    corpus = Corpus([passage(i) for i in range(given.passages)])
    graph.make_embedder = lambda spec, api_base="": WordEmbedder()  # type: ignore[assignment]
    if given.kill_after:
        for name in given.system or SYSTEMS:
            before, again, after = killed(name, corpus, given)
            print(
                f"{name}: {before} answered before the kill, {again} of them asked again; ", end=""
            )
            print(f"{after} asked after it")
        return
    print("| system | calls | seconds | calls x latency / workers | ratio | CPU ms a call |")
    print("|---|---|---|---|---|---|")
    for name in given.system or SYSTEMS:
        print(timed(name, corpus, given))


if __name__ == "__main__":
    main()
