from .base import Embedder as Embedder, LocalCalls as LocalCalls, Vectors as Vectors, clean as clean
from .factory import make_embedder as make_embedder
from .local import (
    LocalEmbedder as LocalEmbedder,
    open_session as open_session,
    open_tokenizer as open_tokenizer,
)
