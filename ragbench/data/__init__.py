"""Data sets: a loader each, one shape for all (`base.Dataset`), seeded splits.

A new data set is one module that registers its loader, and one line here.
"""

from ragbench.data import chunked, custom, multihop, musique, synthetic
from ragbench.data.base import DATASETS, Dataset, DataSpec, for_optimizer, make_example
from ragbench.data.load import load_dataset, spec_fingerprint

__all__ = [
    "DATASETS",
    "DataSpec",
    "Dataset",
    "chunked",
    "custom",
    "for_optimizer",
    "load_dataset",
    "make_example",
    "multihop",
    "musique",
    "spec_fingerprint",
    "synthetic",
]
