"""Rerankers: what scores a query against a few passages, by spec.

none                      keeps the order
maxsim, maxsim:NAME       late interaction over a local embedder's token vectors
cross-encoder:NAME        a sentence-transformers cross-encoder (optional extra)
cross-encoder:/folder     `model.onnx` and `tokenizer.json` of one
http://... or https://... a rerank endpoint, up to and without `/rerank`
lm                        the LM of the run orders the passages
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
