"""A rerank endpoint: `POST {address}/rerank` with query and documents, as Cohere, Jina and vLLM.

The openai package's client sends it, for its retries, waits and timeouts.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from typing import Any

from ragbench.errors import LMSetupError
from ragbench.ledger import Call, file_call
from ragbench.lms.limits import Amount, Slip, check_price, reserved
from ragbench.retrievers.base import Passage
from ragbench.retrievers.rerankers.base import Reranker, titled

KEY_VARIABLE = "RAGBENCH_RERANK_API_KEY"
_RETRIES = 4


class HTTPReranker(Reranker):
    """The endpoint at `address`, asked for `model`."""

    priced = False
    remote = True

    def __init__(self, address: str, model: str = "") -> None:
        import openai

        key = os.environ.get(KEY_VARIABLE, "none")
        self._address, self._model = address.rstrip("/"), model
        self.identity = f"reranker {self._address}"
        self._client = openai.OpenAI(api_key=key, base_url=self._address)

    def score(self, query: str, passages: Sequence[Passage]) -> list[float]:
        """The endpoint's relevance scores; its price is not known."""
        import openai

        body: dict[str, Any] = {"query": query, "documents": [titled(p) for p in passages]}
        if self._model:
            body["model"] = self._model
        start = time.perf_counter()
        check_price(self.identity, known=self.priced)
        texts = [query, *body["documents"]]
        asked = Amount(tokens=sum(-(-len(text) // 4) for text in texts), cost=math.inf)
        with reserved(asked, retries=_RETRIES) as slip:
            try:
                reply = self._post(body, slip)
                scores = _read(reply, len(passages))
            except (openai.APIError, LMSetupError) as error:
                self._file(start, attempts=slip.taken.calls, error=type(error).__name__)
                if isinstance(error, openai.APIConnectionError):
                    raise LMSetupError(f"no rerank endpoint answers at {self._address}") from None
                raise
            usage = reply.get("usage") or {}
            tokens = int(usage.get("total_tokens") or 0)
            slip.take(tokens=tokens or asked.tokens, cost=None, calls=slip.taken.calls)
        self._file(start, attempts=slip.taken.calls, tokens=tokens)
        return scores

    def _post(self, body: dict[str, Any], slip: Slip) -> Any:
        import httpx

        slip.take(tokens=0, cost=0.0, calls=1 + slip.retries)  # where every try fails
        client = self._client.with_options(max_retries=slip.retries)
        response = client.post("/rerank", cast_to=httpx.Response, body=body)
        retries = int(response.request.headers.get("x-stainless-retry-count", 0))
        slip.take(tokens=0, cost=0.0, calls=1 + retries)
        try:
            return response.json()
        except ValueError:
            return None  # `_read` says what is wanted

    def _file(
        self, start: float, *, attempts: int, tokens: int = 0, error: str | None = None
    ) -> None:
        file_call(
            Call(
                model=self._model or "rerank",
                kind="rerank",
                prompt_tokens=tokens,
                latency_s=time.perf_counter() - start,
                attempts=attempts,
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
