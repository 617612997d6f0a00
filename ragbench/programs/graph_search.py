"""The indexes of graph programs as retrievers: `--retriever hippo|linear|light|tree`.

HippoRAG's table includes IRCoT with its graph (Gutiérrez et al. 2025, arXiv:2502.14802). In the
same way, these retrievers show if an agent still needs a graph. The LM of the run builds the index
before the first question, like the program of that name, and its cost is recorded there. LM calls
of a search (helpful facts, entities, keywords) belong to the cost and call limit of the question
that searches. `tree` finds summaries as well as passages.
"""

from typing import Any, ClassVar

import dspy

from ragbench.context import current
from ragbench.errors import ConfigError
from ragbench.ledger import open_ledger
from ragbench.passages import Corpus, Passage
from ragbench.programs.core import Trace
from ragbench.programs.core.indexed import SearchedIndex
from ragbench.programs.core.question_state import Budget
from ragbench.programs.hippo_rag import HippoRAG, HippoSearch
from ragbench.programs.light_rag import LightRAG, LightSearch
from ragbench.programs.linear_rag import LinearRAG, LinearSearch
from ragbench.programs.tree_rag import TreeRAG, TreeSearch
from ragbench.retrievers.base import RETRIEVERS, Retriever

#: Limit of calls and searches if a search does not belong to a question.
_UNBOUNDED = 10**9


class GraphSearch(Retriever):
    """Search with the index of a graph program."""

    #: Program whose index is searched. `Settings` are its search knobs.
    program: ClassVar[type[SearchedIndex[Any]]]

    def __init__(self, corpus: Corpus, **settings: Any) -> None:
        super().__init__(corpus, **settings)
        self.finder = self.program(self, **self.settings.model_dump())

    def search(self, query: str, *, k: int) -> list[Passage]:
        """Return at most `k` passages for `query`, best first.

        Raises:
            ConfigError: No LM is active.
            dspy.LMError: A call failed.
        """
        k = min(k, len(self.corpus))
        if k < 1 or not query.strip():
            return []
        if dspy.settings.lm is None:
            raise ConfigError(
                f"Retriever {self.name} needs an LM, but none is active. Measure it in a run: "
                f"ragbench eval --program vanilla --retriever {self.name}"
            )
        trace = self._trace(query)
        with open_ledger():  # never part of the question's cost
            index = self.finder.index_of(self)
        if index.is_bare:
            trace.count("trivial_index")
        return self.finder.ranked(trace, index, k)

    def _trace(self, query: str) -> Trace:
        """Return a trace of `query` with the budget and counts of the current question."""
        asking = current().get(Trace)
        if asking is None:
            return Trace(query, self, Budget(_UNBOUNDED, _UNBOUNDED))
        trace = Trace(query, self, asking.budget)
        trace.counts = asking.counts
        return trace


@RETRIEVERS.register("hippo")
class HippoRetriever(GraphSearch):
    """Search by walks over a graph of facts, from those that the LM finds helpful (HippoRAG 2)."""

    name = "hippo"
    Settings = HippoSearch
    program = HippoRAG


@RETRIEVERS.register("linear")
class LinearRetriever(GraphSearch):
    """Search through entities and sentences, from the entities of a query (LinearRAG)."""

    name = "linear"
    Settings = LinearSearch
    program = LinearRAG


@RETRIEVERS.register("light")
class LightRetriever(GraphSearch):
    """Search by keywords of two levels over entities and relations (LightRAG)."""

    name = "light"
    Settings = LightSearch
    program = LightRAG


@RETRIEVERS.register("tree")
class TreeRetriever(GraphSearch):
    """Search a tree of summaries and passages (RAPTOR)."""

    name = "tree"
    Settings = TreeSearch
    program = TreeRAG
