"""Embedders and cross-encoders of fastembed: ONNX models by their hub name, without torch.

`fastembed/NAME` downloads the model at first use. `fastembed/NAME@FOLDER` reads its files from a
folder, for machines that cannot reach the hub.
"""

import time
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np

from ragbench.errors import ModelError, UnknownNameError, needs_extra
from ragbench.paths import cache_root
from ragbench.record import Call
from ragbench.retrievers.base import Progress
from ragbench.retrievers.embedders.base import Embedder, Vectors, local_call, normalized

PREFIX = "fastembed/"


def open_model(kind: Literal["embedder", "reranker"], spec: str) -> Any:
    """Load a fastembed model.

    Args:
        kind: "embedder" for text embeddings, "reranker" for cross-encoders.
        spec: NAME or NAME@FOLDER, without the prefix.

    Raises:
        MissingExtraError: The extra `dense` is not installed.
        UnknownNameError: fastembed does not have the model.
        ModelError: The model cannot be downloaded or read.
    """
    with needs_extra(f"{PREFIX}{spec}"):
        from fastembed import TextEmbedding
        from fastembed.rerank.cross_encoder import TextCrossEncoder
    model = TextEmbedding if kind == "embedder" else TextCrossEncoder
    name, _, folder = spec.partition("@")
    supported = [entry["model"] for entry in model.list_supported_models()]
    if name not in supported:
        raise UnknownNameError(f"fastembed {kind}", name, supported)
    cache = str(cache_root() / "models" / "fastembed")
    try:
        return model(name, cache_dir=cache, specific_model_path=folder or None)
    except Exception as error:  # errors of the hub's client, of the tokenizer and of ONNX
        reason = str(error).partition("\n")[0][:120]
        raise ModelError(
            f"cannot load {name}: {reason}; give {PREFIX}{name}@FOLDER with its files"
        ) from None


class FastEmbedder(Embedder):
    """A text embedding model of fastembed. `name` is NAME or NAME@FOLDER."""

    def __init__(self, name: str) -> None:
        super().__init__(PREFIX + name.partition("@")[0])
        self._name = name

    @cached_property
    def _model(self) -> Any:
        return open_model("embedder", self._name)  # the first use may download it

    def _embed(self, texts: Sequence[str], progress: Progress | None) -> tuple[Vectors, list[Call]]:
        start = time.perf_counter()
        tokens = self._model.token_count(list(texts))
        # Padding changes the last digits, so each text is a batch.
        rows = np.array(list(self._model.embed(list(texts), batch_size=1)))
        return normalized(rows), [local_call(self.spec, start, tokens)]
