"""Cross-encoders read query and passage together (Nogueira and Cho 2019, arXiv:1901.04085)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ragbench.errors import ModelError, needs_extra
from ragbench.ledger import file_call
from ragbench.retrievers.base import Passage
from ragbench.retrievers.embedders import LocalCalls, clean, open_session, open_tokenizer
from ragbench.retrievers.rerankers.base import Reranker, titled

_MAX_TOKENS = 512


class CrossEncoder(Reranker):
    """A sentence-transformers cross-encoder by its name on the hub; needs torch."""

    def __init__(self, name: str) -> None:
        self._name = f"cross-encoder:{name}"
        with needs_extra(self._name, "take reranker=maxsim"):
            from sentence_transformers import (  # type: ignore[import-not-found, unused-ignore]
                CrossEncoder as Model,
            )
        try:
            self._model = Model(name)
        except (OSError, ValueError) as error:
            raise ModelError(f"sentence-transformers cannot load {name}: {error}") from None

    def score(self, query: str, passages: Sequence[Passage]) -> list[float]:
        """The model's scores, in the range of its training."""
        work = LocalCalls(self._name)
        pairs = [(query, titled(passage)) for passage in passages]
        scores: list[float] = np.asarray(self._model.predict(pairs)).astype(float).tolist()
        tokens = sum(len(ids) for ids in self._model.tokenizer(pairs)["input_ids"])
        file_call(work.done(tokens, kind="rerank")[0])
        return scores


class OnnxCrossEncoder(Reranker):
    """A cross-encoder with one output, as `model.onnx` and `tokenizer.json` in `folder`."""

    def __init__(self, folder: str) -> None:
        path = Path(folder).expanduser()
        self._name = f"cross-encoder:{path.name}"
        model, tokenizer = path / "model.onnx", path / "tokenizer.json"
        if not (model.is_file() and tokenizer.is_file()):
            raise ModelError(f"{path} must hold model.onnx and tokenizer.json")
        self._session, self._inputs = open_session(model)
        self._tokenizer = open_tokenizer(tokenizer, _MAX_TOKENS)

    def score(self, query: str, passages: Sequence[Passage]) -> list[float]:
        """The model's logits."""
        work = LocalCalls(self._name)
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
        file_call(work.done(tokens, kind="rerank")[0])
        return scores
