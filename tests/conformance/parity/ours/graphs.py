"""The rankings of the graph systems over a fictional world, whose parts are read by a pattern.

Names are runs of capitalised words; neighbouring names of a passage are related. Facts are kept by
their rank, keywords of a question are its names, and vectors are sums of fixed ones of the words.
"""

import os
import tempfile
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import dspy

from ragbench.data import DataSpec, load_dataset
from ragbench.ledger import open_ledger
from ragbench.lms.adapters import make_adapter
from ragbench.programs import GraphRAG, HippoRAG, LightRAG, LinearRAG
from ragbench.retrievers import Corpus, Passage, make_retriever
from ragbench.retrievers.lm_index import base, by_pattern
from tests.conformance.parity.ours import Parts, World
from tests.conformance.parity.ours.a_rag import Words
from tests.fakes import Asked, Reply, ScriptedLM

#: Facts that the filter keeps, the first ones.
KEPT = 3
DEPTH = 20
PROGRAMS: dict[str, tuple[Any, dict[str, Any]]] = {
    "linear_rag": (LinearRAG, {"entities": "regex", "adjacent": "on"}),
    "hippo_rag": (HippoRAG, {}),
    "light_rag": (LightRAG, {}),
    "graph_rag": (GraphRAG, {}),
}


def texts_of(world: World) -> list[str]:
    """The passages of a world of that seed and size, each after its number, as LinearRAG's are."""
    return [f"{i}:{passage}" for i, passage in enumerate(_data(world).corpus)]


def questions_of(world: World) -> dict[str, str]:
    """Its first questions, by id."""
    chosen = _data(world).select("all", world["questions"])
    return {example.qid: example.question for example in chosen}


def _data(world: World) -> Any:
    spec = DataSpec("synthetic", setting="pooled", size=world["passages"], seed=world["seed"])
    return load_dataset(spec)


def related(text: str) -> list[tuple[str, str]]:
    """Neighbouring names of `text`."""
    return list(pairwise(by_pattern(text)))


def script(asked: Asked) -> Reply:
    """What is read off a passage or a question, in the place of an LM."""
    text = asked.inputs.get("text") or asked.inputs.get("question", "")
    if asked.signature == "ExtractEntities":
        return {"entities": by_pattern(text)}
    if asked.signature in ("ExtractTriples", "ExtractAllTriples"):
        rows = [{"subject": a, "relation": "is with", "object": b} for a, b in related(text)]
        return {"triples": rows}
    if asked.signature == "SelectFacts":
        return {"keep": list(range(1, KEPT + 1))}
    if asked.signature == "ExtractKeywords":
        return {"high_level": ["is with"], "low_level": by_pattern(text)}
    if asked.signature in ("ExtractGraph", "ExtractKeyedGraph"):
        return graph_of(text)
    return {name: "x" for name in asked.fields}


def graph_of(text: str) -> dict[str, list[dict[str, Any]]]:
    """The names of `text`, described by it, and how they are related."""
    named = [{"name": name, "type": "thing", "description": text} for name in by_pattern(text)]
    joined = [
        {
            "source": a,
            "target": b,
            "description": text,
            "strength": 1,
            "keywords": ["is with"],
        }
        for a, b in related(text)
    ]
    return {"entities": named, "relations": joined}


def parts(world: World) -> Parts:
    """The passages that the system ranks for a question, by their positions in the corpus."""
    questions = questions_of(world)
    kind, knobs = PROGRAMS[world["system"]]
    corpus = Corpus([Passage(str(i), "", text) for i, text in enumerate(texts_of(world))])
    lm = ScriptedLM(script)
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.dict(os.environ, {"RAGBENCH_CACHE": folder}),
        patch.object(base, "make_embedder", lambda spec, api_base="": Words()),
        dspy.context(lm=lm, adapter=make_adapter("json", lm)),
        open_ledger(),
    ):
        program = kind(make_retriever("bm25", corpus), k=DEPTH, **knobs)
        program.prepare()
        ranked = {
            qid: [int(p.pid) for p in program(question=text).passages if p.pid.isdigit()]
            for qid, text in questions.items()
        }
    return {"ranking": lambda qid: ranked[qid][:DEPTH]}
