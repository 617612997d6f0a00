"""Passages that two agents select: one answers from each passage, the other judges that answer.

MAIN-RAG (Chang et al. 2024, arXiv:2501.00332) and RAGentA share this step. The judge's score is
log p(yes) - log p(no). Passages below the mean of their scores minus `n` standard deviations are
dropped. A passage with an empty answer is dropped without a call of the judge.
"""

import math
from statistics import fmean, pstdev

from pydantic import Field
from typing_extensions import TypeVar

from ragbench import signatures
from ragbench.programs.core import (
    Passages,
    ProgramKnobs,
    RAGProgram,
    Trace,
    bounded,
    is_answer,
    predict,
)
from ragbench.programs.core.confidence import Weighing, ask_probabilities, grader
from ragbench.retrievers import Passage

#: Stated probabilities are clipped by this amount at 0 and 1.
_LEAST = 0.001


class JudgedKnobs(ProgramKnobs):
    """Knobs of programs whose passages are judged."""

    k: int = bounded(20, 1, 100, "passages per search")
    n: float = bounded(0.0, -3, 3, "threshold, in standard deviations below the mean")
    confidence_source: Weighing = Field("verbal", description="source of probabilities")


J = TypeVar("J", bound=JudgedKnobs, default=JudgedKnobs, covariant=True)


class JudgedPassages(RAGProgram[J]):
    """Answer from each passage alone, judge the answers, and keep the best passages."""

    def make_predictors(self) -> None:
        self.answer_each = predict(signatures.AnswerIfStated)
        self.judge = grader(signatures.HoldsAnswer, self.knobs.confidence_source)

    def kept(self, trace: Trace, passages: Passages) -> list[Passage]:
        """Return the passages that pass, best first. If no passage has an answer, return all.

        Args:
            trace: Trace of the question.
            passages: Passages to judge.
        """
        scores = trace.fan_out(lambda p: self._score(trace, p), passages, calls_each=2)
        judged = []
        for passage, score in zip(passages, scores, strict=False):
            if score is not None:
                judged.append((passage, score))
        if not judged:
            trace.step("filter", of=passages)
            return list(passages)
        known_scores = [score for _, score in judged]
        least = fmean(known_scores) - self.knobs.n * pstdev(known_scores)
        best = sorted(judged, key=lambda pair: -pair[1])  # stable
        # The tolerance lets all equal scores pass.
        chosen = [p for p, score in best if score >= least - 1e-9] or [p for p, _ in best]
        trace.step("filter", of=chosen, notes={"threshold": round(least, 4)})
        return chosen

    def _score(self, trace: Trace, passage: Passage) -> float | None:
        """Return the log-odds that the answer from one passage holds, from both agents.

        None if the passage gives no answer.
        """
        context = self.as_context([passage])
        reply = trace.ask(self.answer_each, context=context)
        answer = reply.answer
        if not is_answer(answer):
            trace.step("judge", observation=answer, of=[passage])
            return None
        probabilities = ask_probabilities(
            trace,
            self.judge,
            "holds",
            (True, False),
            source=self.knobs.confidence_source,
            passage=self.as_context_line(passage),
            answer=answer,
        )
        likely = min(max(0.5 if probabilities is None else probabilities[True], _LEAST), 1 - _LEAST)
        score = math.log(likely) - math.log(1 - likely)
        trace.step("judge", observation=answer, of=[passage], notes={"score": round(score, 4)})
        return score
