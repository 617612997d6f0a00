"""Data sets: a loader each, one shape for all (`base.Dataset`), seeded splits.

A new data set is one module in `loaders` that registers its loader, and one line there.
"""

from ragbench.data.base import (
    DATASETS as DATASETS,
    Dataset as Dataset,
    DataSpec as DataSpec,
    for_optimizer as for_optimizer,
    make_example as make_example,
    question_key as question_key,
)
from ragbench.data.load import (
    default_view as default_view,
    detect_layout as detect_layout,
    load_dataset as load_dataset,
    without_defaults as without_defaults,
)
from ragbench.data.splits import find_clusters as find_clusters, parse_fractions as parse_fractions
