"""Embeddings of OpenAI, or of any server that speaks its protocol.

Requests are batched, made as calls to an LM are, priced, and kept on disk by text and model.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ragbench.errors import LMSetupError, LMUnavailableError
from ragbench.ledger import count
from ragbench.lms.calls import Server, Service, TextsRefusedError, TooLargeError, check_price
from ragbench.lms.prices import map_entry
from ragbench.lms.specs import checked_address, key_in, place_of
from ragbench.logs import get
from ragbench.paths import cache_root
from ragbench.record import Call
from ragbench.retrievers.base import Progress
from ragbench.retrievers.embedders.base import Embedder, Vectors, by_index, normalized
from ragbench.retrievers.embedders.parts import in_parts
from ragbench.sqlite_cache import CachedRows

_log = get(__name__)

#: OpenAI takes 2,048 texts, 8,191 tokens each and 300,000 tokens a request. The rest is margin.
_BATCH_TEXTS = 512
_BATCH_CHARACTERS = 400_000
_TEXT_CHARACTERS = 16_000
#: OpenAI's own address.
_OPENAI = "https://api.openai.com/v1"
_MOST_DIMENSIONS = 16_384
#: The key of a server given by `api_base`. OpenAI's own key is never sent there.
KEY_VARIABLE = "RAGBENCH_EMBEDDINGS_API_KEY"
#: Requests a minute that OpenAI gives to a new account.
_RATE = 3000.0


#: Fields stored after the numbers of a vector: tokens and seconds.
_SHARE = struct.Struct("<qd")


class CachedVector(NamedTuple):
    """A vector, and this text's share of the tokens and the seconds of the call that made it."""

    vector: Vectors
    tokens: int
    latency_s: float


class OpenAIEmbedder(Embedder):
    """The embedding model `model`, of OpenAI or of the server at `api_base`."""

    service: Service
    in_process = False

    def __init__(self, model: str, *, api_base: str = "", cache: CachedRows | None = None) -> None:
        super().__init__(f"openai/{model}")
        if not api_base and not key_in("OPENAI_API_KEY"):
            raise LMSetupError(
                f"embedder {self.spec} needs a key; set OPENAI_API_KEY, give api_base for another "
                "server, or take embedder=local"
            )
        self.model, self._api_base = model, checked_address(api_base, "api_base")
        #: US dollars per token, as installed price lists state it.
        self._price = None
        if not api_base:
            self._price = map_entry("openai", model).get("input_cost_per_token")
        self.priced = self._price is not None
        #: Most texts of a request. Numbers of a vector, 0 while not known.
        self._most_texts = _BATCH_TEXTS
        self._numbers = 0
        self._odd_texts = 0  # that were too long, or that the server fails for
        self._failure: LMUnavailableError | None = None
        self._cache = cache or CachedRows(cache_root() / "embeddings.sqlite")
        variable = KEY_VARIABLE if api_base else "OPENAI_API_KEY"
        self.service = Service(
            f"embedder {self.identity}",
            Server("openai", model, self._api_base or _OPENAI, variable),
            model=self.identity,
            kind="embed",
            rpm=None if api_base else _RATE,
        )

    @property
    def identity(self) -> str:
        if self._api_base:
            return f"{self.spec}@{place_of(self._api_base)}"
        return self.spec

    def _embed(self, texts: Sequence[str], progress: Progress | None) -> tuple[Vectors, list[Call]]:
        texts = [text[:_TEXT_CHARACTERS] for text in texts]
        distinct = list(dict.fromkeys(text for text in texts if text.strip()))
        if not distinct and not self._numbers:
            distinct = ["blank"]  # to learn the dimension
        embedded = self._known(distinct)
        missing = [text for text in distinct if text not in embedded]
        calls = []
        if embedded:
            tokens = sum(entry.tokens for entry in embedded.values())
            seconds = sum(entry.latency_s for entry in embedded.values())
            calls.append(self._call(tokens, seconds, cached=True))
        done = len(texts) - len(missing)
        while missing:
            batch = self._batch(missing)
            missing = missing[len(batch) :]
            for batch_texts, answered in self._bought(batch):
                if answered is None:
                    continue
                vectors, tokens = answered.value
                facts = {"attempts": answered.attempts, "failed": answered.failed}
                calls.append(self._call(tokens, answered.latency_s, **facts))
                shares = _shares(batch_texts, vectors, calls[-1])
                rows: dict[bytes, bytes] = {}
                for text, entry in zip(batch_texts, shares, strict=True):
                    share = _SHARE.pack(entry.tokens, entry.latency_s)
                    rows[self._key(text)] = entry.vector.tobytes() + share
                    embedded[text] = entry
                self._cache.put(rows)
            done += len(batch)
            if progress:
                progress(done, len(texts))
        if not embedded and self._failure is not None:
            raise self._failure
        lengths = {len(entry.vector) for entry in embedded.values()}
        if len(lengths) > 1:
            raise LMSetupError(
                f"{self.spec} answered with vectors of {' and '.join(map(str, sorted(lengths)))} "
                "numbers; has the server another model now?"
            )
        if lengths:
            self._numbers = lengths.pop()
        vectors = np.zeros((len(texts), self._numbers), dtype=np.float32)
        for row, text in enumerate(texts):
            if text in embedded and text.strip():
                vectors[row] = embedded[text].vector
        return vectors, calls

    def _batch(self, texts: Sequence[str]) -> list[str]:
        """Return the first `texts` that fit into one request."""
        batch: list[str] = []
        room = _BATCH_CHARACTERS
        for text in texts[: self._most_texts]:
            room -= len(text)
            if batch and room < 0:
                break
            batch.append(text)
        return batch

    def _bought(self, batch: list[str]) -> list[tuple[Sequence[str], Any]]:
        """Request the vectors of `batch` in as few requests as the server accepts.

        Later requests are no larger than the accepted ones, unless a single text was the cause.

        Returns:
            Texts and the answer to them, per request. None for a text without a vector.
        """
        odd_texts = self._odd_texts
        parts = in_parts(batch, self._buy, self._note_cut)
        if len(parts) > 1 and self._odd_texts == odd_texts:
            self._most_texts = min(self._most_texts, max(len(texts) for texts, _ in parts))
        return parts

    def _note_cut(self, text: str) -> None:
        self._odd_texts += 1
        count("embedding_cut")
        _log.warning("%s rejects texts of %d characters; truncating", self.spec, len(text))

    def _known(self, texts: Sequence[str]) -> dict[str, CachedVector]:
        keys = {self._key(text): text for text in texts}
        cached = {}
        for key, value in self._cache.get(list(keys)).items():
            row = np.frombuffer(value[: -_SHARE.size], dtype=np.float32)
            cached[keys[key]] = CachedVector(row, *_SHARE.unpack(value[-_SHARE.size :]))
        return cached

    def _key(self, text: str) -> bytes:
        content = f"{self.identity}\x1f{text}".encode("utf-8", "surrogatepass")
        return hashlib.sha256(content).digest()

    def _buy(self, texts: Sequence[str]) -> Any:
        """Send one request and return its answer, with the vectors and their tokens as value.

        Returns None for a single text that the server fails for.
        """
        check_price(self.spec, priced=self.priced)

        def read(reply: Any, tokens: int) -> tuple[Vectors, float | None]:
            return _checked(reply, texts), self._cost(tokens)

        body = {"model": self.model, "input": list(texts)}
        try:
            return self.service.call("embeddings", body, texts, read, self._price)
        except TextsRefusedError as error:
            if len(texts) > 1:
                raise TooLargeError(str(error)) from error
            self._odd_texts += 1
            self._failure = error
            count("embedding_failed")
            _log.warning("%s: no vector for the text %r: %s", self.spec, texts[0][:80], error)
            return None

    def _call(self, tokens: int, latency_s: float, **facts: Any) -> Call:
        usage: dict[str, Any] = {"prompt_tokens": tokens, "cost_usd": self._cost(tokens)}
        return Call(model=self.identity, kind="embed", latency_s=latency_s, **usage, **facts)

    def _cost(self, tokens: int) -> float | None:
        if self._price is None:
            return None
        return tokens * self._price


def _shares(texts: Sequence[str], vectors: Vectors, call: Call) -> list[CachedVector]:
    """Return each text's vector and share of `call`, by length. Shares sum to the whole."""
    ends = np.cumsum(list(map(len, texts)))
    tokens = np.diff(ends * call.prompt_tokens // ends[-1], prepend=0).tolist()
    seconds = np.diff(ends * call.latency_s / ends[-1], prepend=0).tolist()
    return [CachedVector(*share) for share in zip(vectors, tokens, seconds, strict=True)]


def _checked(reply: Any, texts: Sequence[str]) -> Vectors:
    """Return the unit vectors of a reply, shape `(n, d)`.

    Raises:
        LMSetupError: A vector is missing or malformed.
    """
    n = len(texts)
    try:
        rows = reply
        if isinstance(reply, Mapping):
            rows = reply["data"]
        vectors = np.array(by_index(rows, ("embedding",), n), dtype=np.float64)
        if vectors.ndim != 2 or not 0 < vectors.shape[1] <= _MOST_DIMENSIONS:
            raise ValueError(f"its vectors have the shape {vectors.shape}")
        finite = np.asarray(np.isfinite(vectors).all(axis=1))
        unit = normalized(np.where(finite.reshape(-1, 1), vectors, 0.0))
        good = finite & unit.any(axis=1)
        if not good.all():
            text = texts[int(np.argmin(good))]
            raise ValueError(f"the vector of {text[:80]!r} is all zeros, or not finite")
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise LMSetupError(
            f"the embeddings server must answer with a vector for each of the {n} texts; "
            f"{type(error).__name__}: {str(error)[:200]}"
        ) from None
    return unit
