"""Indexes that an LM makes: of entities, facts, summaries and gists, read off the corpus once."""

from ragbench.retrievers.lm_index.base import LMIndex as LMIndex, LMIndexSettings as LMIndexSettings
from ragbench.retrievers.lm_index.hippo import (
    HippoIndex as HippoIndex,
    HippoSettings as HippoSettings,
)
from ragbench.retrievers.lm_index.knowledge import (
    KnowledgeGraph as KnowledgeGraph,
    KnowledgeSettings as KnowledgeSettings,
    chosen_passages as chosen_passages,
    chosen_reports as chosen_reports,
    fitting as fitting,
    tables as tables,
)
from ragbench.retrievers.lm_index.light import (
    LightIndex as LightIndex,
    LightSettings as LightSettings,
)
from ragbench.retrievers.lm_index.linear import (
    LinearIndex as LinearIndex,
    LinearSettings as LinearSettings,
    by_pattern as by_pattern,
    by_spacy as by_spacy,
    plain_names as plain_names,
)
from ragbench.retrievers.lm_index.rehearsal import IndexAhead as IndexAhead, rehearsed as rehearsed
from ragbench.retrievers.lm_index.replies import at_once as at_once
from ragbench.retrievers.lm_index.tree import (
    GistIndex as GistIndex,
    GistSettings as GistSettings,
    SummaryTree as SummaryTree,
    TreeSettings as TreeSettings,
)
