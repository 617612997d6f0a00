"""Retriever: the contract of all retrievers."""

from __future__ import annotations

import hashlib
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import numpy.typing as npt

from ragbench.context import current, use
from ragbench.errors import DataError
from ragbench.knobs import Knobs, resolve
from ragbench.passages import Corpus, Passage
from ragbench.registry import Registry
from ragbench.user_code import wrap_user_errors

#: Positions with their scores, best first.
Hits = list[tuple[int, float]]
Floats = npt.NDArray[np.float32]
#: Scores of a strip, of which only the highest is read first.
_STRIP = 64


#: Called with the number done and the number in all.
class Progress(Protocol):
    """Progress callback: the number done, the total, and the stage that is running."""

    def __call__(self, done: int, total: int, stage: str = "", /) -> None: ...


def progress_of(stage: str, progress: Progress | None) -> Progress | None:
    """Return `progress` with the stage name `stage`.

    Args:
        stage: Name of the stage.
        progress: Function that receives the progress. None: no progress.
    """
    if progress is None:
        return None
    return lambda done, total, _="": progress(done, total, stage)


def runs(sizes: Sequence[int], most: int) -> list[list[int]]:
    """Group consecutive places so that the sizes of a group sum to at most `most`.

    Args:
        sizes: Size of each place, each >= 0.
        most: Maximum sum of a group. A single larger place is a group.

    Returns:
        The places of each group, in order.
    """
    groups: list[list[int]] = []
    room = 0
    for place, size in enumerate(sizes):
        if not groups or size > room:
            groups.append([])
            room = most
        groups[-1].append(place)
        room -= size
    return groups


@dataclass(frozen=True)
class SearchNotes:
    """Context entry that records each search of a user's module.

    `note` receives the query, k, the passages and the seconds of a search.
    """

    note: Callable[[str, int, Sequence[Passage], float], None] | None


def _noted(search: Callable[..., Any], *, many: bool) -> Callable[..., Any]:
    """Wrap `search` so that a listener records it. `k` may be positional."""

    @wraps(search)
    def noted(self: Retriever, query: Any, *place: int, **options: Any) -> Any:
        if place:
            options["k"] = place[0]
        listening = current().get(SearchNotes)
        if listening is None or listening.note is None:
            return search(self, query, **options)
        start = time.perf_counter()
        with use(current().plus(SearchNotes(None))):  # a search of its parts does not count
            results = search(self, query, **options)
        queries = query if many else [query]
        rows = results if many else [results]
        seconds = (time.perf_counter() - start) / max(1, len(queries))
        for text, hits in zip(queries, rows, strict=True):
            listening.note(text, options.get("k", len(hits)), hits, seconds)
        return results

    return noted


class Retriever(ABC):
    """Search over one corpus. Thread-safe. `deepcopy` returns the same object.

    `search` returns at most `k` passages with their scores, best first. It returns fewer if fewer
    match (but see `Ranking.fills`). Ties are in corpus order. A blank query, `k` < 1 and an empty
    corpus return nothing. The first search builds the index, or `build` does it earlier.

    A subclass with an index implements `_make`, and `_save` and `_load` if it `is_stored`. A
    subclass that queries other retrievers lists them in `parts`.
    """

    Settings: ClassVar[type[Knobs]] = Knobs
    name: ClassVar[str] = ""
    #: True if the index can be saved. Increase the version if equal settings build another index.
    is_stored: ClassVar[bool] = False
    index_version: ClassVar[int] = 1
    #: Retrievers that this one queries.
    parts: tuple[Retriever, ...] = ()
    _lock: Any = threading.RLock()  # one per instance where `__init__` runs
    _ready: bool = False
    _stored: Any = None  # the `Manifest` of a stored index
    #: Folder with the finished work of an interrupted build. None if there is none.
    _unfinished: Path | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in ("search", "search_many"):
            if name in vars(cls):
                setattr(cls, name, _noted(vars(cls)[name], many=name == "search_many"))

    def __init__(self, corpus: Corpus, *, checked: Knobs | None = None, **settings: Any) -> None:
        """Make a retriever over `corpus`.

        Args:
            corpus: The passages.
            checked: All settings, already validated. None: they are in `settings`.
            settings: Settings by name.
        """
        self.corpus = corpus
        self.settings: Any = checked
        if checked is None:
            self.settings = resolve(self.Settings, f"retriever {self.name}", settings)
        self._lock = threading.RLock()

    @abstractmethod
    def search(self, query: str, *, k: int) -> list[Passage]:
        """Search the corpus.

        Args:
            query: Text of the query.
            k: Maximum number of passages.

        Returns:
            At most `k` passages, best first.
        """

    def search_many(self, queries: Sequence[str], *, k: int) -> list[list[Passage]]:
        """Search the corpus for several queries.

        Args:
            queries: Texts of the queries.
            k: Maximum number of passages for each query.

        Returns:
            One list of passages for each query, in order.
        """
        return [self.search(query, k=k) for query in queries]

    def for_question(self, question: str, qid: str | None = None) -> Retriever:
        """Return the retriever for `question`: itself, except in the distractor setting.

        Args:
            question: Text of the question.
            qid: Id of the question. None: the id in the context.
        """
        return self

    def presented(self, query: str, hits: Sequence[Passage]) -> list[Passage]:
        """Return the passages that a program puts into its prompt.

        The default returns all of them, in order. A wrapper that changes results changes these in
        the same way.

        Args:
            query: Text of the query.
            hits: Passages that a program with its own index retrieved.
        """
        return list(hits)

    def restrict(self, positions: Sequence[int]) -> Self:
        """Return a retriever of the same kind and settings over some passages.

        Parts are restricted too. Vectors are shared with the full corpus. Statistics such as
        inverse document frequencies are those of the small corpus.

        Args:
            positions: Positions of the passages in the corpus, in order.
        """
        if type(self).__init__ is Retriever.__init__:
            settings = {"checked": self.settings}
        else:  # It may take its settings by name.
            settings = self.settings.model_dump()
        small = type(self)(self.corpus.subset(positions), **settings)
        if self.parts:
            small.parts = tuple(inner.restrict(positions) for inner in self.parts)
        return small

    def index_settings(self) -> dict[str, Any]:
        """Return the settings that determine the index, without search-only settings."""
        settings: dict[str, Any] = self.settings.model_dump(mode="json")
        return settings

    def build(self, store: Any = None, progress: Progress | None = None) -> Self:
        """Load the index from `store`, or build it and store it there.

        A second call does nothing. Thread-safe.

        Args:
            store: `IndexStore` that holds the index. None: keep the index in memory.
            progress: Function that receives the number of passages done and their total.

        Returns:
            This retriever.
        """
        if self._ready:
            return self
        with self._lock:
            if not self._ready:
                for inner in self.parts:
                    inner.build(store, progress)
                with wrap_user_errors(self, f"the index of {self.name or type(self).__name__}"):
                    if store is not None and self.is_stored:
                        self._stored = store.fill(self, progress)
                    else:
                        self._make(progress)
                self._ready = True
        return self

    def prepare_restricted(self, store: Any, progress: Progress | None) -> None:
        """Do the work that later `restrict` calls share. By default there is none.

        Args:
            store: `IndexStore` that holds indexes, or None.
            progress: Function that receives the progress.
        """
        for inner in self.parts:
            inner.prepare_restricted(store, progress)

    @property
    def is_whole(self) -> bool:
        """True if a loaded index is complete and usable."""
        return True

    def card(self) -> dict[str, Any]:
        """Return the retriever's settings and index facts for the run card."""
        card = {"retriever": self.name, "settings": self.settings.model_dump(mode="json")}
        if (stored := self._stored) is not None:
            size_and_time = {"key": stored.key, "bytes": stored.size, "build_s": stored.build_s}
            card["index"] = {**size_and_time, **stored.facts}
        else:
            card["index"] = self.facts()
        if self.parts:
            card["parts"] = [inner.card() for inner in self.parts]
        return card

    def facts(self) -> dict[str, Any]:
        """Return facts about a built index for its manifest, such as its engine."""
        return {}

    # Not all have an index, nor is each stored.
    def _make(self, progress: Progress | None) -> None:  # noqa: B027
        """Make the index in memory."""

    def _save(self, folder: Path) -> None:  # noqa: B027
        """Write the index into `folder`."""

    def _load(self, folder: Path) -> None:  # noqa: B027
        """Read the index from `folder`. Raises ValueError: it does not fit the corpus."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


def best(scores: Floats, k: int) -> Hits:
    """Return positions and values of the `k` highest scores above 0, best first.

    Args:
        scores: Scores, shape (n,).
        k: Maximum number of positions.
    """
    least = np.finfo(np.float32).tiny
    # A strip is a column, because numpy is ten times as fast along the columns as along the rows.
    width = len(scores) // _STRIP
    end = _STRIP * width
    peaks = scores[:end].reshape(_STRIP, width).max(axis=0)
    if 0 < k < width:  # the k-th best score is at least the peak of the k-th best strip
        least = max(least, np.partition(peaks, width - k)[width - k])
    strips = np.flatnonzero(peaks >= least)
    places = (strips + width * np.arange(_STRIP)[:, None]).ravel()
    places = np.concatenate([places, np.arange(end, len(scores))])
    places = places[scores[places] >= least]
    return ordered(places, scores[places], max(k, 0))


def ordered(positions: Any, scores: Any, k: int) -> Hits:
    """Return the positions with the highest scores, best first, ties by position.

    Args:
        positions: Positions, shape (m,).
        scores: Score of each position, shape (m,).
        k: Maximum number of positions.
    """
    order = np.lexsort((positions, -scores))[:k]
    return list(zip(positions[order].tolist(), scores[order].tolist(), strict=True))


class Ranking(Retriever):
    """A retriever that ranks positions of its corpus. A subclass writes `_hits`."""

    #: True if passages without a match follow the hits, up to `k`. In the distractor setting,
    #: all passages are candidates, as in vector search.
    fills: bool = False

    def search(self, query: str, *, k: int) -> list[Passage]:
        return self.search_many([query], k=k)[0]

    def search_many(self, queries: Sequence[str], *, k: int) -> list[list[Passage]]:
        """Search for each query. Rank each distinct query once, all together."""
        self.build()
        k = min(k, len(self.corpus))
        distinct = list(filter(str.strip, dict.fromkeys(queries)))
        if k < 1 or not distinct:
            return [[] for _ in queries]
        ranked = dict(zip(distinct, self._hits(distinct, k), strict=True))
        passages = self.corpus.passages
        results = []
        for query in queries:
            hits = ranked.get(query, ())
            results_of_query = [passages[i].scored(score) for i, score in hits]
            if self.fills and query in ranked and len(results_of_query) < k:
                missing = k - len(results_of_query)
                results_of_query += self._unmatched({i for i, _ in hits})[:missing]
            results.append(results_of_query)
        return results

    def _unmatched(self, matched: set[int]) -> list[Passage]:
        """Return the other passages with score 0.

        Their order comes from a hash, because gold passages are often first in the corpus.
        """
        unmatched = []
        for i, passage in enumerate(self.corpus.passages):
            if i not in matched:
                unmatched.append(passage.scored(0.0))
        return sorted(unmatched, key=lambda passage: hashlib.sha256(passage.pid.encode()).digest())

    @abstractmethod
    def _hits(self, queries: Sequence[str], k: int) -> Sequence[Hits]:
        """Return the `k` best positions of each non-blank query, ties in corpus order."""


RETRIEVERS: Registry[type[Retriever]] = Registry(
    "retriever",
    package="ragbench.retrievers",
    also="ragbench.programs.graph_search",
)


class PerQuestion(Retriever):
    """Distractor setting: each question searches only its own few passages.

    `for_question` restricts a retriever of kind `inner` to the passages of a question. The last
    512 restricted retrievers stay in memory. The full corpus is indexed only if its work is shared.
    """

    name = "per_question"
    _KEPT = 512

    # Positional, since a retriever may have a setting called `inner`.
    def __init__(self, corpus: Corpus, inner: type[Retriever], /, **settings: Any) -> None:
        self.corpus = corpus
        self.inner = inner
        self.whole = inner(corpus, **settings)
        self.settings = self.whole.settings
        self._kept = lru_cache(self._KEPT)(self._restricted)

    def build(self, store: Any = None, progress: Progress | None = None) -> Self:
        """Prepare the work that the indexes of questions share."""
        self.whole.prepare_restricted(store, progress)
        return self

    def card(self) -> dict[str, Any]:
        return {**self.whole.card(), "setting": "distractor"}

    def for_question(self, question: str, qid: str | None = None) -> Retriever:
        """Return a retriever over the passages of one question.

        Args:
            question: Text of the question.
            qid: Id of the question. None: the id in the context.

        Raises:
            DataError: The question has no passages.
        """
        places = self.corpus.own(question, qid or current().qid)
        if places is None:
            raise DataError(
                f"no passages are filed under the question {question[:80]!r}; "
                "use --setting pooled to search the whole corpus"
            )
        return self._kept(places)

    def _restricted(self, places: tuple[int, ...]) -> Retriever:
        small = self.whole.restrict(places)
        if isinstance(small, Ranking):
            small.fills = True
        return small.build()

    def search(self, query: str, *, k: int) -> list[Passage]:
        """Search the passages of the question that is being answered.

        Raises:
            DataError: none is, or it has no passages. Outside of one call `for_question` first.
        """
        places = self.corpus.contexts.get(current().qid or "")
        if places is None:
            raise DataError(
                "each question has its own passages here, and none is being answered that has "
                "any; search for_question(question), or take setting='pooled'"
            )
        return self._kept(places).search(query, k=k)
