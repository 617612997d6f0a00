"""Retrievers: one file each, behind one contract.

>>> from ragbench.retrievers import make_retriever
>>> retriever = make_retriever("bm25", corpus, k1=0.9)  # doctest: +SKIP
"""

# DSPy 3.4.0 leaves numpy half imported, and `numpy.typing` then fails.
from numpy import ndarray as _ndarray

from ragbench.passages import Corpus, Passage
from ragbench.retrievers import bm25, dense, hybrid, qdrant, rank_bm25, rerank
from ragbench.retrievers.base import RETRIEVERS, PerQuestion, Progress, Retriever, progress_of
from ragbench.retrievers.bm25 import words_of
from ragbench.retrievers.dense import Dense
from ragbench.retrievers.distractors import Distracting
from ragbench.retrievers.external import keep_retriever
from ragbench.retrievers.factory import make_retriever, make_spec, parse_spec, split_specs
from ragbench.retrievers.granular import GranularIndex, Match
from ragbench.retrievers.store import IndexStore
