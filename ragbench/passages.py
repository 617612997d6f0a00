"""Define Passage and Corpus.

Data sets create them and retrievers search them; neither imports the other.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from ragbench.text_normalization import fold

View = Literal["paragraph", "chunk"]


@dataclass(frozen=True, slots=True)
class Passage:
    """Unit of retrieval.

    Attributes:
        pid: Id, unique in a corpus.
        title: Title. Blank if the passage has none.
        text: Text. Joins `sentences` by blanks if they are known.
        sentences: Stripped sentences in order. A supporting fact is a `(title, index)` pair.
        score: Score of the search that returned the passage. 0 in a corpus.
        document: File or document that the passage was cut from. Blank if unknown.
    """

    pid: str
    title: str
    text: str
    sentences: tuple[str, ...] = ()
    score: float = 0.0
    document: str = ""

    def __str__(self) -> str:
        if self.title:
            return f"{self.title} | {self.text}"
        return self.text

    @property
    def long_text(self) -> str:
        """The passage as text, by the name that `dspy.Retrieve` reads."""
        return str(self)

    def scored(self, score: float) -> Passage:
        """Return the same passage with `score`; much faster than `dataclasses.replace`."""
        return Passage(self.pid, self.title, self.text, self.sentences, score, self.document)


def digest_line(passage: Passage) -> bytes:
    """Return the contribution of a passage to the digest of its corpus."""
    line = f"{passage.pid}\x1f{passage.title}\x1f{passage.text}\x1e"
    return line.encode("utf-8", "surrogatepass")


class PassageSource(Sequence[Passage]):
    """Passages that are not all in memory, and so know their digest and positions themselves."""

    @property
    @abstractmethod
    def digest(self) -> str:
        """Digest like `Corpus.digest`."""

    @property
    @abstractmethod
    def positions(self) -> Mapping[str, int]:
        """Positions like `Corpus.positions`."""

    @abstractmethod
    def titled(self, title: str) -> Sequence[int]:
        """Return the positions of the passages with this title in whatever case, ascending."""


def passage_of_text(text: str, title: str = "") -> Passage:
    """Create a passage whose id is a hash of its title and text.

    Args:
        text: Text of the passage.
        title: Title of the passage.
    """
    digest = hashlib.sha256(f"{title} | {text}".encode()).hexdigest()[:12]
    return Passage(f"own-{digest}", title, text)


@dataclass(frozen=True, eq=False)
class Corpus(Sequence[Passage]):
    """Passages in a fixed order, with unique pids.

    `view` is "paragraph" (with title and sentence ids) or "chunk" (fixed length). `alignment` maps
    a chunk's pid to its `(title, sentence index)` pairs. `contexts` maps a question id to the
    positions of its own passages (distractor setting); it is empty for a pooled corpus. `askers`
    maps a question text to the ids of its questions; a text that is missing is its own id. `plain`
    restores the original names of an entity-renamed data set, because an embedder knows names: it
    reads the plain text, so results do not depend on the key.
    """

    passages: Sequence[Passage]
    view: View = "paragraph"
    alignment: Mapping[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    contexts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    askers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    plain: Callable[[str], str] | None = None

    def __getitem__(self, index: Any) -> Any:
        return self.passages[index]

    def __len__(self) -> int:
        return len(self.passages)

    def __iter__(self) -> Iterator[Passage]:
        return iter(self.passages)

    @cached_property
    def digest(self) -> str:
        """SHA-256 over pids, titles and texts in order: the identity of the corpus."""
        if isinstance(self.passages, PassageSource):
            return self.passages.digest
        state = hashlib.sha256()
        for passage in self.passages:
            state.update(digest_line(passage))
        return state.hexdigest()

    @cached_property
    def positions(self) -> Mapping[str, int]:
        if isinstance(self.passages, PassageSource):
            return self.passages.positions
        return {passage.pid: i for i, passage in enumerate(self.passages)}

    def titled(self, title: str) -> int | None:
        """Return the position of the first passage with this title, else ignoring case."""
        places = self.all_titled(title)
        for key in (title, fold(title)):
            for place in places:
                if self.passages[place].title == key:
                    return place
        return next(iter(places), None)

    def all_titled(self, title: str) -> Sequence[int]:
        """Return the positions of the passages with this title, ignoring case, ascending."""
        if isinstance(self.passages, PassageSource):
            return self.passages.titled(title)
        return self._titles.get(fold(title), ())

    @cached_property
    def _titles(self) -> Mapping[str, Sequence[int]]:
        positions: dict[str, list[int]] = {}
        for place, passage in enumerate(self.passages):
            positions.setdefault(fold(passage.title), []).append(place)
        return positions

    def own(self, question: str, qid: str | None = None) -> tuple[int, ...] | None:
        """Return the positions of a question's own passages, or None.

        Args:
            question: Text of the question.
            qid: Id, if several questions have this text. Without it, the first one counts.
        """
        qids = self.askers.get(question, (question,))
        if qid is not None and qid in qids:
            return self.contexts.get(qid)
        return self.contexts.get(qids[0])

    def contexts_of(self, question: str) -> list[tuple[int, ...]]:
        """Return the positions of the passages of each question with this text."""
        return [self.contexts[qid] for qid in self.askers.get(question, (question,))]

    def subset(self, positions: Sequence[int]) -> Corpus:
        """Return a corpus of the passages at `positions`, in that order."""
        passages = tuple(self.passages[i] for i in positions)
        return replace(self, passages=passages, contexts={}, askers={})
