"""What indexes made by an LM share: one per corpus and settings, kept replies, their cost."""

from __future__ import annotations

import json
import threading
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import dspy
import numpy as np
import numpy.typing as npt
from pydantic import Field

from ragbench.knobs import Knobs
from ragbench.ledger import file_call, open_ledger
from ragbench.logs import fields, get
from ragbench.record import Call, parse_call, total
from ragbench.retrievers.base import Corpus, Passage, Progress, Retriever
from ragbench.retrievers.embedders import Embedder, Vectors, make_embedder
from ragbench.retrievers.graph.replies import IndexLM, ReplyCache
from ragbench.retrievers.graph.walks import best_first
from ragbench.retrievers.store import IndexStore
from ragbench.tokens import estimate_tokens

#: Passages; a smaller index is made of kept replies sooner than it is looked up.
_STORED_FROM = 100
#: Indexes held in memory, as many as a distractor setting holds retrievers.
_KEPT = 512
_REPLIES = "replies.sqlite"

_log = get(__name__)


class LMIndexSettings(Knobs):
    """What decides an index that an LM helps to make."""

    embedder: str = Field("local", description="local, local:NAME, openai/MODEL or st:NAME")
    api_base: str = Field("", description="server of an openai/ embedder, if not OpenAI's")
    lm: str = Field("", description="identity of the LM that makes the index")


def names_of(listed: str) -> list[str]:
    """The names in a list with commas, without blanks around them."""
    return [name for part in listed.split(",") if (name := part.strip())]


@dataclass(frozen=True)
class Ahead:
    """Calls still to be made, tokens of their prompts, and calls whose replies are kept."""

    calls: int
    tokens: int
    kept: int


class LMIndex(Retriever):
    """An index of `corpus` for whose making an LM is asked, or may be.

    A subclass writes `_read`, which asks the LM, and `_join`, which makes the rest of what was
    read; it lists the arrays and the JSON values that it keeps in `arrays` and `values`.
    """

    Settings: ClassVar[type[Knobs]] = LMIndexSettings
    is_stored = True
    #: Calls that are only known once the passages were read, in words.
    more: ClassVar[str] = ""
    #: Attributes kept as memory-mapped arrays, and as JSON.
    arrays: ClassVar[tuple[str, ...]] = ()
    values: ClassVar[tuple[str, ...]] = ()

    def __init__(self, corpus: Corpus, **settings: Any) -> None:
        super().__init__(corpus, **settings)
        self.calls: list[Call] = []
        self.counts: dict[str, int] = {}
        self.passages: Vectors = np.zeros((0, 0), dtype=np.float32)
        self._embedding: list[Call] = []

    @classmethod
    def of(cls, corpus: Corpus, *, progress: Progress | None = None, **settings: Any) -> Self:
        """The index of `corpus`, the same object for the same texts and settings, built.

        One of 100 passages or more is kept in the usual store.

        Raises:
            dspy.LMError: a reply could not be had; those before it are kept.
        """
        made = cls(corpus, **settings)
        with _LOCK:
            index = _BUILT.setdefault(made._identity, made)
            while len(_BUILT) > _KEPT:
                del _BUILT[next(iter(_BUILT))]
        index.build(IndexStore() if len(corpus) >= _STORED_FROM else None, progress)
        assert isinstance(index, cls)
        return index

    @classmethod
    def read_ahead(cls, corpus: Corpus, progress: Progress | None = None, **settings: Any) -> None:
        """Ask the LM all that indexes of parts of `corpus` will ask about single passages."""
        index = cls(corpus, **settings)
        index._read(index.maker(), progress)

    def ahead(self) -> Ahead:
        """The calls that reading the passages would make to the current LM now."""
        lm = self.maker()
        calls = kept = tokens = 0
        for signature, inputs in self._asks():
            if lm.knows(signature, **inputs):
                kept += 1
            else:
                calls += 1
                tokens += prompt_tokens(signature, inputs)
        return Ahead(calls, tokens, kept)

    @cached_property
    def embedder(self) -> Embedder:
        """What turns texts and queries into vectors."""
        return make_embedder(self.settings.embedder, self.settings.api_base)

    def maker(self) -> IndexLM:
        """The current LM, with the replies kept in the usual store."""
        path = IndexStore().root / _REPLIES
        with _LOCK:
            if path not in _CACHES:
                _CACHES[path] = ReplyCache(path)
        return IndexLM(_CACHES[path])

    def index_settings(self) -> dict[str, Any]:
        """All settings; the embedder by its identity."""
        return {**super().index_settings(), "embedder": self.embedder.identity}

    def facts(self) -> dict[str, Any]:
        """What the index took, as if nothing had been kept, and events of its making."""
        spent = total(self.calls)
        return {
            "index_calls": spent.calls,
            "index_tokens": spent.tokens,
            "index_usd": spent.cost_usd,
            "index_s": round(spent.latency_s, 3),
            **self.counts,
        }

    def dense_scores(self, query: str) -> Vectors:
        """The cosine of `query` with each passage, shape `(n,)`."""
        self.build()
        if not len(self.corpus):
            return np.zeros(0, dtype=np.float32)
        scores: Vectors = self.passages @ self.embedder.embed_queries([query])[0]
        return scores

    def search(self, query: str, *, k: int) -> list[Passage]:
        """The `k` passages nearest to `query` by their vectors alone."""
        return self.hits(self.dense_scores(query), k) if query.strip() else []

    def hits(self, scores: npt.NDArray[np.floating], k: int) -> list[Passage]:
        """The `k` passages of the highest scores, shape `(n,)`, best first."""
        rows = best_first(scores, k)
        return [self.corpus[row].scored(float(scores[row])) for row in rows]

    def _asks(self) -> Iterator[tuple[type[dspy.Signature], dict[str, Any]]]:
        """The calls of `_read` as far as they are known before it: signatures and inputs."""
        return iter(())

    @abstractmethod
    def _read(self, lm: IndexLM, progress: Progress | None) -> Any:
        """What the LM extracts from each passage."""

    @abstractmethod
    def _join(self, read: Any, lm: IndexLM, progress: Progress | None) -> None:
        """Make the index of what was read."""

    def _make(self, progress: Progress | None) -> None:
        lm = self.maker()
        self._embedding = []
        read = self._read(lm, progress)
        self.passages = self._embedded([passage_text(passage) for passage in self.corpus])
        self._join(read, lm, progress)
        unreadable = sum(not reply.readable for reply in lm.replies)
        if 2 * unreadable > len(lm.replies):
            told = fields(index=self.name, unreadable=unreadable, replies=len(lm.replies))
            _log.warning("most of what the LM replied for the index could not be read", extra=told)
        cut = sum(reply.cut for reply in lm.replies)
        self.counts |= {"unreadable_replies": unreadable, "cut_passages": cut}
        self.calls = [*lm.calls, *self._embedding]

    def _embedded(self, texts: Sequence[str]) -> Vectors:
        if not texts:
            return np.zeros((0, 1), dtype=np.float32)
        with open_ledger() as ledger:
            vectors = self.embedder.embed(texts)
        self._embedding += ledger.calls
        for call in ledger.calls:
            file_call(call)
        return vectors

    def _save(self, folder: Path) -> None:
        for name in ("passages", *self.arrays):
            np.save(folder / f"{name}.npy", getattr(self, name))
        kept = {name: getattr(self, name) for name in ("counts", *self.values)}
        (folder / "values.json").write_text(json.dumps(kept), encoding="utf-8")
        lines = (json.dumps(asdict(call)) + "\n" for call in self.calls)
        (folder / "calls.jsonl").write_text("".join(lines), encoding="utf-8")

    def _load(self, folder: Path) -> None:
        for name in ("passages", *self.arrays):
            setattr(self, name, np.load(folder / f"{name}.npy", mmap_mode="r"))
        for name, value in json.loads((folder / "values.json").read_text("utf-8")).items():
            setattr(self, name, value)
        lines = (folder / "calls.jsonl").read_text("utf-8").splitlines()
        self.calls = [parse_call(json.loads(line)) for line in lines]

    def _check(self) -> None:
        if len(self.passages) != len(self.corpus):
            raise ValueError(f"{len(self.passages)} vectors for {len(self.corpus)} passages")

    @property
    def _identity(self) -> tuple[str, str, str]:
        return (self.name, self.corpus.digest, self.settings.model_dump_json())


def prompt_tokens(signature: type[dspy.Signature], inputs: Mapping[str, Any]) -> int:
    """Tokens of the prompt for `inputs`, estimated, as the current adapter writes it."""
    messages = (dspy.settings.adapter or dspy.ChatAdapter()).format(signature, [], dict(inputs))
    return sum(estimate_tokens(str(message.get("content") or "")) for message in messages)


def passage_text(passage: Passage) -> str:
    """What is embedded and searched of a passage: title and text."""
    return f"{passage.title} {passage.text}".strip()


_LOCK = threading.Lock()
_BUILT: dict[tuple[str, str, str], LMIndex] = {}
_CACHES: dict[Path, ReplyCache] = {}
