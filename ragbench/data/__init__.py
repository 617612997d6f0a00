"""Data sets: a loader each, one shape for all (`base.Dataset`), seeded splits.

A new data set is one module in `loaders` that registers its loader, and one line there.
"""

from ragbench.data import (
    loaders,
    synthetic,
)
from ragbench.data.base import (
    DATASETS,
    Dataset,
    DataSpec,
    for_optimizer,
    make_example,
    question_key,
)
from ragbench.data.clusters import find_clusters
from ragbench.data.load import (
    load_dataset,
)
from ragbench.data.readers import (
    detect_layout,
)
from ragbench.data.splits import (
    parse_fractions,
)
from ragbench.retrievers.sentences import (
    split_sentences,
)

__all__ = [
    "DATASETS",
    "DataSpec",
    "Dataset",
    "detect_layout",
    "find_clusters",
    "for_optimizer",
    "load_dataset",
    "loaders",
    "make_example",
    "parse_fractions",
    "question_key",
    "split_sentences",
    "synthetic",
]
