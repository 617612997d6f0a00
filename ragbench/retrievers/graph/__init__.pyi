from .activation import (
    Bridging as Bridging,
)
from .base import (
    LMIndex as LMIndex,
    LMIndexSettings as LMIndexSettings,
)
from .communities import (
    Leiden as Leiden,
    graspologic as graspologic,
)
from .entities import (
    EntitySource as EntitySource,
    by_pattern as by_pattern,
    by_spacy as by_spacy,
    load_pipeline as load_pipeline,
    plain_names as plain_names,
)
from .gists import (
    GistIndex as GistIndex,
)
from .hippo import (
    HippoIndex as HippoIndex,
)
from .knowledge import (
    KnowledgeGraph as KnowledgeGraph,
)
from .light import (
    LightIndex as LightIndex,
)
from .linear import (
    LinearIndex as LinearIndex,
)
from .local_search import (
    Shares as Shares,
    chosen_reports as chosen_reports,
    chosen_units as chosen_units,
    tables as tables,
)
from .replies import (
    at_once as at_once,
)
