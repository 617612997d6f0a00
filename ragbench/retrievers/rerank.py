"""Any retriever, its first candidates put into a better order by what scores them, by spec.

none                      keeps the order
maxsim, maxsim:NAME       late interaction over a local embedder's token vectors
fastembed/NAME            a cross-encoder of fastembed. NAME@FOLDER reads its files from a folder
http://... or https://... a rerank endpoint, up to and without `/rerank`
lm                        the LM of the run orders the passages
"""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Self

import dspy
from dspy import AdapterParseError
from pydantic import Field

from ragbench import signatures
from ragbench.errors import ConfigError, LMSetupError
from ragbench.knobs import Knobs
from ragbench.ledger import calling, count, file_call
from ragbench.lms.calls import Server, Service, check_price
from ragbench.lms.specs import checked_address
from ragbench.passages import Passage
from ragbench.record import Call
from ragbench.retrievers import embedders
from ragbench.retrievers.base import RETRIEVERS
from ragbench.retrievers.embedders.fast import PREFIX, open_model
from ragbench.retrievers.embedders.parts import in_parts
from ragbench.retrievers.factory import Wrapper
from ragbench.retrievers.scores import min_max

KEY_VARIABLE = "RAGBENCH_RERANK_API_KEY"
#: Names of the rows in a reply, and of the score in a row.
_ROWS = ("results", "data", "rankings", "scores")
_SCORES = ("relevance_score", "score", "logit")


class RerankSettings(Knobs):
    """Knobs of reranking."""

    inner: str = Field("hybrid", description="spec of the retriever whose hits are reranked")
    reranker: str = Field(
        "maxsim", description="none, maxsim, fastembed/NAME, an http address or lm"
    )
    model: str = Field("", description="model name for a rerank endpoint")
    weight: float | None = Field(
        None,
        ge=0,
        le=1,
        description="share of the reranker's score, the first search having the rest, both "
        "stretched to [0, 1]; default: 0.5 for maxsim, else 1",
    )
    depth: int = Field(20, ge=1, le=1000, description="candidates to rerank, at least k")


@RETRIEVERS.register("rerank")
class Rerank(Wrapper):
    """The hits of another retriever, reordered by a model that reads them."""

    name = "rerank"
    Settings = RerankSettings

    @cached_property
    def reranker(self) -> "Reranker | None":
        return make_reranker(self.settings.reranker, self.settings.model)

    def search_many(self, queries: Sequence[str], *, k: int) -> list[list[Passage]]:
        """Search for each query. Fetch the candidates of all queries together."""
        self.build()
        depth = k
        if k > 0 and self.reranker:
            depth = max(k, self.settings.depth)
        candidates = self.parts[0].search_many(queries, k=depth)
        return [self._reordered(q, hits)[:k] for q, hits in zip(queries, candidates, strict=True)]

    def restrict(self, positions: Sequence[int]) -> Self:
        small = super().restrict(positions)
        small.reranker = self.reranker
        return small

    def _reordered(self, query: str, hits: list[Passage]) -> list[Passage]:
        if not hits or self.reranker is None:
            return hits
        weight = self.settings.weight
        scores = self.reranker.score(query, hits)
        if weight is None:
            # MaxSim over vectors that were not trained for it is worse than the first search.
            weight = 1.0
            if self.settings.reranker.startswith("maxsim"):
                weight = 0.5
        if weight != 1:
            first_scores = min_max([hit.score for hit in hits])
            second_scores = min_max(scores)
            scores = (weight * second_scores + (1 - weight) * first_scores).tolist()
        positions = self.corpus.positions
        scored = [hit.scored(score) for hit, score in zip(hits, scores, strict=True)]
        return sorted(scored, key=lambda p: (-p.score, positions[p.pid]))


class Reranker(embedders.Model, ABC):
    """Scores passages for a query. Thread-safe. Files its calls in the ledger."""

    identity: str = "reranker"

    @abstractmethod
    def score(self, query: str, passages: Sequence[Passage]) -> list[float]:
        """Score passages for a query.

        Args:
            query: Text of the query.
            passages: At least one passage.

        Returns:
            A score for each passage. Higher is better.
        """


def make_reranker(spec: str, model: str = "") -> Reranker | None:
    """Create a reranker. Return None for `none`.

    Args:
        spec: `none`, `maxsim`, `fastembed/NAME`, `lm` or an HTTP address.
        model: Model of the HTTP endpoint.

    Raises:
        ConfigError: The spec is unknown.
    """
    scheme, _, name = spec.partition(":")
    if spec == "none":
        return None
    if scheme == "maxsim":
        return MaxSim(name)
    if scheme in ("http", "https"):
        return HTTPReranker(spec, model)
    if spec == "lm":
        return Listwise()
    if spec.startswith(PREFIX):
        return CrossEncoder(spec.removeprefix(PREFIX))
    raise ConfigError(
        f"unknown reranker {spec!r}; use one of none, maxsim, fastembed/NAME, lm or an http address"
    )


def _titled(passage: Passage) -> str:
    return f"{passage.title} {passage.text}".strip()


class MaxSim(Reranker):
    """Mean over the query's tokens of the best cosine with a token of the passage.

    The operator is ColBERT's (Khattab and Zaharia 2020, arXiv:2004.12832). The token vectors are
    those of an ordinary sentence model, which was not trained for it.
    """

    def __init__(self, name: str = "") -> None:
        embedder = embedders.make_embedder(f"local:{name}" if name else "local")
        if not isinstance(embedder, embedders.LocalEmbedder):
            raise ConfigError("maxsim needs a local embedder; give maxsim or maxsim:NAME")
        self._embedder = embedder

    def score(self, query: str, passages: Sequence[Passage]) -> list[float]:
        """Return a score in [-1, 1] per passage."""
        start = time.perf_counter()
        texts = list(map(embedders.clean, (query, *map(_titled, passages))))
        query_vectors, *rows = self._embedder.token_vectors(texts)
        tokens = len(query_vectors) + sum(map(len, rows))
        file_call(embedders.local_call(f"maxsim:{self._embedder.spec}", start, tokens, "rerank"))
        scores = []
        for vectors in rows:
            score = -1.0
            if len(query_vectors) and len(vectors):
                score = float((query_vectors @ vectors.T).max(axis=1).mean())
            scores.append(score)
        return scores


class CrossEncoder(Reranker):
    """A cross-encoder of fastembed. `name` is NAME or NAME@FOLDER."""

    def __init__(self, name: str) -> None:
        self.identity = PREFIX + name.partition("@")[0]
        self._model = open_model("reranker", name)

    def score(self, query: str, passages: Sequence[Passage]) -> list[float]:
        """Return the model's relevance logit per passage."""
        start = time.perf_counter()
        query, *texts = map(embedders.clean, (query, *map(_titled, passages)))
        scores = list(map(float, self._model.rerank(query, texts, batch_size=1)))
        tokens = self._model.token_count([(query, text) for text in texts])
        file_call(embedders.local_call(self.identity, start, tokens, "rerank"))
        return scores


class HTTPReranker(Reranker):
    """The endpoint at `address`, asked for `model`. Its price is not known."""

    priced = False
    service: Service
    in_process = False

    def __init__(self, address: str, model: str = "") -> None:
        self._model = model
        #: The endpoint's name of the list of passages.
        self._field = "documents"
        address = checked_address(address, "the address of the reranker")
        self.identity = f"reranker {address}"
        server = Server("rerank", model, address, KEY_VARIABLE)
        self.service = Service(self.identity, server, model=model or "rerank", kind="rerank")

    def score(self, query: str, passages: Sequence[Passage]) -> list[float]:
        """Return the endpoint's scores. A blank passage is not sent and gets the lowest."""
        documents = list(map(_titled, passages))
        sent = list(filter(None, documents))
        scores = iter(self._scores(query, sent) if query.strip() and sent else ())
        results = []
        for text in documents:
            results.append(next(scores, None) if text else None)
        lowest = min((score for score in results if score is not None), default=0.0)
        return [lowest if score is None else score for score in results]

    def _scores(self, query: str, documents: list[str]) -> list[float]:
        parts = in_parts(documents, partial(self._asked, query), lambda text: count("rerank_cut"))
        return [score for _, scores in parts for score in scores]

    def _asked(self, query: str, documents: Sequence[str]) -> list[float]:
        body: dict[str, Any] = {"query": query, self._field: list(documents)}
        if self._model:
            body["model"] = self._model
        check_price(self.identity, priced=self.priced)
        texts = [query, *documents]
        read = partial(_read_scores, len(documents))
        try:
            answered = self.service.call("rerank", body, texts, read)
        except LMSetupError as error:
            if self._field == "texts" or "texts" not in str(error):
                raise
            self._field = "texts"  # the name in text-embeddings-inference
            return self._asked(query, documents)
        scores, tokens = answered.value
        usage: dict[str, Any] = {"latency_s": answered.latency_s, "attempts": answered.attempts}
        usage["failed"] = answered.failed
        file_call(Call(model=self.service.model, kind="rerank", prompt_tokens=tokens, **usage))
        return scores


def _read_scores(n: int, reply: Any, tokens: int) -> tuple[list[float], None]:
    """Read the scores of `n` documents from a reply of any known form.

    A list of rows, directly or as `results` (Cohere, Jina, vLLM), `data` (Voyage), `rankings`
    (NVIDIA), `output.results` (DashScope) or `scores`. A row has `index` and `relevance_score`,
    `score` or `logit`, or is the number.
    """
    rows = reply
    if isinstance(reply, Mapping):
        inner = reply.get("output")
        if isinstance(inner, Mapping):
            reply = inner
        rows = next((reply[name] for name in _ROWS if name in reply), None)
    try:
        scores = list(map(float, embedders.by_index(rows, _SCORES, n)))
        if not all(map(math.isfinite, scores)):
            raise ValueError("a score is not finite")
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise LMSetupError(
            "the rerank endpoint must answer with results of index and relevance_score, "
            f"one per document ({n} were sent); {str(error)[:200]}"
        ) from None
    return scores, None


class Listwise(Reranker):
    """The LM of the run orders the passages in one call (Sun et al. 2023, arXiv:2304.09542).

    Passages that the LM leaves out keep their order behind the others.
    """

    in_process = False

    def __init__(self) -> None:
        self._rank = dspy.Predict(signatures.RankPassages)

    def score(self, query: str, passages: Sequence[Passage]) -> list[float]:
        """Return 1 / rank per passage. An unreadable reply keeps the order."""
        lines = [f"[{n}] {passage}" for n, passage in enumerate(passages, start=1)]
        with calling("RankPassages", "reranking"):
            try:
                ranking = self._rank(query=query, passages=lines).ranking or []
            except AdapterParseError:
                ranking = []
        named = dict.fromkeys(n - 1 for n in ranking if 1 <= n <= len(passages))
        order = list(named | dict.fromkeys(range(len(passages))))
        return [1 / (1 + order.index(position)) for position in range(len(passages))]
