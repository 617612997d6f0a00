from .base import Reranker as Reranker
from .factory import make_reranker as make_reranker
