"""The rankings of the authors' code of the graph systems, over the same parts as ours.

Both get the same embedder (a fixed random vector per word), the same names (runs of capitalised
words), the same relations (of neighbouring names) and the same filter (the first three facts). The
checkouts' models, pipelines of names and searches of neighbours give way to these.
"""

import asyncio
import importlib
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import regex

from benchmarks.parities.parts import WordTokens, reachable
from ragbench.retrievers import Passage
from ragbench.retrievers.lm_index import by_pattern, hippo
from ragbench.retrievers.lm_index.linear import holds, in_text, sentences_of
from tests.conformance.parity.ours.a_rag import Words as Vectors
from tests.conformance.parity.ours.graphs import (
    DEPTH,
    KEPT,
    RELATION,
    Rankings,
    described,
    made,
    rank,
    related,
)

SOURCES = {
    "linear_rag": ("https://github.com/DEEP-PolyU/LinearRAG", "src/LinearRAG.py"),
    "hippo_rag": ("https://github.com/OSU-NLP-Group/HippoRAG", "src/hipporag/HippoRAG.py"),
    "light_rag": ("https://github.com/HKUDS/LightRAG", "lightrag/operate.py"),
    "graph_rag": (
        "https://github.com/microsoft/graphrag",
        "packages/graphrag/graphrag/query/structured_search/local_search/mixed_context.py",
    ),
}
_EMPTY: tuple[str, ...] = ("torch", "transformers", "boto3", "gritlm", "cohere", "outlines", "vllm")
_EMPTY += ("sentence_transformers", "graphrag_llm", "graphrag_vectors", "graphrag_storage")
_EMPTY += ("graphrag_cache", "graphrag_chunking", "graphrag_common", "graphrag_input")


class Words(Vectors):
    """The embedder, under the names that the checkouts call it by."""

    def encode(self, texts: str | Sequence[str], **_: Any) -> Any:
        """As sentence-transformers."""
        if isinstance(texts, str):
            return self.embed([texts])[0]
        return self.embed(list(texts)) if len(texts) else np.zeros((0, 32), np.float32)

    batch_encode = encode


def theirs_linear(texts: Sequence[str], questions: Sequence[str]) -> Rankings:
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


def theirs_hippo(texts: Sequence[str], questions: Sequence[str]) -> Rankings:
    """Positions of the passages that HippoRAG 2's code ranks."""
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
        key: misc.TripleRawOutput(
            key, "", [[a, RELATION, b] for a, b in related(row["content"])], {}
        )
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


def theirs_light(texts: Sequence[str], questions: Sequence[str]) -> Rankings:
    """Positions of the passages that LightRAG's code ranks in its mode `hybrid`."""
    light: Any = importlib.import_module("lightrag")
    utils: Any = importlib.import_module("lightrag.utils")
    shared: Any = importlib.import_module("lightrag.kg.shared_storage")
    words = Words()

    async def embed(given: list[str], **_: Any) -> Any:
        # Descriptions are joined by this mark, which is no word.
        return words.encode([text.replace("<SEP>", " ") for text in given])

    async def reply(prompt: str, **_: Any) -> str:
        text = next(text for text in reversed(texts) if text in prompt)
        said = described(text)
        rows = [f"entity<|#|>{name}<|#|>thing<|#|>{said}" for name in by_pattern(text)]
        rows += [f"relation<|#|>{a}<|#|>{b}<|#|>{RELATION}<|#|>{said}" for a, b in related(text)]
        return "\n".join([*rows, "<|COMPLETE|>"])

    async def run(folder: str) -> Rankings:
        system = light.LightRAG(
            working_dir=folder,
            llm_model_func=reply,
            embedding_func=utils.EmbeddingFunc(embedding_dim=32, max_token_size=8192, func=embed),
            tokenizer=utils.Tokenizer("words", WordTokens()),
            entity_extract_max_gleaning=0,
            force_llm_summary_on_merge=10**6,  # else a model rewrites eight descriptions or more
        )
        await system.initialize_storages()
        if hasattr(shared, "initialize_pipeline_status"):
            await shared.initialize_pipeline_status()
        await system.ainsert(list(texts))
        rows = []
        for question in questions:
            wanted = light.QueryParam(
                mode="hybrid",
                hl_keywords=[RELATION],
                ll_keywords=by_pattern(question),
                top_k=40,
                chunk_top_k=DEPTH,
                enable_rerank=False,
            )
            found = await system.aquery_data(question, wanted)
            rows.append([int(c["content"].partition(":")[0]) for c in found["data"]["chunks"]])
        return rows

    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(run(folder))


def theirs_graph(texts: Sequence[str], questions: Sequence[str]) -> Rankings:
    """Positions of the texts that GraphRAG's local search shows, without reports."""
    pandas: Any = importlib.import_module("pandas")
    search, extraction, entity, relationship, unit = (
        importlib.import_module(f"graphrag.{name}")
        for name in (
            "query.structured_search.local_search.mixed_context",
            "index.operations.extract_graph.extract_graph",
            "data_model.entity",
            "data_model.relationship",
            "data_model.text_unit",
        )
    )
    named, joined = [], []
    for i, text in enumerate(texts):
        said = {"description": described(text), "source_id": str(i)}
        names = [{"title": n.upper(), "type": "thing", **said} for n in by_pattern(text)]
        pairs = [
            {"source": a.upper(), "target": b.upper(), "weight": 1.0, **said}
            for a, b in related(text)
        ]
        named.append(pandas.DataFrame(names, columns=["title", "type", *said]))
        joined.append(pandas.DataFrame(pairs, columns=["source", "target", "weight", *said]))
    rows = extraction._merge_entities(named).to_dict("records")
    entities = [
        entity.Entity(
            id=row["title"],
            short_id=str(i),
            title=row["title"],
            type=row["type"],
            description=" ".join(dict.fromkeys(row["description"])),
            text_unit_ids=row["text_unit_ids"],
        )
        for i, row in enumerate(rows)
    ]
    relations = [
        relationship.Relationship(
            id=str(i),
            short_id=str(i),
            source=row["source"],
            target=row["target"],
            weight=row["weight"],
            description=" ".join(dict.fromkeys(row["description"])),
            text_unit_ids=row["text_unit_ids"],
        )
        for i, row in enumerate(extraction._merge_relationships(joined).to_dict("records"))
    ]
    words = Words()
    vectors = words.encode([f"{e.title}: {e.description}" for e in entities])
    store = SimpleNamespace(
        similarity_search_by_text=lambda text, text_embedder, k: [
            SimpleNamespace(document=SimpleNamespace(id=entities[i].id))
            for i in np.argsort(-(vectors @ words.encode(text)), kind="stable")[:k]
        ]
    )
    tokens = SimpleNamespace(encode=str.split, num_tokens=lambda text: len(text.split()))
    context = search.LocalSearchMixedContext(
        entities=entities,
        relationships=relations,
        text_units=[unit.TextUnit(id=str(i), short_id=str(i), text=t) for i, t in enumerate(texts)],
        entity_text_embeddings=store,
        text_embedder=None,
        tokenizer=tokens,
    )
    found = [
        context.build_context(
            text,
            max_context_tokens=12_000,
            text_unit_prop=0.5,
            community_prop=0.15,
            top_k_mapped_entities=DEPTH,
        ).context_records["sources"]
        for text in questions
    ]
    return [[int(number) for number in table["id"]][:DEPTH] for table in found]


THEIRS = {
    "linear_rag": theirs_linear,
    "hippo_rag": theirs_hippo,
    "light_rag": theirs_light,
    "graph_rag": theirs_graph,
}


def parts(checkout: Path, world: Mapping[str, Any]) -> dict[str, Any]:
    """What CHECKOUT ranks for each question of a case's world."""
    texts, questions = made(world)
    _reach(checkout)
    ranked = THEIRS[world["system"]](texts, list(questions.values()))
    found = dict(zip(questions, ranked, strict=True))
    return {"ranking": lambda qid: found[qid]}


def rankings(
    system: str, checkout: Path, texts: Sequence[str], questions: Sequence[str], *, ascii_only: bool
) -> tuple[Rankings, Rankings]:
    """Ours and theirs."""
    texts = [f"{i}:{text}" for i, text in enumerate(texts)]
    if ascii_only:
        hippo._NOT_WORD = regex.compile("[^a-z0-9 ]")
    _reach(checkout)
    mine = rank(system, texts, questions)
    return mine, THEIRS[system](texts, questions)


def _reach(checkout: Path) -> None:
    """Let the checkout be imported, wherever its packages stand in it."""
    reachable(checkout, *_EMPTY)
    sys.path[:0] = [str(checkout / "src"), str(checkout / "packages" / "graphrag")]
