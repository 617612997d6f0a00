"""Retrieval from a tree of summaries: RAPTOR's two ways and HIRO's.

RAPTOR: Sarthi et al. 2024 (arXiv:2401.18059). HIRO: Goel and Chandak 2024 (arXiv:2406.09979). The
tree (`ragbench.retrievers.tree`) is made of the retriever's corpus by the LM of the run, once, and
kept; how the retriever itself searches is not used. Variants:

- `collapsed`: the `k` nodes of any layer nearest to the question.
- `traversal`: the `k` nearest nodes of the top layer, then of their children, and so on down.
- `hiro`: a descent while similarity to the question keeps rising. A node above `selection` is
  replaced by those of its children that are above it too and better than their parent by `delta`;
  where some children fail, their parent stays as well (`keep_parent=none_pass`: only where all do).
  Both thresholds depend on the embedder: tune them on a development set.

`mimic_reference_bug` does what HIRO's published code does instead: distances stand where
similarities are meant, a descent that ends in a passage keeps nothing, and nothing limits the size.
Where no node passes `selection`, the best one starts alone (its code would find nothing), which is
counted as `hiro_empty`.

`raptor` is the same without HIRO, under the name by which tables list it; its variant `arag` reads
five nodes, as every baseline of A-RAG's table (Du et al. 2026).

One tree stands for a whole corpus here, where the papers make one per document; over unrelated
paragraphs its summaries are weak. A question's own few passages (the distractor setting) make a
tree of one layer unless there are more than `top_size` of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import dspy
from pydantic import Field

from ragbench.context import current
from ragbench.ledger import open_ledger
from ragbench.programs.core import (
    PROGRAMS,
    Described,
    IndexAhead,
    ProgramKnobs,
    RAGProgram,
    Trace,
    predict,
    render,
    role_lm,
)
from ragbench.retrievers import Passage, PerQuestion, Progress, Retriever
from ragbench.retrievers.tree import SummaryTree, search as tree_search
from ragbench.signatures import AnswerFromContext, Summarize, role_of
from ragbench.tokens import estimate_tokens

_UNLIMITED = 10**9
_SUMMARIES = Described("index", Summarize.__name__, role_of(Summarize))


class TreeRAGKnobs(ProgramKnobs):
    """Knobs of `tree_rag`."""

    k: int = Field(10, ge=1, le=100, description="nodes (traversal: of each layer)")
    context_tokens: int = Field(
        3500, ge=100, le=1_000_000, description="tokens of nodes shown in one call"
    )
    mode: Literal["collapsed", "traversal", "hiro"] = Field(
        "collapsed", description="how the tree is searched; set by the variant"
    )
    start_layer: int = Field(
        -1, ge=-1, le=20, description="layer to descend from; -1 is the top, 0 the passages"
    )
    selection: float = Field(0.3, ge=-1, le=2, description="hiro: similarity a node must exceed")
    delta: float = Field(0.015, ge=-2, le=2, description="hiro: rise that a child must exceed")
    keep_parent: Literal["any_fail", "none_pass"] = Field(
        "any_fail", description="hiro: keep a node if some children fail, or only if all do"
    )
    mimic_reference_bug: bool = Field(False, description="hiro: as its published code")
    embedder: str = Field("local", description="local, local:NAME, openai/MODEL or st:NAME")
    embedder_base: str = Field("", description="server of an openai/ embedder, if not OpenAI's")
    cluster_tokens: int = Field(3500, ge=50, le=100_000, description="tokens of one cluster")
    summary_words: int = Field(75, ge=5, le=2000, description="words of a summary")
    max_layers: int = Field(5, ge=0, le=20, description="layers of summaries at the most")
    top_size: int = Field(11, ge=1, le=1000, description="a layer this small is the top")


@PROGRAMS.register("tree_rag")
class TreeRAG(RAGProgram):
    """Search a tree of summaries once, then answer from its nodes."""

    name = "tree_rag"
    family = "graph"
    paper = "arXiv:2401.18059, arXiv:2406.09979"
    calls = "1 (index: one per cluster)"
    Knobs = TreeRAGKnobs
    variants = {  # noqa: RUF012
        "collapsed": {},
        "traversal": {"mode": "traversal", "k": 5},
        "hiro": {"mode": "hiro"},
    }

    _facts: Mapping[str, Any] = {}

    def __init__(self, retriever: Retriever, **knobs: object) -> None:
        super().__init__(retriever, **knobs)
        self.answer = predict(AnswerFromContext)

    def other_calls(self) -> Sequence[Described]:
        """The summaries of the tree."""
        return (_SUMMARIES,)

    def index_ahead(self) -> Sequence[IndexAhead]:
        """The first layer of summaries of a pooled corpus."""
        corpus, knobs = self.retriever.corpus, self.knobs
        if isinstance(self.retriever, PerQuestion) or len(corpus) <= knobs.top_size:
            return ()
        tokens = sum(estimate_tokens(str(passage)) for passage in corpus)
        calls = -(-tokens // knobs.cluster_tokens)
        more = "more where clusters overlap, and for higher layers; none if the tree is kept"
        return (IndexAhead(_SUMMARIES.role, calls, tokens, 0, more),)

    def prepare(self, progress: Progress | None = None) -> None:
        """Make or load the tree of the pooled corpus; its calls are filed in the current ledger."""
        if not isinstance(self.retriever, PerQuestion):
            self._facts = self.tree_of(self.retriever, progress).facts()

    def index_facts(self) -> Mapping[str, Any]:
        """What the tree of a pooled corpus took, once it is made."""
        return self._facts

    def tree_of(self, retriever: Retriever, progress: Progress | None = None) -> SummaryTree:
        """The tree of the corpus that `retriever` searches, by the LM of the role "extract".

        Raises:
            dspy.LMError: a summary could not be had.
        """
        knobs = self.knobs
        lm = role_lm(_SUMMARIES.role)
        with dspy.context(lm=lm):
            return SummaryTree.of(
                retriever.corpus,
                progress=progress,
                lm=str(getattr(lm, "model", "")),
                embedder=knobs.embedder,
                api_base=knobs.embedder_base,
                cluster_tokens=knobs.cluster_tokens,
                summary_words=knobs.summary_words,
                max_layers=knobs.max_layers,
                top_size=knobs.top_size,
            )

    def solve(self, trace: Trace) -> dspy.Prediction:
        """One search of the tree, one call."""
        if current().rehearsal:  # which has no summaries made up: passages stand for the nodes
            passages = _fitting(
                trace.search(trace.question, k=self.knobs.k), self.knobs.context_tokens
            )
        else:
            passages = self._searched(trace)
        limit = _UNLIMITED if self.knobs.mimic_reference_bug else self.knobs.context_tokens
        context = render(passages, max_tokens=limit)
        answer = trace.answer(self.answer, last=True, context=context, question=trace.question)
        return trace.prediction(answer, "answered", passages=passages)

    def _searched(self, trace: Trace) -> list[Passage]:
        with open_ledger():  # a tree made only now is still no part of the question's cost
            tree = self.tree_of(trace.retriever)
        cost = {name: fact for name, fact in tree.facts().items() if name != "index_s"}
        trace.step("index", notes=cost)  # no time: the same run leaves the same steps
        nodes: list[Passage] = []

        def find() -> list[Passage]:
            nodes.extend(self._nodes(trace, tree))
            return trace.presented(trace.question, nodes)

        passages = trace.search_by(find, trace.question, k=self.knobs.k)
        layers = [tree.layer_of(tree.node(passage.pid)) for passage in nodes]
        trace.step(
            "search",
            input=trace.question,
            pids=tuple(passage.pid for passage in passages),
            notes={"layers": layers},
        )
        return passages

    def force(self, trace: Trace) -> str:
        """An answer without passages, where not even one search is allowed."""
        return trace.answer(self.answer, last=True, context=[], question=trace.question)

    def _nodes(self, trace: Trace, tree: SummaryTree) -> list[Passage]:
        scores = tree.scores(trace.question)
        chosen = self._selected(scores, tree.shape)
        if chosen.empty:
            trace.count("hiro_empty")
        passages = [tree.passage(node, float(scores[node])) for node in chosen.nodes]
        if self.knobs.mimic_reference_bug:
            return passages
        return _fitting(passages, self.knobs.context_tokens)

    def _selected(self, scores: Any, shape: tree_search.Shape) -> tree_search.Selection:
        knobs = self.knobs
        if knobs.mode == "collapsed":
            return tree_search.collapsed(scores, k=knobs.k)
        if knobs.mode == "traversal":
            return tree_search.traversal(scores, shape, k=knobs.k, start_layer=knobs.start_layer)
        thresholds = {
            "selection": knobs.selection,
            "delta": knobs.delta,
            "start_layer": knobs.start_layer,
        }
        if knobs.mimic_reference_bug:
            return tree_search.hiro_reference(scores, shape, **thresholds)
        return tree_search.hiro(scores, shape, keep_parent=knobs.keep_parent, **thresholds)


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
