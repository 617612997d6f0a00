"""Indexes that an LM makes: of entities, facts, summaries and gists, read off the corpus once."""

from ragbench.retrievers.lm_index.base import LMIndex, LMIndexSettings
from ragbench.retrievers.lm_index.hippo import HippoIndex
from ragbench.retrievers.lm_index.knowledge import (
    KnowledgeGraph,
    chosen_passages,
    chosen_reports,
    fitting,
    tables,
)
from ragbench.retrievers.lm_index.light import GraphSettings, LightIndex, LightSettings
from ragbench.retrievers.lm_index.linear import (
    LinearIndex,
    LinearSettings,
    by_pattern,
    by_spacy,
    plain_names,
)
from ragbench.retrievers.lm_index.replies import map_concurrently
from ragbench.retrievers.lm_index.tree import GistIndex, GistSettings, SummaryTree, TreeSettings
