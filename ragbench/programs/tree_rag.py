"""Retrieval from a tree of summaries: RAPTOR's two methods and HIRO's.

RAPTOR: Sarthi et al. 2024 (arXiv:2401.18059). HIRO: Goel and Chandak 2024 (arXiv:2406.09979). The
LM of the run builds the tree (`ragbench.retrievers.lm_index.tree`) from the retriever's corpus.

- `collapsed`: the `k` nodes of any layer nearest to the question.
- `traversal`: the `k` nearest nodes of the top layer, then of their children, and so on down.
- `hiro`: a descent while similarity to the question increases. A node above `selection` is replaced
  with its children above `selection` that are better by `delta`. If some children fail, the parent
  stays too (`keep_parent=none_pass`: only if all fail). If no node exceeds `selection`, the descent
  starts at the best one, counted as `hiro_empty`.
"""

from typing import Any, Literal

import dspy
from pydantic import Field

from ragbench.programs.core import PROGRAMS, ProgramKnobs, Trace, bounded, predict
from ragbench.programs.core.indexed import SearchedIndex
from ragbench.programs.core.text import numbered
from ragbench.retrievers import Passage
from ragbench.retrievers.lm_index import SummaryTree, TreeSettings, fitting, tree as tree_search
from ragbench.retrievers.lm_index.base import best_first
from ragbench.signatures import AnswerFromContext


class TreeSearch(TreeSettings):
    """Knobs of a search over the tree."""

    mode: Literal["collapsed", "traversal", "hiro"] = Field(
        "collapsed", description="search method, set by the variant"
    )
    selection: float = bounded(0.3, -1, 2, "hiro: similarity a node must exceed")
    delta: float = bounded(0.015, -2, 2, "hiro: rise that a child must exceed")
    keep_parent: Literal["any_fail", "none_pass"] = Field(
        "any_fail", description="hiro: keep a node if some children fail, or only if all do"
    )


class TreeRAGKnobs(TreeSearch, ProgramKnobs):
    """Knobs of `tree_rag`."""

    k: int = bounded(10, 1, 100, "nodes (traversal: of each layer)")
    context_tokens: int = bounded(3500, 100, 1_000_000, "tokens of nodes in context")


@PROGRAMS.register("tree_rag")
class TreeRAG(SearchedIndex[TreeRAGKnobs]):
    """Search a tree of summaries once, then answer from its nodes."""

    Index = SummaryTree
    variants = {  # noqa: RUF012
        "collapsed": {},
        "traversal": {"mode": "traversal", "k": 5},
        "hiro": {"mode": "hiro"},
    }

    def make_predictors(self) -> None:
        self.answer = predict(AnswerFromContext)

    def solve(self, trace: Trace) -> dspy.Prediction:
        tree = self.opened(trace)
        layers: list[int] = []
        passages = self.find(trace, lambda: self._nodes(trace, tree, layers, self.knobs.k))
        trace.step("search", input=trace.question, of=passages, notes={"layers": layers})
        return self.finish(trace, self.answer, passages)

    def reached(self, trace: Trace, index: SummaryTree, starts: None, k: int) -> list[Passage]:
        return self._nodes(trace, index, [], k)

    def _nodes(self, trace: Trace, tree: SummaryTree, layers: list[int], k: int) -> list[Passage]:
        """Return the nodes that fit the context, at least one. Add their layers to `layers`."""
        scores = tree.scores(trace.question)
        nodes = self._chosen(trace, scores, tree.shape, k)
        passages = [tree.passage(node, float(scores[node])) for node in nodes]
        lines = numbered(passages)
        fit = len(fitting(lines, self.knobs.context_tokens)) or 1
        layers += list(map(tree.layer_of, nodes[:fit]))
        return passages[:fit]

    def _chosen(self, trace: Trace, scores: Any, shape: tree_search.Shape, k: int) -> list[int]:
        knobs = self.knobs
        if knobs.mode == "collapsed":
            return best_first(scores, k)
        if knobs.mode == "traversal":
            return tree_search.traversal(scores, shape, k=k)
        if not any(scores[node] > knobs.selection for node in shape.layers[-1]):
            trace.count("hiro_empty")
        return tree_search.hiro(
            scores,
            shape,
            selection=knobs.selection,
            delta=knobs.delta,
            keep_parent=knobs.keep_parent,
        )


@PROGRAMS.register("raptor")
class RAPTOR(TreeRAG):
    """Search a tree of summaries once, then answer from its nodes."""

    variants = {  # noqa: RUF012
        "collapsed": {},
        "traversal": {"mode": "traversal", "k": 5},
    }
