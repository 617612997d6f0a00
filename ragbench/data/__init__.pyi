from .base import (
    DATASETS as DATASETS,
    Dataset as Dataset,
    DataSpec as DataSpec,
    for_optimizer as for_optimizer,
    make_example as make_example,
    question_key as question_key,
)
from .clusters import (
    find_clusters as find_clusters,
)
from .defaults import (
    default_view as default_view,
    without_defaults as without_defaults,
)
from .load import (
    load_dataset as load_dataset,
)
from .readers import (
    detect_layout as detect_layout,
)
from .splits import (
    parse_fractions as parse_fractions,
)
