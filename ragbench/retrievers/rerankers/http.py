"""A rerank endpoint: `POST {address}/rerank` with query and documents, as Cohere, Jina and vLLM."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

from ragbench.errors import LMSetupError
from ragbench.ledger import file_call
from ragbench.lms import checked_address
from ragbench.lms.calls import Post, Server, Service, check_price
from ragbench.record import Call
from ragbench.retrievers.base import Passage
from ragbench.retrievers.rerankers.base import Reranker, titled

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
        key = os.environ.get(KEY_VARIABLE, "none")
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
