"""Embeddings of OpenAI, or of any server that speaks its protocol.

Requests are batched, made as calls to an LM are, priced, and kept on disk by text and model.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ragbench.errors import LMSetupError
from ragbench.kept import KeptRows
from ragbench.lms.calls import Server, Service, check_price
from ragbench.lms.prices import map_entry
from ragbench.lms.specs import checked_address, key_in, place_of
from ragbench.paths import cache_root
from ragbench.record import Call
from ragbench.retrievers.base import Progress, runs
from ragbench.retrievers.embedders.base import Embedder, Vectors, by_index, normalized
from ragbench.tokens import estimate_tokens

#: OpenAI takes 2,048 texts, 8,191 tokens each and 300,000 tokens a request; the rest is margin.
_BATCH_TEXTS = 512
_BATCH_CHARACTERS = 400_000
_TEXT_CHARACTERS = 16_000
#: OpenAI's own address.
_OPENAI = "https://api.openai.com/v1"
_MOST_DIMENSIONS = 16_384
#: The key of a server given by `api_base`; OpenAI's own key is never sent there.
KEY_VARIABLE = "RAGBENCH_EMBEDDINGS_API_KEY"
#: Requests a minute that OpenAI gives to a new account.
_RATE = 3000.0


#: What is kept after the numbers of a vector: tokens and seconds.
_SHARE = struct.Struct("<qd")


class Kept(NamedTuple):
    """A vector, and this text's share of the tokens and the seconds of the call that made it."""

    vector: Vectors
    tokens: int
    latency_s: float


class OpenAIEmbedder(Embedder):
    """The embedding model `model`, of OpenAI or of the server at `api_base`."""

    service: Service
    in_process = False

    def __init__(self, model: str, *, api_base: str = "", cache: KeptRows | None = None) -> None:
        super().__init__(f"openai/{model}")
        if not api_base and not key_in("OPENAI_API_KEY"):
            raise LMSetupError(
                f"embedder {self.spec} needs a key; set OPENAI_API_KEY, give api_base for another "
                "server, or take embedder=local"
            )
        self.model, self._api_base = model, checked_address(api_base, "api_base")
        # US dollars per token by LiteLLM's price map.
        rate = None if api_base else map_entry("openai", model).get("input_cost_per_token")
        self._price = rate
        self.priced = self._price is not None
        self._cache = cache or KeptRows(cache_root() / "embeddings.sqlite")
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
        return f"{self.spec}@{place_of(self._api_base)}" if self._api_base else self.spec

    def _embed(self, texts: Sequence[str], progress: Progress | None) -> tuple[Vectors, list[Call]]:
        texts = [text[:_TEXT_CHARACTERS] or " " for text in texts]  # an empty text is refused
        known = self._known(texts)
        missing = [text for text in dict.fromkeys(texts) if text not in known]
        calls = []
        if known:
            tokens = sum(kept.tokens for kept in known.values())
            took = sum(kept.latency_s for kept in known.values())
            calls.append(self._call(tokens, took, cached=True))
        done = len(texts) - len(missing)
        least = _BATCH_CHARACTERS // _BATCH_TEXTS
        for run in runs([max(len(text), least) for text in missing], _BATCH_CHARACTERS):
            batch = [missing[place] for place in run]
            answered = self._buy(batch)
            vectors, tokens = answered.reply.value
            calls.append(self._call(tokens, answered.latency_s, attempts=answered.attempts))
            entries = dict(zip(batch, _shares(batch, vectors, calls[-1]), strict=True))
            self._cache.put({
                self._key(text): kept.vector.tobytes() + _SHARE.pack(kept.tokens, kept.latency_s)
                for text, kept in entries.items()
            })  # fmt: skip
            known |= entries
            done += len(batch)
            if progress:
                progress(done, len(texts))
        rows = [known[text].vector for text in texts]
        if len(lengths := {len(row) for row in rows}) > 1:
            raise LMSetupError(
                f"{self.spec} answered with vectors of {' and '.join(map(str, sorted(lengths)))} "
                "numbers; has the server another model now?"
            )
        return np.stack(rows), calls

    def _known(self, texts: Sequence[str]) -> dict[str, Kept]:
        keys, known = {self._key(text): text for text in texts}, {}
        for key, value in self._cache.get(list(keys)).items():
            row = np.frombuffer(value[: -_SHARE.size], dtype=np.float32)
            known[keys[key]] = Kept(row, *_SHARE.unpack(value[-_SHARE.size :]))
        return known

    def _key(self, text: str) -> bytes:
        told = f"{self.identity}\x1f{text}".encode("utf-8", "surrogatepass")
        return hashlib.sha256(told).digest()

    def _buy(self, batch: list[str]) -> Any:
        """The answer to one request, whose value are the vectors and the tokens that they took."""
        check_price(self.spec, known=self.priced)
        price = self._price

        def read(reply: Any, tokens: int) -> tuple[Vectors, float | None]:
            return _checked(reply, len(batch)), None if price is None else tokens * price

        body = {"model": self.model, "input": batch, "encoding_format": "float"}
        most = math.inf if price is None else sum(map(estimate_tokens, batch)) * price
        return self.service.call("embeddings", body, batch, read, most)

    def _call(self, tokens: int, latency_s: float, **told: Any) -> Call:
        cost = None if self._price is None else tokens * self._price
        return Call(
            model=self.identity,
            kind="embed",
            prompt_tokens=tokens,
            cost_usd=cost,
            latency_s=latency_s,
            **told,
        )


def _shares(texts: Sequence[str], vectors: Vectors, call: Call) -> list[Kept]:
    """What each text took of `call`, by its length; the shares add up to the whole."""
    ends = np.cumsum([len(text) for text in texts])
    tokens = np.diff(ends * call.prompt_tokens // ends[-1], prepend=0).tolist()
    seconds = np.diff(ends * call.latency_s / ends[-1], prepend=0).tolist()
    return [Kept(*share) for share in zip(vectors, tokens, seconds, strict=True)]


def _checked(reply: Any, n: int) -> Vectors:
    """The unit vectors `(n, d)` of a reply, each at its index; LMSetupError where one is not."""
    try:
        rows = by_index(reply["data"], "embedding", n)
        if any(isinstance(row, str) for row in rows):
            raise ValueError("a vector is a text")
        vectors = np.array(rows, dtype=np.float32)
        if vectors.ndim != 2 or not 0 < vectors.shape[1] <= _MOST_DIMENSIONS:
            raise ValueError(f"its vectors have the shape {vectors.shape}")
        if not (np.isfinite(vectors).all() and vectors.any(axis=1).all()):
            raise ValueError("a vector is all zeros, or not finite")
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise LMSetupError(
            f"the embeddings server must answer with a vector for each of the {n} texts; "
            f"{type(error).__name__}: {str(error)[:200]}"
        ) from None
    return normalized(vectors)
