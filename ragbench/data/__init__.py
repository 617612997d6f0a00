"""Data sets: one loader each, one common form (`base.Dataset`), seeded splits.

To add a data set, write one function in `loaders`. Its decorator `@data_set` holds the facts about
the set.
"""

from ragbench.data.base import DATASETS, Dataset, data_set, for_optimizer, make_example, title_of
from ragbench.data.clusters import cluster_keys, find_clusters, linked
from ragbench.data.load import default_view, detect_layout, load_dataset, without_defaults
from ragbench.data.splits import parse_fractions
from ragbench.settings import DataSettings
