"""Retrievers: one file each, behind one contract.

>>> from ragbench.retrievers import make_retriever
>>> retriever = make_retriever("bm25", corpus, k1=0.9)  # doctest: +SKIP
"""

# DSPy 3.4.0 leaves numpy half imported, and `numpy.typing` then fails.
from numpy import ndarray as _ndarray  # noqa: F401

from ragbench.retrievers import bm25 as bm25, dense as dense, hybrid as hybrid, rerank as rerank
from ragbench.retrievers.base import (
    RETRIEVERS as RETRIEVERS,
    Corpus as Corpus,
    Passage as Passage,
    PassageSource as PassageSource,
    PerQuestion as PerQuestion,
    Progress as Progress,
    Retriever as Retriever,
    View as View,
    digest_line as digest_line,
)
from ragbench.retrievers.bm25 import TextSettings as TextSettings, Words as Words
from ragbench.retrievers.dense import Dense as Dense
from ragbench.retrievers.distractors import Distracting as Distracting
from ragbench.retrievers.engines import lance as lance, qdrant as qdrant
from ragbench.retrievers.external import keep_retriever as keep_retriever
from ragbench.retrievers.factory import (
    make_retriever as make_retriever,
    make_spec as make_spec,
    parse_spec as parse_spec,
    split_specs as split_specs,
)
from ragbench.retrievers.granular import GranularIndex as GranularIndex, Match as Match
from ragbench.retrievers.store import IndexStore as IndexStore
