"""Data sets: a loader each, one shape for all (`base.Dataset`), seeded splits.

A new data set is one function in `loaders`; `@data_set` before it has all that is known of the set.
"""

from ragbench.data.base import DATASETS, Dataset, data_set, for_optimizer, make_example, title_of
from ragbench.data.clusters import cluster_keys, find_clusters, linked
from ragbench.data.load import default_view, detect_layout, load_dataset, without_defaults
from ragbench.data.splits import parse_fractions
from ragbench.settings import DataSettings
