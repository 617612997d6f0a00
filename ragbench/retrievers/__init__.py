"""Retrievers: one file each, behind one contract.

>>> from ragbench.retrievers import make_retriever
>>> retriever = make_retriever("bm25", corpus, k1=0.9)  # doctest: +SKIP
"""

from ragbench.retrievers import bm25, dense, hybrid, rank_bm25, rerank
from ragbench.retrievers.base import RETRIEVERS, Corpus, Passage, PerQuestion, Retriever
from ragbench.retrievers.factory import make_retriever

__all__ = [
    "RETRIEVERS",
    "Corpus",
    "Passage",
    "PerQuestion",
    "Retriever",
    "bm25",
    "dense",
    "hybrid",
    "make_retriever",
    "rank_bm25",
    "rerank",
]
