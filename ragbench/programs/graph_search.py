"""The indexes of graph programs as retrievers of any other: `--retriever hippo|linear|light|tree`.

HippoRAG's own table has IRCoT over its graph (Gutiérrez et al. 2025, arXiv:2502.14802), and the
question whether an agent still needs a graph is put in the same way. The LM of the run makes the
index before the first question, as for the program of that name, and its cost is filed there; what
a search asks the LM (facts that help, entities, keywords) is part of the cost of the question that
searches, and of its limit of calls. `tree` finds summaries beside passages.
"""

from typing import Any, ClassVar

import dspy

from ragbench.context import current
from ragbench.errors import ConfigError
from ragbench.ledger import open_ledger
from ragbench.passages import Corpus, Passage
from ragbench.programs.core import Trace
from ragbench.programs.core.indexed import SearchedIndex
from ragbench.programs.core.trace import Budget
from ragbench.programs.hippo_rag import HippoRAG, HippoSearch
from ragbench.programs.light_rag import LightRAG, LightSearch
from ragbench.programs.linear_rag import LinearRAG, LinearSearch
from ragbench.programs.tree_rag import TreeRAG, TreeSearch
from ragbench.retrievers.base import RETRIEVERS, Retriever

#: Where a search is part of no question, nothing bounds what it asks.
_UNBOUNDED = 10**9


class GraphSearch(Retriever):
    """Search by the index of a graph program."""

    #: The program whose index it is; `Settings` are those of its knobs that decide a search.
    program: ClassVar[type[SearchedIndex[Any]]]

    def __init__(self, corpus: Corpus, **settings: Any) -> None:
        super().__init__(corpus, **settings)
        self.finder = self.program(self, **self.settings.model_dump())

    def search(self, query: str, *, k: int) -> list[Passage]:
        """At most `k` passages for `query`, best first.

        Raises:
            ConfigError: no LM is there to make the index and to search by it.
            dspy.LMError: a reply could not be had.
        """
        k = min(k, len(self.corpus))
        if k < 1 or not query.strip():
            return []
        if dspy.settings.lm is None:
            raise ConfigError(
                f"the retriever {self.name} asks an LM, and none is set; measure it by a run, such "
                f"as: ragbench eval --program vanilla --retriever {self.name}"
            )
        trace = self._trace(query)
        with open_ledger():  # made only now, it is still no part of the question's cost
            index = self.finder.index_of(self)
        if index.is_bare:
            trace.count("bare_index")
        return self.finder.ranked(trace, index, k)

    def _trace(self, query: str) -> Trace:
        """A trace of `query` that spends and counts for the question that searches, if any."""
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
    """Search through entities and sentences, from those that a query names (LinearRAG)."""

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
    """Search a tree of summaries, whose nodes stand beside the passages (RAPTOR)."""

    name = "tree"
    Settings = TreeSearch
    program = TreeRAG
