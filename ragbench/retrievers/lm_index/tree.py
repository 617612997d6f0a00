"""A tree of summaries over a corpus (RAPTOR: Sarthi et al. 2024, arXiv:2401.18059).

The leaves are the corpus's passages; RAPTOR cuts texts into pieces of 100 tokens, so give it a
corpus of such chunks for its own setting. Each layer is grouped into soft clusters and an LM writes
one summary per cluster, which are the nodes of the next layer, until a layer is small.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from ragbench.knobs import Knobs
from ragbench.retrievers.base import Corpus, Passage, Progress
from ragbench.retrievers.embedders import Vectors
from ragbench.retrievers.lm_index.base import LMIndex, LMIndexSettings
from ragbench.retrievers.lm_index.clusters import group
from ragbench.retrievers.lm_index.replies import IndexLM, at_once
from ragbench.retrievers.lm_index.tree_search import Shape, collapsed
from ragbench.signatures import Summarize


class TreeSettings(LMIndexSettings):
    """What decides a summary tree."""

    cluster_tokens: int = Field(3500, ge=50, le=100_000, description="tokens of one cluster")
    summary_words: int = Field(75, ge=5, le=2000, description="words of a summary (100 tokens)")
    max_layers: int = Field(5, ge=0, le=20, description="layers of summaries at the most")
    top_size: int = Field(11, ge=1, le=1000, description="a layer this small is the top")


@dataclass(frozen=True)
class Summary:
    """An inner node: its text, the nodes that it sums up, and its layer, from 1."""

    text: str
    children: tuple[int, ...]
    layer: int


class SummaryTree(LMIndex):
    """The tree of a corpus and the cosines of its nodes. Nodes 0 to n - 1 are the passages."""

    name = "tree"
    Settings: ClassVar[type[Knobs]] = TreeSettings
    signatures = (Summarize,)
    by_passage = False
    by_vectors = True
    arrays = ("summary_vectors",)
    values: ClassVar[Mapping[str, Any]] = {"summaries": list[Summary]}

    def __init__(self, corpus: Corpus, *, lm: str = "", **settings: Any) -> None:
        super().__init__(corpus, lm=lm, **settings)
        self.summaries: list[Summary] = []
        self.summary_vectors: Vectors = np.zeros((0, 1), dtype=np.float32)

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
        return np.concatenate([self.dense_scores(query), self.cosines(query, self.summary_vectors)])

    def layer_of(self, node: int) -> int:
        """The layer of a node; 0 for a passage."""
        return 0 if node < len(self.corpus) else self.summaries[node - len(self.corpus)].layer

    def passage(self, node: int, score: float = 0.0) -> Passage:
        """A node as a passage; a summary has a pid of its own and no title."""
        if node < len(self.corpus):
            passage: Passage = self.corpus[node]
            return passage.scored(score)
        text = self.summaries[node - len(self.corpus)].text
        return Passage(f"summary-{node}", "", text, score=score)

    def search(self, query: str, *, k: int) -> list[Passage]:
        """The `k` nodes nearest to `query`, of whatever layer."""
        scores = self.scores(query) if query.strip() else self.passages[:0, 0]
        return [self.passage(i, float(scores[i])) for i in collapsed(scores, k=k).nodes]

    def facts(self) -> dict[str, Any]:
        """Size of the tree and what it cost."""
        return {"layers": [len(layer) for layer in self.shape.layers], **super().facts()}

    def _join(self, read: None, lm: IndexLM, progress: Progress | None) -> None:
        words = self.settings.summary_words

        def summary(cluster: Sequence[str]) -> str:
            reply = lm.ask(Summarize, texts=list(cluster), max_words=words)
            said = " ".join(str(reply.values.get("summary") or "").split())
            return said or " ".join(" ".join(cluster).split()[:words])

        self.summaries = []
        texts, vectors = [str(passage) for passage in self.corpus], [self.passages]
        layer = range(len(texts))
        while len(layer) > self.settings.top_size and len(vectors) <= self.settings.max_layers:
            sizes = [len(texts[node]) // 4 + 1 for node in layer]  # tokens, estimated
            clusters = group(vectors[-1], sizes, max_tokens=self.settings.cluster_tokens)
            if len(clusters) >= len(layer):
                break
            children = [tuple(layer[row] for row in rows) for rows in clusters]
            shown = [[texts[child] for child in nodes] for nodes in children]
            new = at_once(summary, shown, progress, f"summaries of layer {len(vectors)}")
            self.summaries += [
                Summary(text, nodes, len(vectors))
                for text, nodes in zip(new, children, strict=True)
            ]
            vectors.append(self._embedded(new))
            layer = range(len(texts), len(texts) + len(new))
            texts += new
        if self.summaries:
            self.summary_vectors = np.concatenate(vectors[1:])
        self.__dict__.pop("shape", None)

    def _check(self) -> None:
        super()._check()
        nodes = len(self.corpus) + len(self.summaries)
        children = [child for summary in self.summaries for child in summary.children]
        whole = len(self.summary_vectors) == len(self.summaries)
        if not whole or not all(0 <= child < nodes for child in children):
            raise ValueError(f"the tree does not fit its corpus of {len(self.corpus)} passages")
