from .activation import (
    Bridging as Bridging,
)
from .base import (
    LMIndex as LMIndex,
    LMIndexSettings as LMIndexSettings,
)
from .entities import (
    EntitySource as EntitySource,
    by_pattern as by_pattern,
    by_spacy as by_spacy,
    load_pipeline as load_pipeline,
    plain_names as plain_names,
)
from .hippo import (
    HippoIndex as HippoIndex,
)
from .linear import (
    LinearIndex as LinearIndex,
)
from .replies import (
    at_once as at_once,
)
