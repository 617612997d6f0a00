"""LinearRAG and HippoRAG 2: rankings of the authors' code and of ours, over the same parts.

Both get the same embedder (a fixed random vector per word), the same entities (runs of capitalised
words), the same triples (neighbouring entities) and the same filter (the first three facts). The
checkout's pipeline of entities and its search of neighbours give way to the same ones as here.
"""

import importlib
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal
from unittest.mock import MagicMock

import dspy
import numpy as np

from benchmarks.parities.parts import reachable
from ragbench.ledger import open_ledger
from ragbench.lms.adapters import make_adapter
from ragbench.programs import HippoRAG, LinearRAG
from ragbench.retrievers import Corpus, Passage, make_retriever
from ragbench.retrievers.lm_index import base as graph, by_pattern, hippo
from ragbench.retrievers.lm_index.linear import holds, in_text, sentences_of
from tests.conformance.parity.ours.a_rag import Words as Vectors
from tests.fakes import Asked, Reply, ScriptedLM

DEPTH = 20
KEPT = 3
Rankings = list[list[int]]
_EMPTY: tuple[str, ...] = ("torch", "transformers", "boto3", "gritlm", "cohere", "outlines", "vllm")
_EMPTY += ("sentence_transformers",)


class Words(Vectors):
    """The embedder, under the names that the checkouts call it by."""

    def encode(self, texts: str | Sequence[str], **_: Any) -> Any:
        """As sentence-transformers."""
        if isinstance(texts, str):
            return self.embed([texts])[0]
        return self.embed(list(texts)) if len(texts) else np.zeros((0, 32), np.float32)

    batch_encode = encode


def triples_of(text: str) -> list[tuple[str, str, str]]:
    """Neighbouring entities of `text`, each pair once."""
    names = by_pattern(text)
    return [(a, "is with", b) for a, b in pairwise(names)]


# -- ours


def script(asked: Asked) -> Reply:
    """Entities, triples, and a filter that keeps the first three."""
    text = asked.inputs.get("text", "").partition("\n\n")[0]
    if asked.signature == "ExtractEntities":
        return {"entities": by_pattern(text)}
    if asked.signature == "ExtractTriples":
        rows = triples_of(text)
        return {"triples": [{"subject": s, "relation": r, "object": o} for s, r, o in rows]}
    if asked.signature == "SelectFacts":
        return {"keep": list(range(1, KEPT + 1))}
    return {"answer": "x"}


def ours(kind: Any, texts: Sequence[str], questions: Sequence[str], knobs: Any) -> Rankings:
    """Positions of the passages that our program ranks, per question."""
    view: Literal["chunk", "paragraph"] = "chunk" if kind is LinearRAG else "paragraph"
    corpus = Corpus([Passage(str(i), "", text) for i, text in enumerate(texts)], view=view)
    program = kind(make_retriever("bm25", corpus), k=DEPTH, **knobs)
    lm = ScriptedLM(script)
    with dspy.context(lm=lm, adapter=make_adapter("json", lm)), open_ledger():
        program.prepare()
        return [[int(p.pid) for p in program(question=text).passages] for text in questions]


# -- theirs


def theirs_linear(checkout: Path, texts: Sequence[str], questions: Sequence[str]) -> Rankings:
    """Positions of the passages that LinearRAG's code ranks."""
    sys.modules["spacy"] = MagicMock()  # it would look for a real torch
    module: Any = importlib.import_module("src.LinearRAG")
    config: Any = importlib.import_module("src.config")
    module.SpacyNER = lambda _: _Pipeline()
    with tempfile.TemporaryDirectory() as folder:
        settings = config.LinearRAGConfig(
            dataset_name="parity",
            embedding_model=Words(),
            working_dir=folder,
            retrieval_top_k=DEPTH,
        )
        system = module.LinearRAG(settings)
        system.index(list(texts))
        found = system.retrieve([{"question": text, "answer": ""} for text in questions])
    places = {text: i for i, text in enumerate(texts)}
    return [[places[text] for text in one["sorted_passage"]] for one in found]


class _Pipeline:
    """The pattern in the place of the checkout's pipeline of entities."""

    def batch_ner(self, passages: dict[str, str], _: int) -> tuple[Any, Any]:
        entities: dict[str, Any] = {}
        held: dict[str, Any] = {}
        for key, text in passages.items():
            names = list(dict.fromkeys(filter(None, (in_text(n, text) for n in by_pattern(text)))))
            entities[key] = names
            for sentence in sentences_of(Passage("", "", text)):
                if inside := [name for name in names if holds(sentence, name)]:
                    held.setdefault(sentence, [])
                    held[sentence] += [name for name in inside if name not in held[sentence]]
        return entities, held

    def question_ner(self, question: str) -> Iterable[str]:
        return list(dict.fromkeys(name.lower() for name in by_pattern(question)))


def theirs_hippo(checkout: Path, texts: Sequence[str], questions: Sequence[str]) -> Rankings:
    """Positions of the passages that HippoRAG 2's code ranks."""
    sys.path.insert(0, str(checkout / "src"))
    for part in ("embedding_model", "llm", "information_extraction"):  # models, none of them used
        sys.modules[f"hipporag.{part}"] = MagicMock()
    module: Any = importlib.import_module("hipporag.HippoRAG")
    module.retrieve_knn = _nearest
    misc: Any = importlib.import_module("hipporag.utils.misc_utils")
    with tempfile.TemporaryDirectory() as folder:
        config = module.BaseConfig()
        config.save_dir, config.force_index_from_scratch, config.save_openie = folder, True, False
        config.force_openie_from_scratch = True
        system = module.HippoRAG(
            global_config=config,
            extraction_llm=SimpleNamespace(infer=None),
            embedding_model=Words(),
        )
        system.openie = SimpleNamespace(batch_openie=lambda rows: _read(rows, misc))
        system.rerank_filter = lambda question, items, at, len_after_rerank: (
            at[:KEPT], items[:KEPT], {},
        )  # fmt: skip
        system.index(list(texts))
        found = system.retrieve(list(questions), num_to_retrieve=DEPTH)
    places = {text: i for i, text in enumerate(texts)}
    return [[places[text] for text in one.docs] for one in found]


def _read(rows: Any, misc: Any) -> tuple[Any, Any]:
    names = {
        key: misc.NerRawOutput(key, "", by_pattern(row["content"]), {}) for key, row in rows.items()
    }
    triples = {
        key: misc.TripleRawOutput(key, "", [list(t) for t in triples_of(row["content"])], {})
        for key, row in rows.items()
    }
    return names, triples


def _nearest(
    query_ids: Any, key_ids: Any, query_vecs: Any, key_vecs: Any, k: int, **_: Any
) -> dict[Any, Any]:
    queries, keys = np.array(query_vecs), np.array(key_vecs)
    found = {}
    for row, key in enumerate(query_ids):
        scores = keys @ queries[row]
        order = np.argsort(-scores, kind="stable")[:k]
        found[key] = ([key_ids[i] for i in order], scores[order].tolist())
    return found


def rankings(
    system: str, checkout: Path, texts: Sequence[str], questions: Sequence[str], *, ascii_only: bool
) -> tuple[Rankings, Rankings]:
    """Ours and theirs."""
    kind, theirs, knobs = SYSTEMS[system]
    texts = [f"{i}:{text}" for i, text in enumerate(texts)]
    graph.make_embedder = lambda spec, api_base="": Words()  # type: ignore[assignment,attr-defined]
    if ascii_only:
        hippo._NOT_WORD = re.compile("[^a-z0-9 ]")
    reachable(checkout, *_EMPTY)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RAGBENCH_CACHE"] = folder
        mine = ours(kind, texts, questions, knobs)
    return mine, theirs(checkout, texts, questions)


SYSTEMS: dict[str, tuple[Any, Any, Any]] = {
    "linear_rag": (LinearRAG, theirs_linear, {"entities": "regex"}),
    "hippo_rag": (HippoRAG, theirs_hippo, {}),
}
