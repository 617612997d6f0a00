"""Rerankers that ask a server (`POST {address}/rerank`, as Cohere, Jina and vLLM) or the LM."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import dspy
from dspy import AdapterParseError

from ragbench.errors import LMSetupError
from ragbench.ledger import calling, file_call
from ragbench.lms import checked_address
from ragbench.lms.calls import Post, Server, Service, check_price
from ragbench.lms.specs import key_in
from ragbench.record import Call
from ragbench.retrievers.base import Passage
from ragbench.retrievers.rerankers import Reranker, titled
from ragbench.signatures import RankPassages

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
        key = key_in(KEY_VARIABLE) or "none"
        server = Server("rerank", model, address, key, KEY_VARIABLE)
        self.service = Service(self.identity, server, model=model or "rerank", kind="rerank")

    def score(self, query: str, passages: Sequence[Passage]) -> list[float]:
        """The endpoint's relevance scores; its price is not known."""
        body: dict[str, Any] = {"query": query, "documents": [titled(p) for p in passages]}
        if self._model:
            body["model"] = self._model
        check_price(self.identity, known=self.priced)
        post = Post(
            path="rerank",
            body=body,
            texts=[query, *body["documents"]],
            read=lambda reply, tokens: (_scores(reply, len(passages)), None),
            most_usd=math.inf,
        )
        answered = self.service.call(post)
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
