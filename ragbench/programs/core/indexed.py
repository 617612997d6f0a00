"""Programs with an index of their own, which an LM helps to make before the first question."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import dspy

from ragbench.ledger import open_ledger
from ragbench.programs.core.program import CallKind, K, RAGProgram, finders_of
from ragbench.programs.core.text import Passages
from ragbench.programs.core.trace import Trace, role_lm
from ragbench.retrievers import Passage, PerQuestion, Progress, Retriever
from ragbench.retrievers.lm_index import LMIndex, at_once
from ragbench.signatures import role_of


class IndexProgram(RAGProgram[K]):
    """Answer a question with passages found through an index."""

    #: The predictor that reads the passages.
    answer: dspy.Module
    #: The class of the index, whose settings are among the program's knobs.
    Index: ClassVar[type[LMIndex]]
    _facts: Mapping[str, Any] = {}

    @property
    def index_kind(self) -> type[LMIndex]:
        """The index that these knobs need: vectors alone where a variant leaves the rest out."""
        return self.Index

    def other_calls(self) -> Sequence[CallKind]:
        signatures = self.index_kind.asked(self.knobs)
        return [
            CallKind("index", signature.__name__, role_of(signature)) for signature in signatures
        ]

    def prepare(self, questions: Sequence[str] = (), progress: Progress | None = None) -> None:
        """Make or load the index of the corpus, or of the passages of each of `questions`.

        Raises:
            dspy.LMError: a reply could not be had; those before it are kept.
        """
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
        indexes = at_once(
            lambda text: self.index_of(retriever.for_question(text)),
            questions,
            progress,
            "indexes of questions",
        )
        self._facts = _summed([index.facts() for index in indexes])

    def index_of(self, retriever: Retriever, progress: Progress | None = None) -> Any:
        """The index of the corpus that `retriever` searches, built.

        Raises:
            dspy.LMError: a reply could not be had.
        """
        with dspy.context(lm=self._index_lm()):
            return self.index_kind.of(retriever.corpus, progress=progress, **self._settings())

    def opened(self, trace: Trace) -> Any:
        """The index for the question of `trace`, noted as a step with what it took.

        One made only now is still no part of the question's cost.
        """
        with open_ledger():
            index = self.index_of(trace.retriever)
        if index.is_bare:
            trace.count("bare_index")
        cost = {}
        for name, fact in index.facts().items():
            if name != "index_s":
                cost[name] = fact
        trace.step("index", notes=cost)  # no time: the same run leaves the same steps
        return index

    def find(self, trace: Trace, hits: Callable[[], Passages], query: str = "") -> list[Passage]:
        query = query or trace.question
        return trace.search_by(
            lambda: trace.retriever.presented(query, hits()), query, k=self.knobs.k
        )

    def index_facts(self) -> Mapping[str, Any]:
        """What the index took and how large it is; those of all questions together.

        `index_calls`, `index_tokens`, `index_usd` (None where a price is unknown) and `index_s`,
        as if nothing had been kept or cached. Empty before it is made.
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
        """At most `k` passages of `index` for the question of `trace`, best first."""
        return self.reached(trace, index, self.starts(trace, index), k)

    def starts(self, trace: Trace, index: Any) -> Any:
        """Where in `index` the search begins, if the LM or the question decides it."""

    @abstractmethod
    def reached(self, trace: Trace, index: Any, starts: Any, k: int) -> list[Passage]:
        """The passages that a search from `starts` ranks first."""


def index_programs(program: RAGProgram) -> list[IndexProgram[Any]]:
    """`program`, those that it asks and those that it searches by, if they have an index."""
    found: dict[int, IndexProgram[Any]] = {}
    if isinstance(program, IndexProgram):
        found[id(program)] = program
    for finder in _finders(program.retriever):
        found[id(finder)] = finder
    for inner in program.inside():
        for indexed in index_programs(inner):
            found[id(indexed)] = indexed
    return list(found.values())


def _finders(retriever: Retriever) -> list[IndexProgram[Any]]:
    """The programs by whose indexes `retriever` searches, over what it searches."""
    found: list[IndexProgram[Any]] = []
    for finder in finders_of(retriever):
        if isinstance(finder, IndexProgram):
            finder.retriever = retriever  # in the distractor setting, the passages of questions
            found.append(finder)
    return found


def prepare_all(
    program: RAGProgram, questions: Sequence[str] = (), progress: Progress | None = None
) -> None:
    """Prepare `program` for `questions`, and the indexes by which its retriever searches."""
    program.prepare(questions, progress)
    for finder in _finders(program.retriever):
        finder.prepare(questions, progress)


def index_facts(program: RAGProgram) -> Mapping[str, Any]:
    """What the indexes of `program` took and how large they are; empty for none."""
    facts = [indexed.index_facts() for indexed in index_programs(program)]
    if len(facts) == 1:
        return facts[0]
    return _summed(facts)


def _summed(facts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The sum of each number; None where one is not known."""
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
