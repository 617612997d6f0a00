"""What every retriever stands on: Passage, Corpus and the Retriever contract."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

from ragbench.errors import DataError
from ragbench.knobs import Knobs, resolve
from ragbench.registry import Registry

View = Literal["paragraph", "chunk"]


@dataclass(frozen=True, slots=True)
class Passage:
    """The unit of retrieval. `score` is of the search that returned it; 0 in a corpus.

    `sentences`, where known, are the sentences of `text` in order, stripped; `text` joins them by a
    blank. A supporting fact is a `(title, sentence index)` pair over them.
    """

    pid: str
    title: str
    text: str
    sentences: tuple[str, ...] = ()
    score: float = 0.0

    def __str__(self) -> str:
        return f"{self.title} | {self.text}" if self.title else self.text


@dataclass(frozen=True, eq=False)
class Corpus(Sequence[Passage]):
    """Passages in a fixed order, with unique pids.

    `view` tells whether they are paragraphs (title and sentence ids survive) or fixed-length
    chunks; `alignment` maps a chunk's pid to the `(title, sentence index)` pairs it holds.
    `contexts` maps a question to the positions of its own passages (the distractor setting); empty
    for a pooled corpus.
    """

    passages: Sequence[Passage]
    view: View = "paragraph"
    alignment: Mapping[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    contexts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def __getitem__(self, index: Any) -> Any:
        return self.passages[index]

    def __len__(self) -> int:
        return len(self.passages)

    def __iter__(self) -> Iterator[Passage]:
        return iter(self.passages)

    @cached_property
    def digest(self) -> str:
        """SHA-256 over pids, titles and texts in order: the identity of the corpus."""
        state = hashlib.sha256()
        for passage in self.passages:
            state.update(f"{passage.pid}\x1f{passage.title}\x1f{passage.text}\x1e".encode())
        return state.hexdigest()

    def subset(self, positions: Sequence[int]) -> Corpus:
        """A corpus of the passages at `positions`, in that order."""
        return Corpus(
            tuple(self.passages[i] for i in positions), view=self.view, alignment=self.alignment
        )


class Retriever(ABC):
    """Search over one corpus. Thread-safe; never copied (`deepcopy` returns the same object).

    `search` returns at most `k` passages, best first, with their scores: fewer where fewer match,
    never padded with zero scores; ties stand in corpus order. A blank query finds nothing.
    """

    Settings: ClassVar[type[Knobs]] = Knobs
    name: ClassVar[str] = ""

    def __init__(self, corpus: Corpus, **settings: Any) -> None:
        self.corpus = corpus
        self.settings: Any = resolve(self.Settings, f"retriever {self.name}", settings)

    @abstractmethod
    def search(self, query: str, *, k: int) -> list[Passage]:
        """At most `k` passages for `query`, best first."""

    def search_many(self, queries: Sequence[str], *, k: int) -> list[list[Passage]]:
        """One list per query, in order; equal to calling `search` on each."""
        return [self.search(query, k=k) for query in queries]

    def for_question(self, question: str) -> Retriever:
        """The retriever to use for `question`: itself, but in the distractor setting."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


RETRIEVERS: Registry[type[Retriever]] = Registry("retriever", package="ragbench.retrievers")


class PerQuestion(Retriever):
    """The distractor setting: each question searches its own few passages.

    `for_question` builds a small index of kind `inner` over the passages that the corpus files
    under the question's text; the last 512 are kept, since a program asks for the same one many
    times.
    """

    name = "per_question"

    def __init__(self, corpus: Corpus, *, inner: type[Retriever], **settings: Any) -> None:
        self.corpus, self.inner, self.inner_settings = corpus, inner, settings
        self.settings = resolve(inner.Settings, f"retriever {inner.name}", settings)
        self._built: dict[str, Retriever] = {}

    def for_question(self, question: str) -> Retriever:
        """A retriever over the question's own passages.

        Raises:
            DataError: the corpus has no passages for `question`.
        """
        built = self._built.get(question)
        if built is None:
            if question not in self.corpus.contexts:
                raise DataError(
                    f"no passages are filed under the question {question[:80]!r}; "
                    "use --setting pooled to search the whole corpus"
                )
            small = self.corpus.subset(self.corpus.contexts[question])
            built = self.inner(small, **self.inner_settings)
            while len(self._built) >= 512:
                self._built.pop(next(iter(self._built)), None)
            self._built[question] = built
        return built

    def search(self, query: str, *, k: int) -> list[Passage]:
        """Not defined without a question.

        Raises:
            DataError: always; call `for_question` first.
        """
        raise DataError("a per-question corpus is searched through for_question(question)")
