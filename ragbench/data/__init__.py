"""Data sets: a loader each, one shape for all (`base.Dataset`), seeded splits.

A new data set is one function in `loaders` that registers itself as its loader.
"""

from ragbench.data.base import (
    DATASETS,
    Dataset,
    DataSpec,
    for_optimizer,
    make_example,
    question_key,
)
from ragbench.data.load import default_view, detect_layout, load_dataset, without_defaults
from ragbench.data.splits import find_clusters, parse_fractions
