"""A rerank endpoint: `POST {address}/rerank` with query and documents, as Cohere, Jina and vLLM.

The openai package's client sends it, for its retries, waits and timeouts.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from ragbench.errors import LMSetupError
from ragbench.ledger import Call, file_call
from ragbench.retrievers.base import Passage
from ragbench.retrievers.rerankers.base import Reranker, titled

KEY_VARIABLE = "RAGBENCH_RERANK_API_KEY"


class HTTPReranker(Reranker):
    """The endpoint at `address`, asked for `model`."""

    def __init__(self, address: str, model: str = "") -> None:
        import openai

        key = os.environ.get(KEY_VARIABLE, "none")
        self._address, self._model = address.rstrip("/"), model
        self._client = openai.OpenAI(api_key=key, base_url=self._address, max_retries=4)

    def score(self, query: str, passages: Sequence[Passage]) -> list[float]:
        """The endpoint's relevance scores; its price is not known."""
        import openai

        body = {"query": query, "documents": [titled(p) for p in passages]}
        if self._model:
            body["model"] = self._model
        start = time.perf_counter()
        try:
            reply: Any = self._client.post("/rerank", cast_to=object, body=body)
            scores = _read(reply, len(passages))
        except (openai.APIError, LMSetupError) as error:
            self._file(start, error=type(error).__name__)
            if isinstance(error, openai.APIConnectionError):
                raise LMSetupError(f"no rerank endpoint answers at {self._address}") from None
            raise
        usage = reply.get("usage") or {}
        self._file(start, tokens=int(usage.get("total_tokens") or 0))
        return scores

    def _file(self, start: float, *, tokens: int = 0, error: str | None = None) -> None:
        file_call(
            Call(
                model=self._model or "rerank",
                kind="rerank",
                prompt_tokens=tokens,
                latency_s=time.perf_counter() - start,
                error=error,
            )
        )


def _read(reply: Any, n: int) -> list[float]:
    try:
        scores = {row["index"]: float(row["relevance_score"]) for row in reply["results"]}
        return [scores[i] for i in range(n)]
    except (KeyError, TypeError, ValueError):
        raise LMSetupError(
            "the rerank endpoint must answer with results of index and relevance_score, one per "
            f"document ({n} were sent)"
        ) from None
