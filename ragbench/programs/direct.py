"""No retrieval: the model answers from memory. Every comparison needs it as its floor."""

import dspy

from ragbench.programs.core import PROGRAMS, RAGProgram, Trace, predict
from ragbench.retrievers import Retriever
from ragbench.signatures import DirectAnswer


@PROGRAMS.register("direct")
class DirectRAG(RAGProgram):
    """Answer from memory."""

    name, family, calls = "direct", "baseline", "1"

    def __init__(self, retriever: Retriever, **knobs: object) -> None:
        super().__init__(retriever, **knobs)
        self.answer = predict(DirectAnswer)

    def solve(self, trace: Trace) -> dspy.Prediction:
        answer = trace.answer(self.answer, last=True)
        return trace.prediction(answer, "answered")
