"""Embedders: what turns text into vectors, by spec.

local                          the default small model, by ONNX on this machine
local:NAME, local:/folder      another of `ragbench models list`, or a folder with
                               `model.onnx` and `tokenizer.json`
openai/MODEL                   OpenAI, or with `api_base` any OpenAI-compatible server
st:NAME                        a sentence-transformers model (optional extra)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
