"""Programs with their own index, which an LM helps to build before the first question.

The indexes are imported by the programs that have one: their signatures take long to make.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import dspy

from ragbench.ledger import open_ledger
from ragbench.programs.core.program import CallKind, K, RAGProgram, finders_of
from ragbench.programs.core.text import Passages
from ragbench.programs.core.trace import Trace, role_lm
from ragbench.retrievers import Passage, PerQuestion, Progress, Retriever
from ragbench.signatures import role_of

if TYPE_CHECKING:
    from ragbench.retrievers.lm_index import LMIndex


class IndexProgram(RAGProgram[K]):
    """Answer a question with passages found through an index."""

    #: The predictor that reads the passages.
    answer: dspy.Module
    #: The class of the index, whose settings are among the program's knobs.
    Index: ClassVar[type[LMIndex]]
    _facts: Mapping[str, Any] = {}

    @property
    def index_kind(self) -> type[LMIndex]:
        """The index that these knobs need: only vectors if a variant omits the rest."""
        return self.Index

    def other_calls(self) -> Sequence[CallKind]:
        signatures = self.index_kind.asked(self.knobs)
        return [
            CallKind("index", signature.__name__, role_of(signature)) for signature in signatures
        ]

    def prepare(self, questions: Sequence[str] = (), progress: Progress | None = None) -> None:
        """Build or load the index of the corpus, or of the passages of each question.

        Args:
            questions: Texts of the questions of the run. Used in the distractor setting.
            progress: Progress callback.

        Raises:
            dspy.LMError: A call failed. The replies before it are cached.
        """
        from ragbench.retrievers.lm_index import map_concurrently

        retriever = self.retriever
        if not isinstance(retriever, PerQuestion):
            self._facts = self.index_of(retriever, progress).facts()
            return
        corpus = retriever.corpus
        questions = list(dict.fromkeys(questions))
        rows: dict[int, None] = {}
        for text in questions:
            for context in corpus.contexts_of(text):
                rows.update(dict.fromkeys(context))
        with dspy.context(lm=self._index_lm()):
            self.index_kind.read_ahead(corpus.subset(list(rows)), progress, **self._settings())
        indexes = map_concurrently(
            lambda text: self.index_of(retriever.for_question(text)),
            questions,
            progress,
            "indexes of questions",
        )
        self._facts = _summed([index.facts() for index in indexes])

    def index_of(self, retriever: Retriever, progress: Progress | None = None) -> Any:
        """Return the built index of the corpus that `retriever` searches.

        Args:
            retriever: Retriever of one corpus.
            progress: Progress callback.

        Raises:
            dspy.LMError: A call failed.
        """
        with dspy.context(lm=self._index_lm()):
            return self.index_kind.of(retriever.corpus, progress=progress, **self._settings())

    def opened(self, trace: Trace) -> Any:
        """Return the index for the question of `trace`, and record a step with its cost.

        Building an index is never part of the question's cost, even if it happens now.
        """
        with open_ledger():
            index = self.index_of(trace.retriever)
        if index.is_bare:
            trace.count("trivial_index")
        cost = {}
        for name, fact in index.facts().items():
            if name != "index_s":
                cost[name] = fact
        trace.step("index", notes=cost)  # without seconds, so that equal runs record equal steps
        return index

    def find(self, trace: Trace, hits: Callable[[], Passages], query: str = "") -> list[Passage]:
        """Search the program's own index and record the search.

        Args:
            trace: Trace of the question.
            hits: Function that searches the index.
            query: Query of the search. Empty: the question.
        """
        query = query or trace.question
        return trace.search_by(
            lambda: trace.retriever.presented(query, hits()), query, k=self.knobs.k
        )

    def index_facts(self) -> Mapping[str, Any]:
        """Return the cost and size of the index, summed over the indexes of all questions.

        Costs are `index_calls`, `index_tokens`, `index_usd` (None if a price is unknown) and
        `index_s`. They ignore caching. Empty before the index is built.
        """
        return self._facts

    def _index_lm(self) -> Any:
        return role_lm(next((call.role for call in self.other_calls()), ""))

    def _settings(self) -> dict[str, Any]:
        if self.other_calls():
            lm = str(getattr(self._index_lm(), "model", ""))
        else:
            lm = ""
        fields = self.index_kind.Settings.model_fields
        return {"lm": lm, **{name: getattr(self.knobs, name) for name in fields}}


class SearchedIndex(IndexProgram[K]):
    """Answer a question with passages of an index that other programs can search as well."""

    def solve(self, trace: Trace) -> dspy.Prediction:
        index = self.opened(trace)
        starts = self.starts(trace, index)
        passages = self.find(trace, lambda: self.reached(trace, index, starts, self.knobs.k))
        return self.finish(trace, self.answer, passages)

    def ranked(self, trace: Trace, index: Any, k: int) -> list[Passage]:
        """Return the passages of `index` that are best for the question, best first.

        Args:
            trace: Trace of the question.
            index: Index of the program.
            k: Maximum number of passages.
        """
        return self.reached(trace, index, self.starts(trace, index), k)

    def starts(self, trace: Trace, index: Any) -> Any:
        """Return the entry points of the search, if the LM or the question selects them.

        Args:
            trace: Trace of the question.
            index: The index.
        """

    @abstractmethod
    def reached(self, trace: Trace, index: Any, starts: Any, k: int) -> list[Passage]:
        """Return the passages that a search from `starts` ranks first.

        Args:
            trace: Trace of the question.
            index: Index of the program.
            starts: Entry points, from `starts`.
            k: Maximum number of passages.
        """


def index_programs(program: RAGProgram) -> list[IndexProgram[Any]]:
    """List the programs with an index that `program` uses.

    The list includes `program`, the programs that it asks, and those whose index its retriever
    searches.
    """
    programs: dict[int, IndexProgram[Any]] = {}
    if isinstance(program, IndexProgram):
        programs[id(program)] = program
    for finder in _finders(program.retriever):
        programs[id(finder)] = finder
    for inner in program.inside():
        for indexed in index_programs(inner):
            programs[id(indexed)] = indexed
    return list(programs.values())


def _finders(retriever: Retriever) -> list[IndexProgram[Any]]:
    """List the programs whose indexes `retriever` searches, set to its corpus."""
    finders: list[IndexProgram[Any]] = []
    for finder in finders_of(retriever):
        if isinstance(finder, IndexProgram):
            finder.retriever = retriever  # in the distractor setting, the passages of questions
            finders.append(finder)
    return finders


def prepare_all(
    program: RAGProgram, questions: Sequence[str] = (), progress: Progress | None = None
) -> None:
    """Prepare `program` for a run, and the indexes that its retriever searches.

    Args:
        program: Program of the run.
        questions: Texts of the questions.
        progress: Progress callback.
    """
    program.prepare(questions, progress)
    for finder in _finders(program.retriever):
        finder.prepare(questions, progress)


def index_facts(program: RAGProgram) -> Mapping[str, Any]:
    """Return the cost and size of the indexes of `program`. Empty if it has no index."""
    facts = [indexed.index_facts() for indexed in index_programs(program)]
    if len(facts) == 1:
        return facts[0]
    return _summed(facts)


def _summed(facts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Sum each number. The sum is None if a part is unknown."""
    sums: dict[str, Any] = {}
    for numbers in facts:
        for name, value in numbers.items():
            if isinstance(value, list):
                continue
            before = sums.get(name, 0)
            if value is None or before is None:
                sums[name] = None
            else:
                sums[name] = before + value
    return sums
