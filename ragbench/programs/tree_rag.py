"""Retrieval from a tree of summaries: RAPTOR's two ways and HIRO's.

RAPTOR: Sarthi et al. 2024 (arXiv:2401.18059). HIRO: Goel and Chandak 2024 (arXiv:2406.09979). The
tree (`ragbench.retrievers.lm_index.tree`) is made of the retriever's corpus by the LM of the run,
once, and kept; how the retriever itself searches is not used. Variants:

- `collapsed`: the `k` nodes of any layer nearest to the question.
- `traversal`: the `k` nearest nodes of the top layer, then of their children, and so on down.
- `hiro`: a descent while similarity to the question keeps rising. A node above `selection` is
  replaced by those of its children that are above it too and better than their parent by `delta`;
  where some children fail, their parent stays as well (`keep_parent=none_pass`: only where all do).
  Both thresholds depend on the embedder: tune them on a development set.

Where no node passes `selection`, the best one starts alone, which is counted as `hiro_empty`. The
published code compares distances with thresholds meant for similarities and keeps no leaf at the
end of a descent; that is not copied.

`raptor` is the same without HIRO, under the name by which tables list it; its variant `arag` reads
five nodes, as every baseline of A-RAG's table (Du et al. 2026).

One tree stands for a whole corpus here, where the papers make one per document; over unrelated
paragraphs its summaries are weak. A question's own few passages (the distractor setting) make a
tree of one layer unless there are more than `top_size` of them.
"""

from collections.abc import Sequence
from typing import Any, Literal

import dspy
from pydantic import Field

from ragbench.programs.core import PROGRAMS, IndexProgram, ProgramKnobs, Trace, predict
from ragbench.retrievers import Passage, Retriever
from ragbench.retrievers.lm_index import SummaryTree, TreeSettings, tree as tree_search
from ragbench.signatures import AnswerFromContext
from ragbench.tokens import estimate_tokens


class TreeRAGKnobs(TreeSettings, ProgramKnobs):
    """Knobs of `tree_rag`."""

    k: int = Field(10, ge=1, le=100, description="nodes (traversal: of each layer)")
    context_tokens: int = Field(
        3500, ge=100, le=1_000_000, description="tokens of nodes shown in one call"
    )
    mode: Literal["collapsed", "traversal", "hiro"] = Field(
        "collapsed", description="how the tree is searched; set by the variant"
    )
    selection: float = Field(0.3, ge=-1, le=2, description="hiro: similarity a node must exceed")
    delta: float = Field(0.015, ge=-2, le=2, description="hiro: rise that a child must exceed")
    keep_parent: Literal["any_fail", "none_pass"] = Field(
        "any_fail", description="hiro: keep a node if some children fail, or only if all do"
    )


@PROGRAMS.register("tree_rag")
class TreeRAG(IndexProgram[TreeRAGKnobs]):
    """Search a tree of summaries once, then answer from its nodes."""

    name = "tree_rag"
    family = "graph"
    paper = "arXiv:2401.18059, arXiv:2406.09979"
    calls = "1 (index: one per cluster)"
    Index = SummaryTree
    variants = {  # noqa: RUF012
        "collapsed": {},
        "traversal": {"mode": "traversal", "k": 5},
        "hiro": {"mode": "hiro"},
    }

    def __init__(self, retriever: Retriever, **knobs: object) -> None:
        super().__init__(retriever, **knobs)
        self.answer = predict(AnswerFromContext)

    def solve(self, trace: Trace) -> dspy.Prediction:
        """One search of the tree, one call."""
        tree = self.opened(trace)
        nodes: list[int] = []

        def find() -> list[Passage]:
            passages = self._nodes(trace, tree, nodes)
            return trace.presented(trace.question, passages)

        passages = trace.search_by(find, trace.question, k=self.knobs.k)
        trace.step(
            "search",
            input=trace.question,
            pids=tuple(passage.pid for passage in passages),
            notes={"layers": [tree.layer_of(node) for node in nodes]},
        )
        answer = self.answer_from(trace, self.answer, passages)
        return trace.prediction(answer, "answered", passages=passages)

    def force(self, trace: Trace) -> str:
        """An answer without passages, where not even one search is allowed."""
        return trace.answer(self.answer, last=True, context=[], question=trace.question)

    def _nodes(self, trace: Trace, tree: SummaryTree, nodes: list[int]) -> list[Passage]:
        """What is found, as passages; `nodes` gets their numbers."""
        scores = tree.scores(trace.question)
        chosen = self._selected(scores, tree.shape)
        if chosen.empty:
            trace.count("hiro_empty")
        passages = [tree.passage(node, float(scores[node])) for node in chosen.nodes]
        passages = _fitting(passages, self.knobs.context_tokens)
        nodes += chosen.nodes[: len(passages)]
        return passages

    def _selected(self, scores: Any, shape: tree_search.Shape) -> tree_search.Selection:
        knobs = self.knobs
        if knobs.mode == "collapsed":
            return tree_search.collapsed(scores, k=knobs.k)
        if knobs.mode == "traversal":
            return tree_search.traversal(scores, shape, k=knobs.k)
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

    name = "raptor"
    paper = "arXiv:2401.18059"
    variants = {  # noqa: RUF012
        "collapsed": {},
        "traversal": {"mode": "traversal", "k": 5},
        "arag": {"k": 5},
    }


def _fitting(passages: Sequence[Passage], max_tokens: int) -> list[Passage]:
    """The first passages that fit whole, and at least one."""
    kept: list[Passage] = []
    for number, passage in enumerate(passages, start=1):
        max_tokens -= estimate_tokens(f"[{number}] {passage}")
        if kept and max_tokens < 0:
            break
        kept.append(passage)
    return kept
