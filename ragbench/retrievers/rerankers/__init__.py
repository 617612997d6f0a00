"""Rerankers: what scores a query against a few passages, by spec.

none                      keeps the order
maxsim, maxsim:NAME       late interaction over a local embedder's token vectors
cross-encoder:NAME        a sentence-transformers cross-encoder (optional extra)
cross-encoder:/folder     `model.onnx` and `tokenizer.json` of one
http://... or https://... a rerank endpoint, up to and without `/rerank`
lm                        the LM of the run orders the passages
"""

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


__all__ = ["Reranker", "make_reranker"]
