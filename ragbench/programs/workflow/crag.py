"""CRAG: grade the retrieved passages, then refine them, replace them or do both, and answer.

Yan et al. 2024 (arXiv:2401.15884). Every passage has a score in [-1, 1]. A score of `upper` or more
makes the search *correct*: the passages are split into strips, and the relevant strips are kept. If
no score reaches `lower`, it is *incorrect*: the passages are discarded, and the question is
searched again as keywords. Otherwise it is *ambiguous*: both.

The paper's evaluator is a fine-tuned T5 that grades if a passage answers the question. Here an LM
chooses one of three grades: the passage states the answer, another needed fact, or nothing. The
score is the probability of the first grade minus that of the last. The second search uses the same
corpus instead of the web. One call per passage selects strips.
"""

from dataclasses import replace
from typing import Literal, get_args

import dspy
from pydantic import Field

from ragbench.errors import KnobError
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
from ragbench.programs.core.confidence import Weighing, ask_probabilities, grader
from ragbench.programs.core.text import by_number, numbered, one_line
from ragbench.retrievers import Passage
from ragbench.retrievers.rerank import make_reranker
from ragbench.signatures import AnswerFromContext, GradePassage, KeywordQuery, SelectStrips
from ragbench.signatures.judging import Grade

#: Strips kept of each source.
_STRIPS_KEPT = 6


class CRAGKnobs(ProgramKnobs):
    """Knobs of `crag`."""

    k: int = bounded(10, 1, 100, "passages of the first search")
    evaluator: str = Field("lm", description="lm, maxsim or an http address")
    confidence_source: Weighing = Field(
        "verbal", description="where the LM's probabilities of the grades come from"
    )
    upper: float = bounded(0.5, -1, 1, "minimum best score of correct")
    lower: float = bounded(-0.915, -1, 1, "minimum best score of ambiguous")
    strip: Literal["sentences", "words", "passage"] = Field(
        "sentences", description="strips of 3 sentences, of 50 words, or whole passages"
    )
    refine: bool = Field(True, description="keep only relevant strips")
    external: Literal["corpus", "none"] = Field(
        "corpus", description="target of the second search (none: answer without context)"
    )
    external_k: int = bounded(5, 1, 100, "passages of the second search")
    rewrite: bool = Field(True, description="search elsewhere with keywords, else the question")
    only: Literal["", "correct", "incorrect", "ambiguous"] = Field(
        "", description="always take this action"
    )


@PROGRAMS.register("crag")
class CRAG(RAGProgram[CRAGKnobs]):
    """Grade the passages, correct the search if they fall short, then answer."""

    variants = {"official": {}}  # noqa: RUF012

    def make_predictors(self) -> None:
        if self.knobs.evaluator == "none":
            raise KnobError("crag: evaluator='none' grades nothing; use lm or a reranker")
        if self.knobs.evaluator == "lm":
            self.grade = grader(GradePassage, self.knobs.confidence_source)
        if self.knobs.refine:
            self.select = predict(SelectStrips)
        if self.knobs.external == "corpus" and self.knobs.rewrite:
            self.rewrite = predict(KeywordQuery)
        self.answer = predict(AnswerFromContext)

    def solve(self, trace: Trace) -> dspy.Prediction:
        knobs = self.knobs
        passages = trace.search(trace.question, k=knobs.k)
        action = self._evaluated(trace, passages)
        chosen: list[Passage] = []
        if action != "incorrect":
            chosen = self._refined(trace, passages) or passages
        if action != "correct" and knobs.external == "corpus":
            pids = {passage.pid for passage in chosen}
            fresh = core.each_once(self._elsewhere(trace), pids)
            chosen = [*chosen, *self._refined(trace, fresh)]
        return trace.prediction(self.answer_from(trace, self.answer, chosen), "answered")

    def _evaluated(self, trace: Trace, passages: list[Passage]) -> str:
        """Return the action that the scores of `passages` call for."""
        knobs = self.knobs
        scores = self._scores(trace, passages)
        best = max(scores, default=-1.0)
        action = "correct" if best >= knobs.upper else "ambiguous"
        if best < knobs.lower:
            action = "incorrect"
        action = knobs.only or action
        notes = {"scores": [round(score, 4) for score in scores]}
        trace.step("evaluate", observation=action, of=passages, notes=notes)
        return action

    def _scores(self, trace: Trace, passages: Passages) -> list[float]:
        """Score how far each passage answers the question, in [-1, 1]."""
        if self.knobs.evaluator == "lm":
            return trace.fan_out(lambda p: self._score(trace, p), passages)
        reranker = make_reranker(self.knobs.evaluator)
        if reranker and passages:
            scores = reranker.score(trace.question, passages)
        else:
            scores = []
        return [min(max(float(score), -1.0), 1.0) for score in scores]

    def _score(self, trace: Trace, passage: Passage) -> float:
        labels = get_args(Grade)
        source = self.knobs.confidence_source
        text = self.as_context_line(passage)
        probabilities = ask_probabilities(
            trace, self.grade, "grade", labels, source=source, passage=text
        )
        if probabilities is None:
            return 0.0
        return probabilities["answer"] - probabilities["nothing"]

    def _refined(self, trace: Trace, passages: Passages) -> list[Passage]:
        """Return `passages` cut to their selected strips, without those that have none."""
        if not self.knobs.refine or not passages:
            return list(passages)
        chosen = trace.fan_out(lambda p: self._selected(trace, p), passages)
        room = _STRIPS_KEPT
        refined = []
        for passage, strips in zip(passages, chosen, strict=False):
            if strips := strips[:room]:
                text = " ... ".join(dict.fromkeys(strips))
                refined.append(replace(passage, text=text, sentences=()))
                room -= len(strips)
        return refined

    def _selected(self, trace: Trace, passage: Passage) -> list[str]:
        strips = strips_of(passage, self.knobs.strip)
        titled = [replace(passage, text=strip, sentences=()) for strip in strips]
        reply = trace.ask(
            self.select,
            otherwise={"keep": list(range(1, len(strips) + 1))},
            candidates=numbered(titled),
        )
        selected = by_number(strips, sorted(reply.keep))
        trace.step("refine", observation="\n".join(selected), pids=(passage.pid,))
        return selected

    def _elsewhere(self, trace: Trace) -> list[Passage]:
        query = trace.question
        if self.knobs.rewrite:
            reply = trace.ask(self.rewrite)
            query = one_line(reply.query) or query
        return trace.searched(query, self.knobs.external_k)


def strips_of(passage: Passage, unit: str) -> list[str]:
    """Split the text of a passage into strips, in order.

    Args:
        passage: The passage.
        unit: `sentences` (3 per strip), `words` (50 per strip) or `passage`.
    """
    if unit == "passage":
        return [passage.text]
    if unit == "sentences":
        size = 3
        units = list(core.sentences_of(passage))
    else:
        size = 50
        units = passage.text.split()
    strips = [" ".join(units[start : start + size]) for start in range(0, len(units), size)]
    return [strip for strip in strips if strip] or [passage.text]
