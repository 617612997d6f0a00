"""Summaries of a corpus by an LM: a tree of them, or one of each stretch.

The tree is RAPTOR's (Sarthi et al. 2024, arXiv:2401.18059). Its leaves are the corpus's passages;
RAPTOR cuts texts into pieces of 100 tokens, so give it a corpus of such chunks for its own setting.
Each layer is grouped into soft clusters and an LM writes one summary per cluster, which are the
nodes of the next layer, until a layer is small.

The gists are the memory of MemoRAG (Qian et al. 2024, arXiv:2409.05591), without the model that is
trained for it: the lite form of its code asks an LM for a gist of every 4,096 tokens.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from ragbench.errors import needs_extra
from ragbench.passages import Passage
from ragbench.retrievers.base import Progress, runs
from ragbench.retrievers.embedders import Vectors
from ragbench.retrievers.lm_index.base import NONE, LMIndex, LMIndexSettings, best_first
from ragbench.retrievers.lm_index.replies import IndexLM, map_concurrently, summarize
from ragbench.signatures import Summarize
from ragbench.text_normalization import estimate_tokens, first_tokens


class TreeSettings(LMIndexSettings):
    """Settings of a summary tree."""

    cluster_tokens: int = Field(3500, ge=50, le=100_000, description="tokens of one cluster")
    summary_words: int = Field(75, ge=5, le=2000, description="words of a summary (100 tokens)")
    max_layers: int = Field(5, ge=0, le=20, description="maximum number of summary layers")
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
    Settings = TreeSettings
    signatures = (Summarize,)
    by_passage = False
    arrays = ("summary_vectors",)
    essential = ("summaries",)
    values = {"summaries": list[Summary]}  # noqa: RUF012

    summaries: Sequence[Summary] = ()
    summary_vectors = NONE

    @cached_property
    def shape(self) -> Shape:
        layers: list[list[int]] = [list(range(len(self.corpus)))]
        for node, summary in enumerate(self.summaries, start=len(self.corpus)):
            if summary.layer == len(layers):
                layers.append([])
            layers[summary.layer].append(node)
        children = [()] * len(self.corpus) + [summary.children for summary in self.summaries]
        return Shape(layers, children)

    def scores(self, query: str) -> Vectors:
        """Return the cosine of `query` with each node, shape `(nodes,)`."""
        matrices = (self.passages, self.summary_vectors)
        return np.concatenate([self.cosines(query, rows) for rows in matrices])

    def layer_of(self, node: int) -> int:
        if node < len(self.corpus):
            return 0
        return self.summaries[node - len(self.corpus)].layer

    def passage(self, node: int, score: float = 0.0) -> Passage:
        """Return a node as a passage. A summary has its own pid and no title.

        Args:
            node: Position of the node: passages first, then summaries.
            score: Score of the passage.
        """
        if node < len(self.corpus):
            return Passage.scored(self.corpus[node], score)
        text = self.summaries[node - len(self.corpus)].text
        return Passage(f"summary-{node}", "", text, score=score)

    def search(self, query: str, *, k: int) -> list[Passage]:
        """Return the `k` nodes nearest to `query`, on any layer."""
        if query.strip():
            scores = self.scores(query)
        else:
            scores = self.passages[:0, 0]
        return [self.passage(i, float(scores[i])) for i in best_first(scores, k)]

    def facts(self) -> dict[str, Any]:
        return {"layers": list(map(len, self.shape.layers)), **super().facts()}

    def _join(self, read: None, lm: IndexLM, progress: Progress | None) -> None:
        words = self.settings.summary_words

        def summary(cluster: Sequence[str]) -> str:
            return summarize(lm, cluster, words, fallback=" ".join(cluster))

        summaries: list[Summary] = []
        texts = list(map(str, self.corpus))
        vectors = [self.passages]
        layer = range(len(texts))
        while len(layer) > self.settings.top_size and len(vectors) <= self.settings.max_layers:
            tokens = [len(texts[node]) // 4 + 1 for node in layer]  # estimated
            clusters = group(vectors[-1], tokens, max_tokens=self.settings.cluster_tokens)
            if len(clusters) >= len(layer):
                break
            texts_by_cluster = []
            for rows in clusters:
                texts_by_cluster.append([texts[layer[row]] for row in rows])
            new = map_concurrently(
                summary, texts_by_cluster, progress, f"summaries of layer {len(vectors)}"
            )
            for text, rows in zip(new, clusters, strict=True):
                summaries.append(Summary(text, tuple(layer[row] for row in rows), len(vectors)))
            vectors.append(self._embedded(new))
            layer = range(len(texts), len(texts) + len(new))
            texts += new
        self.summaries = summaries
        if summaries:
            self.summary_vectors = np.concatenate(vectors[1:])
        self.__dict__.pop("shape", None)


#: Words of a gist, some 512 tokens.
_GIST_WORDS = 380


class GistSettings(LMIndexSettings):
    """Settings of the gists of a corpus."""

    stretch_tokens: int = Field(4096, ge=50, le=100_000, description="tokens of a gist's passages")


class GistIndex(LMIndex):
    """Gists of consecutive passages."""

    name = "gists"
    Settings = GistSettings
    signatures = (Summarize,)
    by_passage = False
    arrays = ("gist_vectors",)
    values = {"gists": list[str]}  # noqa: RUF012
    lengths = {"gists": "gists"}  # noqa: RUF012
    gists: Sequence[str] = ()
    gist_vectors = NONE

    def memory(self, question: str, *, max_tokens: int) -> list[str]:
        """Return the gists in order. If they do not fit, those nearest to `question`.

        Args:
            question: Text of the question.
            max_tokens: Maximum number of tokens, estimated.
        """
        sizes = list(map(estimate_tokens, self.gists))
        rows = list(range(len(self.gists)))
        if sum(sizes) > max_tokens:
            rows = []
            room = max_tokens
            for row in best_first(self.cosines(question, self.gist_vectors), len(self.gists)):
                if sizes[row] <= room:
                    rows.append(row)
                    room -= sizes[row]
            rows.sort()
        return [self.gists[row] for row in rows]

    def _read(self, lm: IndexLM, progress: Progress | None) -> list[str]:
        texts = list(map(str, self.corpus))

        def gist(stretch: Sequence[int]) -> str:
            stretch_texts = [texts[place] for place in stretch]
            words = _GIST_WORDS
            reply = lm.ask(Summarize, texts=stretch_texts, max_words=words)
            written = str(reply.values.get("summary") or "").strip()
            return written or first_tokens(" ".join(stretch_texts), words)

        stretches = runs(list(map(estimate_tokens, texts)), self.settings.stretch_tokens)
        return map_concurrently(gist, stretches, progress, "gists of passages")

    def _join(self, read: list[str], lm: IndexLM, progress: Progress | None) -> None:
        self.gists = read
        self.gist_vectors = self._embedded(read)


#: Dimensions, maximum number of components, and membership threshold of the clustering, as in
#: RAPTOR's code. That code draws its random numbers from another library.
_DIMENSIONS, _COMPONENTS, _MEMBERSHIP, _SEED = 10, 50, 0.1, 224


def group(vectors: Vectors, tokens: Sequence[int], *, max_tokens: int) -> list[list[int]]:
    """Cluster the rows of `vectors`. A row may be in several clusters.

    Args:
        vectors: Rows, shape `(n, d)`.
        tokens: Size of each row's text.
        max_tokens: A larger cluster is divided again, or split in order if the mixture cannot.

    Returns:
        The rows of each cluster, ascending.
    """

    def fitting(rows: list[int]) -> list[list[int]]:
        if len(rows) == 1 or sum(tokens[row] for row in rows) <= max_tokens:
            return [rows]
        divided = _soft(vectors[rows])
        if all(len(places) < len(rows) for places in divided):
            smaller = []
            for places in divided:
                smaller += fitting([rows[i] for i in places])
            return smaller
        in_order = []
        for places in runs([tokens[row] for row in rows], max_tokens):
            in_order.append([rows[i] for i in places])
        return in_order

    clusters: dict[tuple[int, ...], None] = {}
    for members in _soft(vectors):
        for inner in _soft(vectors[members]):
            clusters.update(dict.fromkeys(map(tuple, fitting([members[i] for i in inner]))))
    return list(map(list, clusters))


def _soft(vectors: Vectors) -> list[list[int]]:
    """Cluster all rows by the Gaussian mixture with the lowest information criterion.

    Returns one cluster if there are too few rows to reduce.
    """
    n = len(vectors)
    if n <= _DIMENSIONS + 1:
        return [list(range(n))]
    with needs_extra("a tree of summaries"):
        from sklearn.decomposition import PCA
        from sklearn.mixture import GaussianMixture
        from threadpoolctl import threadpool_limits
    size = min(_DIMENSIONS, n - 2, vectors.shape[1])

    def fit(components: int) -> Any:
        # The covariance is kept away from singular.
        return GaussianMixture(components, random_state=_SEED, reg_covar=1e-6).fit(reduced)

    # Threads gain nothing on matrices this small, and where other work has the cores each waits
    # for the others: 30 ms for a step of some microseconds.
    with threadpool_limits(1), warnings.catch_warnings():
        # With few distinct vectors or no variance, the fit warns but is valid.
        warnings.simplefilter("ignore")
        reduced = PCA(size, random_state=_SEED).fit_transform(vectors.astype(np.float64))
        most = min(_COMPONENTS, len(np.unique(reduced, axis=0)), n - 1)
        fits = list(map(fit, range(1, most + 1)))
        chances = min(fits, key=lambda mixture: mixture.bic(reduced)).predict_proba(reduced)
    belongs = chances > _MEMBERSHIP
    belongs[np.arange(n), chances.argmax(axis=1)] = True
    clusters = [np.flatnonzero(column).tolist() for column in belongs.T]
    return list(filter(None, clusters))


Scores = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Shape:
    """Nodes by layer, leaves first, and the children of each node, empty for a leaf."""

    layers: Sequence[Sequence[int]]
    children: Sequence[Sequence[int]]


def traversal(scores: Scores, shape: Shape, *, k: int) -> list[int]:
    """Return the `k` best nodes of the top layer, then of their children, and so on.

    Args:
        scores: Score of each node.
        shape: Layers and children of the tree.
        k: Maximum number of nodes for each layer.
    """
    nodes = shape.layers[-1]
    path: dict[int, None] = {}
    while nodes:
        chosen = _best(nodes, scores)[:k]
        path.update(dict.fromkeys(chosen))
        nodes = sorted({child for node in chosen for child in shape.children[node]})
    return list(path)


def hiro(
    scores: Scores, shape: Shape, *, selection: float, delta: float, keep_parent: str = "any_fail"
) -> list[int]:
    """Return the nodes down to which similarity to the query increases, most similar first.

    From each node of the top layer above `selection`, descend into the children above it that are
    more than `delta` better than their parent. Keep a node if no child qualifies. With
    `keep_parent="any_fail"`, also keep it if only some do. If no top node is above `selection`,
    start from the best one.

    Args:
        scores: Score of each node.
        shape: Layers and children of the tree.
        selection: Score that a node must exceed.
        delta: Gain over its parent that a child must exceed.
        keep_parent: `any_fail` also keeps a parent if only some children qualify.
    """
    chosen: dict[int, None] = {}
    visited: set[int] = set()

    def visit(node: int) -> None:
        if node in visited:  # a soft cluster gives a node several parents
            return
        visited.add(node)
        children = shape.children[node]
        better = [child for child in children if scores[child] - scores[node] > delta]
        good = [child for child in better if scores[child] > selection]
        if not good or (keep_parent == "any_fail" and len(good) < len(children)):
            chosen[node] = None
        for child in good:
            visit(child)

    start = _best(shape.layers[-1], scores)
    for root in [node for node in start if scores[node] > selection] or start[:1]:
        visit(root)
    return _best(chosen, scores)


def _best(nodes: Iterable[int], scores: Scores) -> list[int]:
    return sorted(nodes, key=lambda node: (-scores[node], node))
