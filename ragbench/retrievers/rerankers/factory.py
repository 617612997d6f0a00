"""From a spec to a reranker."""

from __future__ import annotations

from ragbench.errors import ConfigError
from ragbench.retrievers.rerankers.base import Reranker


def make_reranker(spec: str, model: str = "") -> Reranker | None:
    """The reranker of `spec`, None for `none`; `model` is what an endpoint is asked for.

    Raises:
        ConfigError: a malformed spec, or a package that is not installed.
        ModelError: the model's bytes cannot be had.
    """
    scheme, _, name = spec.partition(":")
    if spec == "none":
        return None
    if scheme == "maxsim":
        from ragbench.retrievers.rerankers.maxsim import MaxSim

        return MaxSim(name)
    if scheme == "cross-encoder" and name:
        from ragbench.retrievers.rerankers.cross_encoder import CrossEncoder, OnnxCrossEncoder

        return OnnxCrossEncoder(name) if name.startswith((".", "/", "~")) else CrossEncoder(name)
    if scheme in ("http", "https"):
        from ragbench.retrievers.rerankers.http import HTTPReranker

        return HTTPReranker(spec, model)
    if spec == "lm":
        from ragbench.retrievers.rerankers.listwise import Listwise

        return Listwise()
    raise ConfigError(
        f"reranker {spec!r} is not understood; give none, maxsim, cross-encoder:NAME, "
        "an http address or lm"
    )
