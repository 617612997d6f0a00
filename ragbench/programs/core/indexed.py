"""Programs with an index of their own, which an LM helps to make before the first question."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import dspy
from pydantic import Field

from ragbench.context import current
from ragbench.ledger import open_ledger
from ragbench.programs.core.asking import role_lm
from ragbench.programs.core.program import IndexAhead, ProgramKnobs, RAGProgram
from ragbench.programs.core.trace import Trace
from ragbench.retrievers import Corpus, PerQuestion, Progress, Retriever
from ragbench.retrievers.graph import LMIndex, at_once


class IndexKnobs(ProgramKnobs):
    """Knobs of programs with an index of their own."""

    embedder: str = Field("local", description="local, local:NAME, openai/MODEL or st:NAME")
    embedder_base: str = Field("", description="server of an openai/ embedder, if not OpenAI's")


class IndexProgram(RAGProgram):
    """Answer a question with passages found through an index."""

    Index: ClassVar[type[LMIndex]]
    _facts: Mapping[str, Any] = {}

    @abstractmethod
    def index_settings(self) -> Mapping[str, Any]:
        """The settings of the index beside its embedder and its LM."""

    @property
    def index_role(self) -> str:
        """The role of the LM that makes the index; empty where none is asked."""
        return next((call.role for call in self.other_calls()), "")

    def prepare(self, progress: Progress | None = None) -> None:
        """Make or load the index of the corpus, or of the passages of each question ahead.

        Raises:
            dspy.LMError: a reply could not be had; those before it are kept.
        """
        retriever = self.retriever
        if not isinstance(retriever, PerQuestion):
            self._facts = self.index_of(retriever, progress).facts()
            return
        questions = list(dict.fromkeys(current().ahead))
        with dspy.context(lm=self._index_lm()):
            self.Index.read_ahead(self._corpus_ahead(), progress, **self._settings())
        made = at_once(
            lambda text: self.index_of(retriever.for_question(text)), questions, progress
        )
        self._facts = summed([index.facts() for index in made])

    def index_ahead(self) -> Sequence[IndexAhead]:
        """What is still to be read off the passages."""
        if not self.index_role:
            return ()
        with dspy.context(lm=self._index_lm()):
            index = self.Index(self._corpus_ahead(), **self._settings())
            ahead = index.ahead()
        return (IndexAhead(self.index_role, ahead.calls, ahead.tokens, ahead.kept, index.more),)

    def index_of(self, retriever: Retriever, progress: Progress | None = None) -> Any:
        """The index of the corpus that `retriever` searches, built.

        Raises:
            dspy.LMError: a reply could not be had.
        """
        with dspy.context(lm=self._index_lm()):
            return self.Index.of(retriever.corpus, progress=progress, **self._settings())

    def opened(self, trace: Trace) -> Any:
        """The index for the question of `trace`, noted as a step with what it took.

        One made only now is still no part of the question's cost.
        """
        with open_ledger():
            index = self.index_of(trace.retriever)
        cost = {name: fact for name, fact in index.facts().items() if name != "index_s"}
        trace.step("index", notes=cost)  # no time: the same run leaves the same steps
        return index

    def index_facts(self) -> Mapping[str, Any]:
        """What the index took and how large it is; those of all questions ahead together."""
        return self._facts

    def _corpus_ahead(self) -> Corpus:
        """The passages that are read: all, or those of the questions ahead."""
        corpus = self.retriever.corpus
        if not isinstance(self.retriever, PerQuestion):
            return corpus
        return corpus.subset(
            list({i: None for text in current().ahead for i in corpus.contexts[text]})
        )

    def _index_lm(self) -> Any:
        return role_lm(self.index_role)

    def _settings(self) -> dict[str, Any]:
        knobs = self.knobs
        asked = getattr(self._index_lm(), "model", "") if self.index_role else ""
        return {
            "embedder": knobs.embedder,
            "api_base": knobs.embedder_base,
            "lm": str(asked),
            **self.index_settings(),
        }


def summed(facts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The sum of each number; None where one is not known."""
    names = dict.fromkeys(name for one in facts for name in one)
    columns = {name: [one.get(name, 0) for one in facts] for name in names}
    return {name: None if None in column else sum(column) for name, column in columns.items()}
