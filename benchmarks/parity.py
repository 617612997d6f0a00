"""Rankings of graph systems beside those of their authors' code, over the same parts.

    PYTHONHASHSEED=0 python benchmarks/parity.py linear_rag --official CHECKOUT \
        --passages chunks.json --questions questions.json
    PYTHONHASHSEED=0 python benchmarks/parity.py hippo_rag --official CHECKOUT ...

CHECKOUT is one that you made of the authors' repository; nothing is fetched, and nothing of it is
kept here. Both sides get the same embedder (a fixed random vector per word), the same entities
(runs of capitalised words), the same triples (neighbouring entities) and the same filter (the first
three facts). Modules that the checkout imports and that are not installed are replaced by empty
ones, its pipeline of entities and its search of neighbours by the same ones as here.

Prints how many questions have the same first 5 and first 20 passages, and with --show those that
differ.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.abc
import importlib.machinery
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import dspy
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ragbench.ledger import open_ledger
from ragbench.lms.adapters import make_adapter
from ragbench.programs import HippoRAG, LinearRAG
from ragbench.retrievers import Corpus, Passage, make_retriever
from ragbench.retrievers.graph import base as graph, by_pattern, facts
from ragbench.retrievers.graph.linear import holds, in_text, sentences_of
from tests.fakes import Asked, Reply, ScriptedLM
from tests.retrievers.conftest import WordEmbedder

DEPTH = 20
KEPT = 3
Rankings = list[list[int]]


class Words(WordEmbedder):
    """Vectors of the words of a text, whatever stands between them."""

    @staticmethod
    def _vector(text: str) -> np.ndarray:
        return WordEmbedder._vector(re.sub(r"[^\w ]", " ", text) or "none")

    def encode(self, texts: str | Sequence[str], **_: Any) -> np.ndarray:
        """As sentence-transformers."""
        if isinstance(texts, str):
            return self.embed([texts])[0]
        return self.embed(list(texts)) if len(texts) else np.zeros((0, 32), np.float32)

    batch_encode = encode


class _Empty(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds every module that nobody else does, and nothing in it."""

    NAMES = (
        "torch",
        "transformers",
        "boto3",
        "gritlm",
        "cohere",
        "outlines",
        "vllm",
        "sentence_transformers",
    )

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name.partition(".")[0] in self.NAMES:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> Any:
        module = MagicMock(name=spec.name)
        module.__spec__, module.__path__ = spec, []
        return module

    def exec_module(self, module: Any) -> None:
        pass


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
    if asked.signature == "SelectItems":
        return {"keep": list(range(1, KEPT + 1))}
    return {"answer": "x"}


def ours(kind: Any, texts: Sequence[str], questions: Sequence[str], knobs: Any) -> Rankings:
    """Positions of the passages that our program ranks, per question."""
    view = "chunk" if kind is LinearRAG else "paragraph"
    corpus = Corpus([Passage(str(i), "", text) for i, text in enumerate(texts)], view=view)
    program = kind(make_retriever("bm25", corpus), k=DEPTH, **knobs)
    lm = ScriptedLM(script)
    with dspy.context(lm=lm, adapter=make_adapter("json", lm)), open_ledger():
        program.prepare()
        return [[int(p.pid) for p in program(question=text).passages] for text in questions]


# -- theirs


def theirs_linear(checkout: Path, texts: Sequence[str], questions: Sequence[str]) -> Rankings:
    """Positions of the passages that LinearRAG's code ranks."""
    sys.path.insert(0, str(checkout))
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
        entities, held = {}, {}
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


# -- both

SYSTEMS: dict[str, tuple[Any, Any, Any]] = {
    "linear_rag": (LinearRAG, theirs_linear, {"entities": "regex"}),
    "hippo_rag": (HippoRAG, theirs_hippo, {}),
}


def read_texts(path: Path, n: int | None) -> list[str]:
    """The passages in a file of A-RAG's or HippoRAG's layout, numbered, blanks made single."""
    rows = json.loads(path.read_text("utf-8"))
    texts = [row if isinstance(row, str) else f"{row['title']}. {row['text']}" for row in rows]
    plain = (re.sub(r"^\d+:", "", " ".join(text.split())) for text in texts[:n])
    return [f"{i}:{text}" for i, text in enumerate(plain)]


def main() -> None:
    """Run both, and print what agrees."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("system", choices=SYSTEMS)
    parser.add_argument(
        "--official", type=Path, required=True, help="checkout of the authors' code"
    )
    parser.add_argument("--passages", type=Path, required=True)
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--n", type=int, default=200, help="questions")
    parser.add_argument("--corpus", type=int, help="passages at the most")
    parser.add_argument("--show", action="store_true", help="print the questions that differ")
    parser.add_argument(
        "--ascii",
        action="store_true",
        help="hippo_rag: clean phrases as the authors do, ASCII alone",
    )
    given = parser.parse_args()
    kind, theirs, knobs = SYSTEMS[given.system]
    texts = read_texts(given.passages, given.corpus)
    rows = json.loads(given.questions.read_text("utf-8"))
    questions = [row["question"] for row in rows][: given.n]
    graph.make_embedder = lambda spec, api_base="": Words()  # type: ignore[attr-defined]
    if given.ascii:
        facts._NOT_WORD = re.compile("[^a-z0-9 ]")
    sys.meta_path.append(_Empty())
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RAGBENCH_CACHE"] = folder
        mine = ours(kind, texts, questions, knobs)
    other = theirs(given.official, texts, questions)
    for depth in (1, 5, DEPTH):
        same = sum(a[:depth] == b[:depth] for a, b in zip(mine, other, strict=True))
        alike = sum(set(a[:depth]) == set(b[:depth]) for a, b in zip(mine, other, strict=True))
        print(f"first {depth}: same order {same}, same set {alike} of {len(questions)}")
    if given.show:
        for question, a, b in zip(questions, mine, other, strict=True):
            if a[:5] != b[:5]:
                print(f"{question}\n  ours   {a[:5]}\n  theirs {b[:5]}")


if __name__ == "__main__":
    main()
