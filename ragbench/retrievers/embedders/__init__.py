"""Embedders: what turns text into vectors, by spec.

local                          the default small model, by ONNX on this machine
local:NAME, local:/folder      another of `ragbench list models`, or a folder with
                               `model.onnx` and `tokenizer.json`
fastembed/NAME                 a model of fastembed. NAME@FOLDER reads its files from a folder
openai/MODEL                   OpenAI, or with `api_base` any OpenAI-compatible server
"""

from functools import lru_cache

from ragbench.errors import ConfigError
from ragbench.retrievers.embedders.base import Embedder, Model, Vectors, by_index, clean, local_call
from ragbench.retrievers.embedders.local import LocalEmbedder


@lru_cache(maxsize=8)
def make_embedder(spec: str, api_base: str = "") -> Embedder:
    """Create an embedder. A process has one object for each spec, because loading is slow.

    Args:
        spec: `local`, `local:NAME`, `fastembed/NAME` or `openai/MODEL`.
        api_base: Address of the server of an `openai` embedder.

    Raises:
        ConfigError: The spec is unknown.
    """
    scheme, _, name = spec.partition(":")
    if scheme == "local":
        return LocalEmbedder(name)
    provider, _, model = spec.partition("/")
    if provider == "fastembed" and model:
        from ragbench.retrievers.embedders.fast import FastEmbedder

        return FastEmbedder(model)
    if provider == "openai" and model:
        from ragbench.retrievers.embedders.openai import OpenAIEmbedder

        return OpenAIEmbedder(model, api_base=api_base)
    raise ConfigError(
        f"unknown embedder {spec!r}; give local, local:NAME, fastembed/NAME or openai/MODEL"
    )
