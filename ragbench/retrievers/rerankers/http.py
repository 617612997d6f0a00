"""A rerank endpoint: `POST {address}/rerank` with query and documents, as Cohere, Jina and vLLM."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

from ragbench.errors import LMSetupError
from ragbench.ledger import Call, file_call
from ragbench.lms.limits import Amount, check_price
from ragbench.lms.service import Reply, Server, Service
from ragbench.retrievers.base import Passage
from ragbench.retrievers.rerankers.base import Reranker, titled

KEY_VARIABLE = "RAGBENCH_RERANK_API_KEY"


class HTTPReranker(Reranker):
    """The endpoint at `address`, asked for `model`."""

    priced = False
    service: Service

    def __init__(self, address: str, model: str = "") -> None:
        self._model = model
        address = address.rstrip("/")
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
        texts = [query, *body["documents"]]
        most = Amount(tokens=sum(-(-len(text) // 4) for text in texts), cost=math.inf)
        served = self.service.call(lambda: self._ask(body, most), texts, most)
        scores, tokens = served.value
        file_call(
            Call(
                model=self.service.model,
                kind="rerank",
                prompt_tokens=tokens,
                latency_s=served.latency_s,
                attempts=served.attempts,
            )
        )
        return list(scores)

    def _ask(self, body: dict[str, Any], most: Amount) -> Reply:
        import httpx

        response = self.service.client.post("/rerank", cast_to=httpx.Response, body=body)
        try:
            reply = response.json()
        except ValueError:
            reply = None  # `_read` says what is wanted
        scores = _read(reply, len(body["documents"]))
        tokens = int((reply.get("usage") or {}).get("total_tokens") or 0)
        return Reply((scores, tokens), tokens or most.tokens, None, response.headers)


def _read(reply: Any, n: int) -> list[float]:
    try:
        scores = {row["index"]: float(row["relevance_score"]) for row in reply["results"]}
        return [scores[i] for i in range(n)]
    except (KeyError, TypeError, ValueError):
        raise LMSetupError(
            "the rerank endpoint must answer with results of index and relevance_score, one per "
            f"document ({n} were sent)"
        ) from None
