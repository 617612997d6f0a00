"""From a spec to an embedder."""

from __future__ import annotations

from functools import lru_cache

from ragbench.errors import ConfigError
from ragbench.retrievers.embedders.base import Embedder


@lru_cache(maxsize=8)
def make_embedder(spec: str, api_base: str = "") -> Embedder:
    """The embedder of `spec`; the same object for the same spec, since loading a model is slow.

    Raises:
        ConfigError: a malformed spec, or a package that is not installed.
        LMSetupError: a missing key.
        ModelError: the model's bytes cannot be had.
    """
    scheme, _, name = spec.partition(":")
    if scheme == "local":
        from ragbench.retrievers.embedders.local import LocalEmbedder

        return LocalEmbedder(name)
    if scheme == "st" and name:
        from ragbench.retrievers.embedders.sentence_transformers import STEmbedder

        return STEmbedder(name)
    provider, _, model = spec.partition("/")
    if provider == "openai" and model:
        from ragbench.retrievers.embedders.openai import OpenAIEmbedder

        return OpenAIEmbedder(model, api_base=api_base)
    raise ConfigError(
        f"embedder {spec!r} is not understood; give local, local:NAME, openai/MODEL or st:NAME"
    )
