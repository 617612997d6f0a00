"""Define the indexes that an LM builds: one per corpus and settings, cached replies, cost."""

import json
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import dspy
import numpy as np
import numpy.typing as npt
from pydantic import Field, TypeAdapter
from pydantic_core import to_jsonable_python

from ragbench.errors import needs_extra
from ragbench.knobs import Knobs
from ragbench.ledger import file_call, open_ledger
from ragbench.passages import Corpus, Passage
from ragbench.record import LM_KINDS, Call, total
from ragbench.retrievers.base import Progress, Retriever, progress_of
from ragbench.retrievers.embedders import Embedder, Vectors, make_embedder
from ragbench.retrievers.lm_index.replies import LOSSES, IndexLM
from ragbench.retrievers.store import IndexStore, opened
from ragbench.sqlite_cache import CachedRows

#: Passages from which an index is stored. A smaller one is made of kept replies sooner.
STORED_FROM = 100
#: The vectors of an index before it is made.
NONE: Vectors = np.zeros((0, 1), dtype=np.float32)


class LMIndexSettings(Knobs):
    """Settings of an index that an LM builds. Also parameters of its program."""

    embedder: str = Field("local", description="local, local:NAME, fastembed/NAME or openai/MODEL")
    embedder_base: str = Field("", description="server of an openai/ embedder, if not OpenAI's")


class LMIndex(Retriever):
    """Vectors of the passages of a corpus, and the structures that a subclass builds with an LM.

    A subclass lists its signatures. It implements `_read`, which asks the LM about the passages,
    and `_join`, which builds the rest. It names the stored attributes: `arrays` as memory-mapped
    files, `values` with their types as JSON. `lm` is the identity of the LM.
    """

    name = "vectors"
    Settings: ClassVar[type[Knobs]] = LMIndexSettings
    is_stored = True
    index_version = 2
    signatures: ClassVar[tuple[type[dspy.Signature], ...]] = ()
    #: True if `_read` asks about single passages, so many indexes can be read in one batch.
    by_passage: ClassVar[bool] = True
    arrays: ClassVar[tuple[str, ...]] = ()
    values: ClassVar[Mapping[str, Any]] = {}
    #: If all of these attributes are empty, only the vectors rank passages.
    essential: ClassVar[tuple[str, ...]] = ()
    #: Facts that are the lengths of attributes, by name.
    lengths: ClassVar[Mapping[str, str]] = {}

    def __init__(self, corpus: Corpus, *, lm: str = "", **settings: Any) -> None:
        super().__init__(corpus, **settings)
        self.lm = lm
        self.calls: list[Call] = []
        self.counts: dict[str, int] = {}
        self.passages = NONE

    @classmethod
    def asked(cls, settings: Any) -> tuple[type[dspy.Signature], ...]:
        """Return the signatures that an index of `settings` sends to the LM."""
        return cls.signatures

    @classmethod
    def of(
        cls, corpus: Corpus, *, lm: str = "", progress: Progress | None = None, **settings: Any
    ) -> Self:
        """Return the built index of `corpus`, the same object for the same texts and settings.

        An index of 100 passages or more is stored.

        Args:
            corpus: Passages of the index.
            lm: Spec of the LM, part of the key of the index. The current LM answers.
            progress: Function that receives the progress.
            **settings: Settings of the index.
        """
        unbuilt = cls(corpus, lm=lm, **settings)
        key = cls.name, lm, corpus.digest, unbuilt.settings.model_dump_json()
        index: Self = opened(key, lambda: unbuilt)
        return index.build(IndexStore() if len(corpus) >= STORED_FROM else None, progress)

    @classmethod
    def read_ahead(cls, corpus: Corpus, progress: Progress | None = None, **settings: Any) -> None:
        """Ask the LM everything that indexes of parts of `corpus` will ask about single passages.

        Args:
            corpus: Passages.
            progress: Function that receives the progress.
            **settings: Settings of the index.
        """
        if cls.by_passage:
            index = cls(corpus, **settings)
            lm = index.checked_lm()
            index.embedder.embed(list(map(passage_text, corpus[:1])))
            index._read(lm, progress)

    def checked_lm(self) -> IndexLM:
        """Return the current LM with the cached replies of the default store."""
        check = getattr(dspy.settings.lm, "check", None)
        if self.asked(self.settings) and check is not None:
            check()
        return IndexLM(open_replies())

    @cached_property
    def embedder(self) -> Embedder:
        return make_embedder(self.settings.embedder, self.settings.embedder_base)

    def index_settings(self) -> dict[str, Any]:
        return {**super().index_settings(), "embedder": self.embedder.identity, "lm": self.lm}

    @property
    def is_whole(self) -> bool:
        """True if no reply was lost. The next build requests lost replies again."""
        return not any(map(self.counts.get, LOSSES))

    @property
    def is_bare(self) -> bool:
        """True if the passages gave no summary, edge or community, so only vectors rank."""
        return any(len(getattr(self, name)) == 0 for name in self.essential)

    def facts(self) -> dict[str, Any]:
        """Return sizes, uncached cost and events of the build."""
        paid = []
        for call in self.calls:
            if call.kind in LM_KINDS or call.cost_usd != 0:
                paid.append(call)
        spent = total(paid)  # tokens of a free embedder do not count
        return {
            **{fact: len(getattr(self, name)) for fact, name in self.lengths.items()},
            "index_calls": spent.calls,
            "index_tokens": spent.all_tokens,
            "index_usd": spent.cost_usd,
            "index_s": round(total(self.calls).latency_s, 3),
            **self.counts,
        }

    def cosines(self, query: str, vectors: Vectors) -> Vectors:
        """Return the cosine of a query with each vector, shape (n,).

        Args:
            query: Text of the query.
            vectors: Normalized vectors, shape (n, d).
        """
        if not len(vectors):
            return np.zeros(0, dtype=np.float32)
        scores: Vectors = vectors @ self.embedder.embed([query])[0]
        return scores

    def search(self, query: str, *, k: int) -> list[Passage]:
        """Return the `k` passages nearest to `query` by their vectors."""
        self.build()
        if query.strip():
            return self.hits(self.cosines(query, self.passages), k)
        return []

    def hits(self, scores: npt.NDArray[np.floating], k: int) -> list[Passage]:
        """Return the `k` passages with the highest scores, best first.

        Args:
            scores: Score of each passage, shape (n,).
            k: Maximum number of passages.
        """
        rows = best_first(scores, k)
        return [self.corpus[row].scored(float(scores[row])) for row in rows]

    def _read(self, lm: IndexLM, progress: Progress | None) -> Any:
        """Extract information from the passages with the LM."""

    def _join(self, read: Any, lm: IndexLM, progress: Progress | None) -> None:
        """Build the index from the extracted information."""

    def make_with(self, lm: IndexLM, progress: Progress | None = None) -> None:
        """Build the index with the replies of `lm`, and record the calls and counts.

        Args:
            lm: LM of the index.
            progress: Function that receives the progress.
        """
        self.calls = []
        # Embed first, so that a failing embedder stops the build before any LM cost.
        self.passages = self._embedded(list(map(passage_text, self.corpus)), progress)
        read = self._read(lm, progress)
        self._join(read, lm, progress)
        if self.asked(self.settings):
            self.counts |= lm.counts
        self.calls = [*lm.calls, *self.calls]

    def _make(self, progress: Progress | None) -> None:
        self.make_with(self.checked_lm(), progress)

    def _embedded(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:
        if not texts:
            return NONE
        progress = progress_of(f"{self.name} index: vectors", progress)
        with open_ledger() as ledger:
            vectors = self.embedder.embed(texts, progress)
        self.calls += ledger.calls
        for call in ledger.calls:
            file_call(call)
        return vectors

    @property
    def _files(self) -> Mapping[str, Mapping[str, Any]]:
        """Files of stored values, with the names and types in each file."""
        values = {"counts": dict[str, int], **self.values}
        return {"values.json": values, "calls.json": {"calls": list[Call]}}

    def _save(self, folder: Path) -> None:
        for name in ("passages", *self.arrays):
            np.save(folder / f"{name}.npy", getattr(self, name))
        for file, kinds in self._files.items():
            fields = {n: to_jsonable_python(getattr(self, n)) for n in kinds}
            (folder / file).write_text(json.dumps(fields), encoding="utf-8")

    def _load(self, folder: Path) -> None:
        for name in ("passages", *self.arrays):
            setattr(self, name, np.load(folder / f"{name}.npy", mmap_mode="r"))
        for file, kinds in self._files.items():
            stored = json.loads((folder / file).read_text("utf-8"))
            for name, kind in kinds.items():
                setattr(self, name, TypeAdapter(kind).validate_python(stored[name]))


def passage_text(passage: Passage) -> str:
    """Return the text of a passage that is embedded and searched: title and text."""
    return f"{passage.title} {passage.text}".strip()


def open_replies() -> CachedRows:
    """Open the stored replies."""
    return _opened(IndexStore().root / "replies.sqlite")


_opened = cache(CachedRows)


Floats = npt.NDArray[np.float64]


class WalkIndex(LMIndex):
    """An index with a graph. Its nodes are those of `node_attribute`, then the passages."""

    #: Attribute with the meaning of the first nodes.
    node_attribute: ClassVar[str]
    #: Pairs of nodes and their weights. Weights of repeated pairs are added.
    edges, weights = np.zeros((0, 2), dtype=np.int32), np.zeros(0, dtype=np.float32)
    _graph: Any = None

    def walked(self, starts: Mapping[int, float], passages: Floats, *, damping: float) -> Floats:
        """Return the share of each passage in walks, shape `(n,)`, by personalized PageRank.

        Args:
            starts: Weight of each start node.
            passages: Weight of each passage as a start, shape `(n,)`. Negative weights count as 0.
            damping: Chance to continue a walk, in (0, 1).

        Returns:
            Shares. All are 0 if no weight is positive.
        """
        n_starts = len(getattr(self, self.node_attribute))
        reset = np.concatenate([np.zeros(n_starts), passages])
        for node, weight in starts.items():
            reset[node] = weight
        reset = np.maximum(np.nan_to_num(reset), 0)
        if not reset.sum() > 0:
            return np.zeros(len(self.corpus))
        with self._lock:
            self._graph = self._graph or self._made_graph(len(reset))
        shares = self._graph.personalized_pagerank(
            damping=damping, directed=False, weights="weight", reset=reset, implementation="prpack"
        )
        return np.asarray(shares, dtype=np.float64)[n_starts:]

    def _made_graph(self, n: int) -> Any:
        with needs_extra("a walk on a graph"):
            import igraph
        graph = igraph.Graph(n=n, edges=np.asarray(self.edges), directed=False)
        graph.es["weight"] = np.asarray(self.weights, dtype=np.float64).tolist()
        return graph


def best_first(scores: npt.NDArray[np.floating], k: int) -> list[int]:
    """Return the positions of the `k` highest scores, best first, ties by position.

    Args:
        scores: Scores, shape (n,).
        k: Maximum number of positions.
    """
    order: list[int] = np.argsort(-np.asarray(scores), kind="stable")[: max(k, 0)].tolist()
    return order
