"""The rankings of the graph systems over a fictional world, whose parts are read by a pattern.

Names are runs of capitalised words; neighbouring names of a passage are related. The first facts
are kept, keywords of a question are its names, and vectors are sums of fixed ones of the words.
"""

import os
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal
from unittest.mock import patch

import dspy

from ragbench.data import DataSettings, load_dataset
from ragbench.ledger import open_ledger
from ragbench.lms.adapters import make_adapter
from ragbench.programs import PROGRAMS
from ragbench.retrievers import Corpus, Passage, make_retriever
from ragbench.retrievers.lm_index import base, by_pattern
from tests.conformance.parity.ours import Parts, World
from tests.conformance.parity.ours.a_rag import Words
from tests.fakes import Asked, Reply, ScriptedLM

#: Passages of a ranking, and facts that the filter keeps.
DEPTH, KEPT = 20, 3
RELATION = "is with"
Rankings = list[list[int]]


def parts(world: World) -> Parts:
    """The passages that the system ranks for a question, by their positions in the corpus."""
    texts, questions = made(world)
    ranked = rank(world["system"], texts, list(questions.values()))
    return {"ranking": dict(zip(questions, ranked, strict=True)).__getitem__}


def made(world: World) -> tuple[list[str], dict[str, str]]:
    """The passages of the world of that seed and size, and its first questions by id.

    A passage stands after its number, as LinearRAG's do.
    """
    spec = DataSettings(setting="pooled", size=world["passages"], split_seed=world["seed"])
    data = load_dataset(spec)
    chosen = data.select("all", world["questions"])
    texts = [f"{i}:{passage}" for i, passage in enumerate(data.corpus)]
    return texts, {example.qid: example.question for example in chosen}


def rank(system: str, texts: Sequence[str], questions: Sequence[str]) -> Rankings:
    """Positions of the passages that our program ranks, per question."""
    view: Literal["chunk", "paragraph"] = "chunk" if system == "linear_rag" else "paragraph"
    corpus = Corpus([Passage(str(i), "", text) for i, text in enumerate(texts)], view=view)
    knobs: Any = {"entities": "regex"} if system == "linear_rag" else {}
    lm = ScriptedLM(_script)
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.dict(os.environ, {"RAGBENCH_CACHE": folder}),
        patch.object(base, "make_embedder", lambda spec, api_base="": Words()),
        dspy.context(lm=lm, adapter=make_adapter("json", lm)),
        open_ledger(),
    ):
        program = PROGRAMS.get(system)(make_retriever("bm25", corpus), k=DEPTH, **knobs)
        program.prepare()
        found = [program(question=text).passages for text in questions]
    return [[int(p.pid) for p in one if p.pid.isdigit()][:DEPTH] for one in found]


def related(text: str) -> list[tuple[str, str]]:
    """Neighbouring names of `text`."""
    return list(pairwise(by_pattern(text)))


def described(text: str) -> str:
    """What is said of the names of `text` and of their relations."""
    return "named in " + text.partition(" | ")[0].partition(":")[2]


def _script(asked: Asked) -> Reply:
    """What is read off a passage or a question, in the place of an LM."""
    text = (asked.inputs.get("text") or asked.inputs.get("question", "")).partition("\n\n")[0]
    if asked.signature == "ExtractEntities":
        return {"entities": by_pattern(text)}
    if asked.signature in ("ExtractTriples", "ExtractAllTriples"):
        rows = [{"subject": a, "relation": RELATION, "object": b} for a, b in related(text)]
        return {"triples": rows}
    if asked.signature == "SelectFacts":
        return {"keep": list(range(1, KEPT + 1))}
    if asked.signature == "ExtractKeywords":
        return {"high_level": [RELATION], "low_level": by_pattern(text)}
    if asked.signature in ("ExtractGraph", "ExtractKeyedGraph"):
        said = {"description": described(text)}
        linked = {**said, "strength": 1, "keywords": [RELATION]}
        return {
            "entities": [{"name": name, "type": "thing", **said} for name in by_pattern(text)],
            "relations": [{"source": a, "target": b, **linked} for a, b in related(text)],
        }
    return {name: "x" for name in asked.fields}
