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
from ragbench.data.clusters import (
    find_clusters as find_clusters,
)
from ragbench.data.load import (
    default_view as default_view,
    load_dataset as load_dataset,
    without_defaults as without_defaults,
)
from ragbench.data.readers import (
    detect_layout as detect_layout,
)
from ragbench.data.splits import (
    parse_fractions as parse_fractions,
)
