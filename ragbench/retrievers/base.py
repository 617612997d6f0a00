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

from ragbench.context import current, use
from ragbench.errors import DataError
from ragbench.knobs import Knobs, resolve
from ragbench.passages import Corpus, Passage
from ragbench.registry import Registry
from ragbench.user_code import blamed_on, is_ours

#: Positions with their scores, best first.
Hits = list[tuple[int, float]]


#: Called with the number done and the number in all.
class Progress(Protocol):
    """Takes how many are done, of how many, and what is being made, in words."""

    def __call__(self, done: int, total: int, stage: str = "", /) -> None: ...


def progress_of(stage: str, progress: Progress | None) -> Progress | None:
    """Returns `progress` with the name of the `stage`."""
    if progress is None:
        return None
    return lambda done, total, _="": progress(done, total, stage)


def runs(sizes: Sequence[int], most: int) -> list[list[int]]:
    """Consecutive places whose `sizes` add up to at most `most`, one place at the least."""
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
    """Part of the context of a person's own module: gets each search that it makes by itself.

    `note` is called with the query, k, the passages found and the seconds it took.
    """

    note: Callable[[str, int, Sequence[Passage], float], None] | None


def _noted(search: Callable[..., Any], *, many: bool) -> Callable[..., Any]:
    """Returns `search` of a retriever, noted where somebody listens; k may be given by position."""

    @wraps(search)
    def noted(self: Retriever, query: Any, *place: int, **options: Any) -> Any:
        if place:
            options["k"] = place[0]
        listening = current().get(SearchNotes)
        if listening is None or listening.note is None:
            return search(self, query, **options)
        start = time.perf_counter()
        with use(current().plus(SearchNotes(None))):  # what it asks its parts is no other search
            results = search(self, query, **options)
        queries = query if many else [query]
        rows = results if many else [results]
        seconds = (time.perf_counter() - start) / max(1, len(queries))
        for text, hits in zip(queries, rows, strict=True):
            listening.note(text, options.get("k", len(hits)), hits, seconds)
        return results

    return noted


class Retriever(ABC):
    """Search over one corpus. Thread-safe; never copied (`deepcopy` returns the same object).

    `search` returns at most `k` passages, best first, with their scores: fewer where fewer match
    (but see `Ranking.fills`); ties are in corpus order. A blank query, a `k` under 1 and an
    empty corpus find nothing. The index is made at the first search, or before it by `build`.

    A subclass with an index writes `_make`, and `_save` and `_load` if it `is_stored`; one that
    asks other retrievers puts them into `parts`.
    """

    Settings: ClassVar[type[Knobs]] = Knobs
    name: ClassVar[str] = ""
    #: Whether the index can be saved. Raise the version when the same settings give another index.
    is_stored: ClassVar[bool] = False
    index_version: ClassVar[int] = 1
    #: The retrievers that this one asks.
    parts: tuple[Retriever, ...] = ()
    _lock: Any = threading.RLock()  # one per instance where `__init__` runs
    _ready: bool = False
    _stored: Any = None  # the `Manifest` of a stored index
    #: A folder for work that a build which was stopped need not do again; None where none is kept.
    _unfinished: Path | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in ("search", "search_many"):
            if name in vars(cls):
                setattr(cls, name, _noted(vars(cls)[name], many=name == "search_many"))

    def __init__(self, corpus: Corpus, **settings: Any) -> None:
        self.corpus = corpus
        self.settings: Any = resolve(self.Settings, f"retriever {self.name}", settings)
        self._lock = threading.RLock()

    @abstractmethod
    def search(self, query: str, *, k: int) -> list[Passage]:
        """Returns at most `k` passages for `query`, best first."""

    def search_many(self, queries: Sequence[str], *, k: int) -> list[list[Passage]]:
        """Returns one list per query, in order; equal to calling `search` on each."""
        return [self.search(query, k=k) for query in queries]

    def for_question(self, question: str, qid: str | None = None) -> Retriever:
        """Returns the retriever to use for `question`: itself, but in the distractor setting.

        `qid` is the id of the question; without it that of the context counts.
        """
        return self

    def presented(self, query: str, hits: Sequence[Passage]) -> list[Passage]:
        """What a program shows of `hits`, retrieved for `query` through an index of its own.

        By default all, in their order; a wrapper that changes what is found does the same to them.
        """
        return list(hits)

    def restrict(self, positions: Sequence[int], **options: Any) -> Self:
        """Returns a retriever of this kind and settings over the passages at `positions`, in order.

        Its parts are restricted too. Where the whole corpus's work can be shared (vectors), it is;
        statistics such as inverse document frequencies are those of the small corpus. `other` are
        settings that it has instead of this one's.
        """
        settings = {**self.settings.model_dump(), **options}
        small = type(self)(self.corpus.subset(positions), **settings)
        if self.parts:
            small.parts = tuple(inner.restrict(positions) for inner in self.parts)
        return small

    def index_settings(self) -> dict[str, Any]:
        """Returns the settings that determine the index, without those of search alone."""
        settings: dict[str, Any] = self.settings.model_dump(mode="json")
        return settings

    def build(self, store: Any = None, progress: Progress | None = None) -> Self:
        """Make the index ready: load it from `store`, an `IndexStore`, or make and keep it there.

        A second call does nothing. `progress` is called with the passages done and their number.
        """
        if self._ready:
            return self
        with self._lock:
            if not self._ready:
                for inner in self.parts:
                    inner.build(store, progress)
                with blamed_on(self, f"the index of {self.name or type(self).__name__}"):
                    if store is not None and self.is_stored:
                        self._stored = store.fill(self, progress)
                    else:
                        self._make(progress)
                self._ready = True
        return self

    def prepare_restricted(self, store: Any, progress: Progress | None) -> None:
        """Do at once the work that later `restrict` calls share; by default there is none."""
        for inner in self.parts:
            inner.prepare_restricted(store, progress)

    @property
    def is_whole(self) -> bool:
        """Whether a loaded index may be used as it is, and need not be made again."""
        return True

    def __ragbench_identity__(self) -> dict[str, Any]:
        """Returns what tells it from unmatched, where it is part of what a person hands over.

        Of a class of one's own that is all it holds; an index of ours follows from its settings.
        """
        facts = {
            "settings": self.settings.model_dump(mode="json"),
            "corpus": self.corpus,
            "parts": self.parts,
        }
        if not all(is_ours(kind) for kind in type(self).__mro__ if kind not in (ABC, object)):
            unread = {"_lock", "_ready", "_stored", "_unfinished", "settings"}
            facts |= {name: value for name, value in vars(self).items() if name not in unread}
        return facts

    def card(self) -> dict[str, Any]:
        """Returns the part of a run card on the retriever: its settings and its index."""
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
        """Facts about a built index for its manifest, such as its engine or kind."""
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


class Ranking(Retriever):
    """A retriever that ranks positions of its corpus; a subclass writes `_hits`."""

    #: Whether the passages that do not match come last, so that a search gives `k` if there are
    #: so many: where each question has its own, all are candidates, as for a search by vectors.
    fills: bool = False

    def search(self, query: str, *, k: int) -> list[Passage]:
        return self.search_many([query], k=k)[0]

    def search_many(self, queries: Sequence[str], *, k: int) -> list[list[Passage]]:
        """Returns one list per query, in order; each query is ranked once, all of them together."""
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
        """Returns the other passages, with the score 0; by a hash, for gold often stands first."""
        unmatched = []
        for i, passage in enumerate(self.corpus.passages):
            if i not in matched:
                unmatched.append(passage.scored(0.0))
        return sorted(unmatched, key=lambda passage: hashlib.sha256(passage.pid.encode()).digest())

    @abstractmethod
    def _hits(self, queries: Sequence[str], k: int) -> Sequence[Hits]:
        """Returns the `k` best for each query, which is not blank, ties in corpus order."""


RETRIEVERS: Registry[type[Retriever]] = Registry(
    "retriever",
    package="ragbench.retrievers",
    outside="ragbench.retrievers.external:load_retriever",
    also="ragbench.programs.graph_search",
)


class PerQuestion(Retriever):
    """The distractor setting: each question searches its own few passages.

    `for_question` restricts a retriever of kind `inner` over the whole corpus to the passages that
    the corpus has for it; the last 512 are kept, since a program asks for the same one many times.
    The whole corpus is indexed only where that work is shared.
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
        """Prepare what the questions' indexes share; see `Retriever.prepare_restricted`."""
        self.whole.prepare_restricted(store, progress)
        return self

    def card(self) -> dict[str, Any]:
        return {**self.whole.card(), "setting": "distractor"}

    def __ragbench_identity__(self) -> dict[str, Any]:
        return {"whole": self.whole}

    def for_question(self, question: str, qid: str | None = None) -> Retriever:
        """Returns a retriever over the question's own passages. Raises DataError without any."""
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
            DataError: none is, or it has no passages; outside of one call `for_question` first.
        """
        places = self.corpus.contexts.get(current().qid or "")
        if places is None:
            raise DataError(
                "each question has its own passages here, and none is being answered that has "
                "any; search for_question(question), or take setting='pooled'"
            )
        return self._kept(places).search(query, k=k)
