"""Retrievers: one file each, behind one contract.

>>> from ragbench.retrievers import make_retriever
>>> retriever = make_retriever("bm25", corpus, k1=0.9)  # doctest: +SKIP
"""

from ragbench.retrievers import (
    bm25,
    dense,
    hybrid,
    rank_bm25,
    rerank,
)
from ragbench.retrievers.base import (
    RETRIEVERS,
    Corpus,
    Passage,
    PassageSource,
    PerQuestion,
    Progress,
    Retriever,
    View,
    digest_line,
)
from ragbench.retrievers.dense import (
    Dense,
)
from ragbench.retrievers.distractors.injection import (
    Distracting,
)
from ragbench.retrievers.engines import (
    lance,
    qdrant,
)
from ragbench.retrievers.factory import (
    make_retriever,
    make_spec,
    parse_spec,
    split_specs,
)
from ragbench.retrievers.granular import (
    GranularIndex,
    Match,
)
from ragbench.retrievers.hybrid import (
    reciprocal_ranks,
)
from ragbench.retrievers.store import (
    IndexStore,
)
from ragbench.retrievers.text import (
    TextSettings,
    Words,
)

__all__ = [
    "RETRIEVERS",
    "Corpus",
    "Dense",
    "Distracting",
    "GranularIndex",
    "IndexStore",
    "Match",
    "Passage",
    "PassageSource",
    "PerQuestion",
    "Progress",
    "Retriever",
    "TextSettings",
    "View",
    "Words",
    "bm25",
    "dense",
    "digest_line",
    "hybrid",
    "lance",
    "make_retriever",
    "make_spec",
    "parse_spec",
    "qdrant",
    "rank_bm25",
    "reciprocal_ranks",
    "rerank",
    "split_specs",
]
