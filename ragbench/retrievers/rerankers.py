"""Rerankers: what scores a query against a few passages, by spec.

none                      keeps the order
maxsim, maxsim:NAME       late interaction over a local embedder's token vectors
cross-encoder:/folder     `model.onnx` and `tokenizer.json` of a cross-encoder
http://... or https://... a rerank endpoint, up to and without `/rerank`
lm                        the LM of the run orders the passages
"""

from __future__ import annotations

import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import dspy
import numpy as np
import numpy.typing as npt
from dspy import AdapterParseError

from ragbench.errors import ConfigError, LMSetupError
from ragbench.ledger import calling, file_call
from ragbench.lms import checked_address
from ragbench.lms.calls import Server, Service, check_price
from ragbench.record import Call
from ragbench.retrievers.base import Newest, Passage
from ragbench.retrievers.embedders import (
    LocalEmbedder,
    Model,
    Vectors,
    clean,
    local_call,
    make_embedder,
    open_session,
    open_tokenizer,
    own_files,
)
from ragbench.signatures import RankPassages

_MAX_TOKENS = 512  # of a pair that a cross-encoder reads


class Reranker(Model, ABC):
    """Scores passages for a query. Thread-safe; files its calls in the ledger."""

    identity: str = "reranker"

    @abstractmethod
    def score(self, query: str, passages: Sequence[Passage]) -> list[float]:
        """A score per passage, in their order; higher is better. At least one passage is given."""


def titled(passage: Passage) -> str:
    """The text that rerankers read."""
    return f"{passage.title} {passage.text}".strip()


def make_reranker(spec: str, model: str = "") -> Reranker | None:
    """The reranker of `spec`, None for `none`; `model` is what an endpoint is asked for.

    Raises:
        ConfigError: a malformed spec, or a package that is not installed.
        ModelError: the model's bytes cannot be had.
    """
    scheme, _, name = spec.partition(":")
    if spec == "none":
        return None
    if scheme == "maxsim":
        return MaxSim(name)
    if scheme == "cross-encoder" and name:
        return CrossEncoder(name)
    if scheme in ("http", "https"):
        return HTTPReranker(spec, model)
    if spec == "lm":
        return Listwise()
    raise ConfigError(
        f"reranker {spec!r} is not understood; give none, maxsim, cross-encoder:FOLDER, "
        "an http address or lm"
    )


class MaxSim(Reranker):
    """Mean over the query's tokens of the best cosine with a token of the passage.

    The operator is ColBERT's (Khattab and Zaharia 2020, arXiv:2004.12832); the token vectors are
    those of an ordinary sentence model, which was not trained for it.
    """

    _KEPT = 2_000  # passages of 100 tokens at half precision: about 150 MB

    def __init__(self, name: str = "") -> None:
        embedder = make_embedder(f"local:{name}" if name else "local")
        if not isinstance(embedder, LocalEmbedder):
            raise ConfigError("maxsim needs a local embedder; give maxsim or maxsim:NAME")
        self._embedder = embedder
        self._kept: Newest[str, npt.NDArray[np.float16]] = Newest(self._KEPT)
        self._lock = threading.Lock()

    def score(self, query: str, passages: Sequence[Passage]) -> list[float]:
        """Scores in [-1, 1]; the token vectors of the last 2,000 passages are kept."""
        start = time.perf_counter()
        texts = [clean(titled(passage)) for passage in passages]
        known = {text: self._kept[text] for text in texts if text in self._kept}
        missing = [text for text in dict.fromkeys(texts) if text not in known]
        asked: Vectors
        asked, *made = self._embedder.token_vectors([clean(query), *missing])
        known |= {text: v.astype(np.float16) for text, v in zip(missing, made, strict=True)}
        with self._lock:
            for text in missing:
                self._kept[text] = known[text]
        # Tokens of kept passages count too: as if they had been made again.
        tokens = len(asked) + sum(len(known[text]) for text in texts)
        file_call(local_call(f"maxsim:{self._embedder.spec}", start, tokens, "rerank"))
        return [
            float((asked @ known[text].astype(np.float32).T).max(axis=1).mean())
            if len(asked) and len(known[text])
            else -1.0
            for text in texts
        ]


class CrossEncoder(Reranker):
    """A model that reads query and passage together (Nogueira and Cho 2019, arXiv:1901.04085).

    It has one output, and is `model.onnx` and `tokenizer.json` in `folder`.
    """

    def __init__(self, folder: str) -> None:
        model, tokenizer = own_files(folder)
        self._name = f"cross-encoder:{model.parent.name}"
        self._session, self._inputs = open_session(model)
        self._tokenizer = open_tokenizer(tokenizer, _MAX_TOKENS)

    def score(self, query: str, passages: Sequence[Passage]) -> list[float]:
        """The model's logits."""
        start = time.perf_counter()
        pairs = [(clean(query), clean(titled(passage))) for passage in passages]
        scores, tokens = [], 0
        for pair in self._tokenizer.encode_batch(pairs):
            given = {
                "input_ids": pair.ids,
                "attention_mask": pair.attention_mask,
                "token_type_ids": pair.type_ids,
            }
            feed = {name: np.array([given[name]], dtype=np.int64) for name in self._inputs}
            scores.append(float(np.ravel(self._session.run(None, feed)[0])[0]))
            tokens += len(pair.ids)
        file_call(local_call(self._name, start, tokens, "rerank"))
        return scores


KEY_VARIABLE = "RAGBENCH_RERANK_API_KEY"


class HTTPReranker(Reranker):
    """The endpoint at `address`, asked for `model`."""

    priced = False
    service: Service
    in_process = False

    def __init__(self, address: str, model: str = "") -> None:
        self._model = model
        address = checked_address(address, "the address of the reranker")
        self.identity = f"reranker {address}"
        server = Server("rerank", model, address, KEY_VARIABLE)
        self.service = Service(self.identity, server, model=model or "rerank", kind="rerank")

    def score(self, query: str, passages: Sequence[Passage]) -> list[float]:
        """The endpoint's relevance scores; its price is not known."""
        body: dict[str, Any] = {"query": query, "documents": [titled(p) for p in passages]}
        if self._model:
            body["model"] = self._model
        check_price(self.identity, known=self.priced)
        texts = [query, *body["documents"]]
        read = lambda reply, tokens: (_scores(reply, len(passages)), None)  # noqa: E731
        answered = self.service.call("rerank", body, texts, read, math.inf)
        scores, tokens = answered.reply.value
        file_call(
            Call(
                model=self.service.model,
                kind="rerank",
                prompt_tokens=tokens,
                latency_s=answered.latency_s,
                attempts=answered.attempts,
            )
        )
        return scores


def _scores(reply: Any, n: int) -> list[float]:
    """The score of each of `n` documents.

    Raises:
        LMSetupError: they are not one finite number for each.
    """
    try:
        rows = {row["index"]: row["relevance_score"] for row in reply["results"]}
        if len(reply["results"]) != n or any(type(index) is not int for index in rows):
            raise ValueError
        scores = [rows[i] for i in range(n)]
        if any(type(score) not in (int, float) or not math.isfinite(score) for score in scores):
            raise ValueError
        return [float(score) for score in scores]
    except (KeyError, TypeError, ValueError, OverflowError):
        raise LMSetupError(
            "the rerank endpoint must answer with results of index and relevance_score, one per "
            f"document ({n} were sent)"
        ) from None


class Listwise(Reranker):
    """The LM of the run orders the passages in one call (Sun et al. 2023, arXiv:2304.09542).

    Passages that the LM leaves out keep their order behind the others.
    """

    in_process = False

    def __init__(self) -> None:
        self._rank = dspy.Predict(RankPassages)

    def score(self, query: str, passages: Sequence[Passage]) -> list[float]:
        """1 / rank; an unreadable reply leaves the order as it was."""
        lines = [f"[{n}] {passage}" for n, passage in enumerate(passages, start=1)]
        with calling("RankPassages", "reranking"):
            try:
                ranking = self._rank(query=query, passages=lines).ranking or []
            except AdapterParseError:
                ranking = []
        named = dict.fromkeys(n - 1 for n in ranking if 1 <= n <= len(passages))
        order = list(named | dict.fromkeys(range(len(passages))))
        scores = [0.0] * len(passages)
        for rank, position in enumerate(order, start=1):
            scores[position] = 1 / rank
        return scores
