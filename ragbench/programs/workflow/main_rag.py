"""MAIN-RAG: answers from single passages, a judge of the passages, and one last answer.

Chang et al. 2024 (arXiv:2501.00332), without training. Agent 1 answers from each of 20 passages
separately. Agent 2 judges each answer with its passage. Passages with at least the mean score are
kept, best first. Agent 3 answers from them. `n` moves the threshold by standard deviations, as in
the paper's study of it. RAGentA extends this program.
"""

import dspy

from ragbench.programs.core import PROGRAMS, Trace, predict
from ragbench.programs.workflow.judged import JudgedKnobs, JudgedPassages
from ragbench.signatures import AnswerFromContext


@PROGRAMS.register("main_rag")
class MAINRAG(JudgedPassages[JudgedKnobs]):
    """Judge passages by the answers from each, then answer from the best."""

    def make_predictors(self) -> None:
        super().make_predictors()
        self.answer = predict(AnswerFromContext)

    def solve(self, trace: Trace) -> dspy.Prediction:
        passages = self.kept(trace, trace.search(trace.question, k=self.knobs.k))
        return trace.prediction(self.answer_from(trace, self.answer, passages), "answered")
