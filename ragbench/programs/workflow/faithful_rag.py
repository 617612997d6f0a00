"""FaithfulRAG: match the model's memory against the passages before it writes the answer.

Zhang et al. 2025 (arXiv:2506.08938). The model lists the facts that the question needs, writes a
short passage from memory and splits it into facts. The pieces of the retrieved text nearest to
these facts are shown with the passages. If memory disagrees, the answer follows the passages.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import dspy
from pydantic import Field

from ragbench import signatures
from ragbench.programs import core
from ragbench.programs.core import (
    PROGRAMS,
    Passages,
    ProgramKnobs,
    RAGProgram,
    Trace,
    bounded,
    predict,
)
from ragbench.retrievers import Passage
from ragbench.retrievers.embedders import make_embedder

_BRACKETS = re.compile(r"\s*(?:\([^()\d]*\)|\[[^\[\]\d]*\])")


class FaithfulRAGKnobs(ProgramKnobs):
    """Knobs of `faithful_rag`."""

    align: bool = Field(True, description="show the pieces nearest to the remembered facts")
    self_think: bool = Field(True, description="instruct that passages override memory")
    cot: Literal["normal", "scheduled", "none"] = Field(
        "normal", description="reasoning before the answer: free, in stages, or none"
    )
    sent_topk: int = bounded(5, 1, 100, "pieces per remembered fact")
    chunk_topk: int = bounded(5, 1, 100, "pieces shown in all")
    piece_words: int = bounded(20, 1, 500, "words of a piece")
    embedder: str = Field("local", description="local, local:NAME or openai/MODEL")
    embedder_base: str = Field("", description="server of an openai/ embedder, if not OpenAI's")


@PROGRAMS.register("faithful_rag")
class FaithfulRAG(RAGProgram[FaithfulRAGKnobs]):
    """Write down what memory says, find the pieces of the passages about it, then answer."""

    variants = {"official": {}, "arag": {"k": 5}}  # noqa: RUF012

    def make_predictors(self) -> None:
        if self.knobs.align:
            self.recall = predict(signatures.RecallFacts)
            self.imagine = predict(signatures.RecallPassage)
            self.split = predict(signatures.SplitFacts)
        if self.knobs.cot == "normal":
            make = core.chain_of_thought
        else:
            make = predict
        if self.knobs.cot == "scheduled":
            signature = signatures.AnswerInStages
        else:
            signature = signatures.AnswerFaithfully
        self.answer = make(signature if self.knobs.self_think else signatures.AnswerWithHints)

    def solve(self, trace: Trace) -> dspy.Prediction:
        passages = trace.search(trace.question, k=self.knobs.k)
        facts = self._remembered(trace) if self.knobs.align else []
        pieces = self._aligned(trace, facts, passages)
        return trace.prediction(self._read(trace, passages, pieces), "answered")

    def force(self, trace: Trace) -> str:
        return self._read(trace, trace.passages, [])

    def _read(self, trace: Trace, passages: Passages, pieces: list[str]) -> str:
        return trace.answer(self.answer, last=True, context=self.as_context(passages), notes=pieces)

    def _remembered(self, trace: Trace) -> list[str]:
        reply = trace.ask(self.recall)
        needed = core.distinct(reply.facts)
        passage = ""
        if needed or reply.get("parse_fallback"):
            reply = trace.ask(self.imagine, facts=needed)
            passage = reply.passage
        trace.step("recall", thought="\n".join(needed), observation=passage)
        if not passage:
            return []
        facts = core.distinct(trace.ask(self.split, text=passage).facts)
        trace.step("split", observation="\n".join(facts))
        return facts

    def _aligned(self, trace: Trace, facts: Sequence[str], passages: Passages) -> list[str]:
        pieces: list[str] = []
        for passage in passages:
            pieces += pieces_of(passage, words=self.knobs.piece_words)
        if not facts or not pieces:
            return []
        embedder = make_embedder(self.knobs.embedder, self.knobs.embedder_base)
        scores = embedder.embed(list(facts)) @ embedder.embed(pieces).T
        pooled: dict[int, float] = {}
        for row in scores:
            for place in (-row).argsort(kind="stable")[: self.knobs.sent_topk]:
                pooled[int(place)] = max(float(row[place]), pooled.get(int(place), -2.0))
        best = sorted(pooled, key=lambda place: (-pooled[place], place))
        nearest = core.distinct(pieces[place] for place in best)[: self.knobs.chunk_topk]
        trace.step("align", observation="\n".join(nearest))
        return nearest


def pieces_of(passage: Passage, *, words: int) -> list[str]:
    """Split a passage into pieces of entire sentences, each after the title.

    Args:
        passage: The passage.
        words: Maximum number of words of a piece. A longer sentence is a separate piece.
    """
    pieces: list[list[str]] = []
    for sentence in core.sentences_of(passage):
        tokens = _BRACKETS.sub("", sentence).split()
        if pieces and len(pieces[-1]) + len(tokens) <= words:
            pieces[-1] += tokens
        elif any(map(str.isalnum, "".join(tokens))):
            pieces.append(tokens)
    return [str(replace(passage, text=" ".join(piece), sentences=())) for piece in pieces]
