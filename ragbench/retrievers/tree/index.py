"""A tree of summaries over a corpus (RAPTOR: Sarthi et al. 2024, arXiv:2401.18059).

The leaves are the corpus's passages; RAPTOR cuts texts into pieces of 100 tokens, so give it a
corpus of such chunks for its own setting. Each layer is grouped into soft clusters and an LM writes
one summary per cluster, which are the nodes of the next layer, until a layer is small. Making a
tree costs one call per cluster. Those calls belong to the index, not to a question: they are kept
beside the tree, in `calls.jsonl`, and summed up in its facts. Each summary is journaled as it
comes, so that a tree that was interrupted goes on where it stopped. What this process asks for is
filed in the current ledger too, once the tree is made.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from pydantic import Field

from ragbench.knobs import Knobs
from ragbench.ledger import fan_out, file_call, open_ledger
from ragbench.record import Call, parse_call, total
from ragbench.retrievers.base import Corpus, Passage, Progress, Retriever, Store
from ragbench.retrievers.embedders import Embedder, Vectors, make_embedder
from ragbench.retrievers.store import IndexStore, index_key
from ragbench.retrievers.tree.clusters import Clustering, group
from ragbench.retrievers.tree.search import Shape, collapsed
from ragbench.retrievers.tree.summaries import Journal, Written, digest, summarize


class TreeSettings(Knobs):
    """What decides a summary tree."""

    embedder: str = Field("local", description="local, local:NAME, openai/MODEL or st:NAME")
    api_base: str = Field("", description="server of an openai/ embedder, if not OpenAI's")
    lm: str = Field("", description="identity of the LM that writes the summaries")
    dimensions: int = Field(10, ge=1, le=100, description="dimensions clustered in")
    max_components: int = Field(50, ge=1, le=1000, description="clusters tried at the most")
    membership: float = Field(0.1, ge=0, lt=1, description="chance that puts a node in a cluster")
    cluster_tokens: int = Field(3500, ge=50, le=100_000, description="tokens of one cluster")
    summary_words: int = Field(75, ge=5, le=2000, description="words of a summary (100 tokens)")
    max_layers: int = Field(5, ge=0, le=20, description="layers of summaries at the most")
    top_size: int = Field(11, ge=1, le=1000, description="a layer this small is the top")
    seed: int = Field(224, ge=0, description="seeds the clusters")


@dataclass(frozen=True)
class Summary:
    """An inner node: its text, the nodes that it sums up, and its layer, from 1.

    `readable` is False where the LM's reply was not; the text is then its children's, cut short.
    """

    text: str
    children: tuple[int, ...]
    layer: int
    readable: bool = True


class SummaryTree(Retriever):
    """The tree of a corpus and the cosines of its nodes. Nodes 0 to n - 1 are the passages."""

    name = "tree"
    Settings = TreeSettings
    is_stored = True

    def __init__(self, corpus: Corpus, **settings: Any) -> None:
        super().__init__(corpus, **settings)
        self.summaries: list[Summary] = []
        self.calls: list[Call] = []
        self._vectors: Vectors = np.zeros((0, 0), dtype=np.float32)
        self._journal = Journal(None)

    @classmethod
    def of(
        cls,
        corpus: Corpus,
        *,
        store: Store | None = None,
        progress: Progress | None = None,
        **settings: Any,
    ) -> SummaryTree:
        """The tree of `corpus`, the same object for the same texts and settings, built.

        A tree with summaries is kept in `store` (by default the usual one): they were paid for.

        Raises:
            dspy.LMError: a summary could not be had; those before it are journaled.
        """
        made = cls(corpus, **settings)
        key = (corpus.digest, made.settings.model_dump_json())
        with _LOCK:
            tree = _BUILT.setdefault(key, made)
            while len(_BUILT) > _KEPT:
                del _BUILT[next(iter(_BUILT))]
        if store is None and len(corpus) > tree.settings.top_size:
            store = IndexStore()
        return tree.build(store, progress)

    def build(self, store: Store | None = None, progress: Progress | None = None) -> Self:
        """Load the tree, or make it; `progress` counts the summaries of the layer in work."""
        if store is not None and not self._ready:
            self._journal = Journal(store.root / f"{index_key(self)}.summaries.jsonl")
        super().build(store, progress)
        self._journal.drop()
        self._journal = Journal(None)
        return self

    @cached_property
    def embedder(self) -> Embedder:
        """What turns nodes and queries into vectors."""
        return make_embedder(self.settings.embedder, self.settings.api_base)

    @cached_property
    def shape(self) -> Shape:
        """Layers and children."""
        layers: list[list[int]] = [list(range(len(self.corpus)))]
        for node, summary in enumerate(self.summaries, start=len(self.corpus)):
            if summary.layer == len(layers):
                layers.append([])
            layers[summary.layer].append(node)
        children = [()] * len(self.corpus) + [summary.children for summary in self.summaries]
        return Shape(layers, children)

    def scores(self, query: str) -> Vectors:
        """The cosine of `query` with each node, shape `(nodes,)`."""
        self.build()
        if not len(self._vectors):
            return np.zeros(0, dtype=np.float32)
        vector = self.embedder.embed_queries([query])[0]
        scores: Vectors = self._vectors @ vector
        return scores

    def layer_of(self, node: int) -> int:
        """The layer of a node; 0 for a passage."""
        return 0 if node < len(self.corpus) else self.summaries[node - len(self.corpus)].layer

    def node(self, pid: str) -> int:
        """The node that `passage` gave this pid."""
        position = self.corpus.positions.get(pid)
        return int(pid.rpartition("-")[2]) if position is None else position

    def passage(self, node: int, score: float = 0.0) -> Passage:
        """A node as a passage; a summary has a pid of its own and no title."""
        if node < len(self.corpus):
            passage: Passage = self.corpus[node]
            return passage.scored(score)
        summary = self.summaries[node - len(self.corpus)]
        return Passage(f"summary-{node}", "", summary.text, score=score)

    def search(self, query: str, *, k: int) -> list[Passage]:
        """The `k` nodes nearest to `query`, of whatever layer."""
        if not query.strip() or k < 1:
            return []
        scores = self.scores(query)
        return [self.passage(i, float(scores[i])) for i in collapsed(scores, k=k).nodes]

    def index_settings(self) -> dict[str, Any]:
        """All settings; the embedder by its identity."""
        return {**super().index_settings(), "embedder": self.embedder.identity}

    def facts(self) -> dict[str, Any]:
        """Size of the tree and what it cost."""
        spent = total(self.calls)
        return {
            "layers": [len(layer) for layer in self.shape.layers],
            "index_calls": sum(call.kind == "lm" for call in self.calls),
            "index_tokens": spent.tokens,
            "index_usd": spent.cost_usd,
            "index_s": round(spent.latency_s, 3),
            "unreadable_summaries": sum(not summary.readable for summary in self.summaries),
        }

    def _make(self, progress: Progress | None) -> None:
        written = self._journal.read()
        journaled = {id(call) for entry in written.values() for call in entry.calls}
        self.summaries, self.calls = [], []
        texts = [f"{p.title} {p.text}".strip() for p in self.corpus]
        self._vectors = self._embedded(texts)
        layer = range(len(texts))
        number = 0
        while len(layer) > self.settings.top_size and number < self.settings.max_layers:
            sizes = [len(texts[node]) // 4 + 1 for node in layer]  # tokens, estimated
            clusters = group(self._vectors[layer.start :], sizes, self._clustering())
            if len(clusters) >= len(layer):
                break
            number += 1
            children = [tuple(layer[row] for row in rows) for rows in clusters]
            entries = self._summarized(
                [[texts[child] for child in nodes] for nodes in children], written, progress
            )
            self.summaries += [
                Summary(entry.text, nodes, number, entry.readable)
                for entry, nodes in zip(entries, children, strict=True)
            ]
            new = [entry.text for entry in entries]
            self._vectors = np.concatenate([self._vectors, self._embedded(new)])
            layer = range(len(texts), len(texts) + len(new))
            texts += new
        for call in self.calls:
            if id(call) not in journaled:
                file_call(call)
        self.__dict__.pop("shape", None)

    def _clustering(self) -> Clustering:
        settings = self.settings
        return Clustering(
            dimensions=settings.dimensions,
            max_components=settings.max_components,
            membership=settings.membership,
            max_tokens=settings.cluster_tokens,
            seed=settings.seed,
        )

    def _embedded(self, texts: Sequence[str]) -> Vectors:
        with open_ledger() as ledger:
            vectors = self.embedder.embed(texts)
        self.calls += ledger.calls
        return vectors

    def _summarized(
        self, clusters: Sequence[list[str]], written: dict[str, Written], progress: Progress | None
    ) -> list[Written]:
        lock, done = threading.Lock(), 0

        def entry(texts: list[str]) -> Written:
            nonlocal done
            key = digest(texts, self.settings.summary_words)
            made = written.get(key) or summarize(texts, self.settings.summary_words)
            with lock:
                if key not in written:
                    self._journal.write(key, made)
                    written[key] = made
                done += 1
                if progress:
                    progress(done, len(clusters))
            return made

        entries = fan_out(entry, clusters)
        self.calls += [call for one in entries for call in one.calls]
        return entries

    def _save(self, folder: Path) -> None:
        _write_lines(folder / "summaries.jsonl", [asdict(summary) for summary in self.summaries])
        _write_lines(folder / "calls.jsonl", [asdict(call) for call in self.calls])
        np.save(folder / "vectors.npy", self._vectors)

    def _load(self, folder: Path) -> None:
        self.summaries = [
            Summary(**{**row, "children": tuple(row["children"])})
            for row in _read_lines(folder / "summaries.jsonl")
        ]
        self.calls = [parse_call(row) for row in _read_lines(folder / "calls.jsonl")]
        self._vectors = np.load(folder / "vectors.npy", mmap_mode="r")
        self.__dict__.pop("shape", None)

    def _check(self) -> None:
        nodes = len(self.corpus) + len(self.summaries)
        children = [child for summary in self.summaries for child in summary.children]
        if len(self._vectors) != nodes or not all(0 <= child < nodes for child in children):
            raise ValueError(f"the tree does not fit its corpus of {len(self.corpus)} passages")


def _write_lines(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


_LOCK = threading.Lock()
_BUILT: dict[tuple[str, str], SummaryTree] = {}
_KEPT = 512
