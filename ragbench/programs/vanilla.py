"""The baselines: an answer from memory, and to retrieve once and read once.

`direct` is the floor of every comparison, `vanilla` what Lewis et al. 2020 (arXiv:2005.11401) do,
prompted. The variant `naive_rag` is the baseline of A-RAG (Du et al. 2026): five chunks of about
1,000 tokens, shown whole; give it a corpus of chunks and `--retriever dense`.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import dspy
from pydantic import Field

from ragbench.errors import ConfigError
from ragbench.programs.core import PROGRAMS, ProgramKnobs, RAGProgram, Trace, predict
from ragbench.programs.core.program import Reader, reading
from ragbench.retrievers import Dense, Distracting, Progress
from ragbench.signatures import AnswerFromContext, DirectAnswer


@PROGRAMS.register("memory", listed=False)  # alias
@PROGRAMS.register("direct")
class DirectRAG(RAGProgram):
    """Answer from memory."""

    chooses = False
    idle: ClassVar[Mapping[str, str]] = {"k": "it does not search, so remove k or use vanilla"}

    def make_predictors(self) -> None:
        self.answer = predict(DirectAnswer)

    def solve(self, trace: Trace) -> dspy.Prediction:
        answer = trace.answer(self.answer, last=True)
        return trace.prediction(answer, "answered")


class VanillaKnobs(ProgramKnobs):
    """Knobs of `vanilla`."""

    reader: Reader = Field("predict", description="reason before the answer?")


@PROGRAMS.register("vanilla")
class VanillaRAG(RAGProgram[VanillaKnobs]):
    """Search once with the question, then answer from the passages."""

    variants = {"default": {}, "naive_rag": {"k": 5, "context_tokens": 7000}}  # noqa: RUF012

    def make_predictors(self) -> None:
        self.answer = reading(AnswerFromContext, self.knobs.reader)

    def prepare(self, questions: Sequence[str] = (), progress: Progress | None = None) -> None:
        """Check the retriever of `naive_rag`.

        Raises:
            ConfigError: It does not search only by vectors.
        """
        base = getattr(self.retriever, "whole", self.retriever)
        if isinstance(base, Distracting):
            base = base.parts[0]
        if self.knobs.variant == "naive_rag" and not isinstance(base, Dense):
            raise ConfigError(
                f"vanilla variant=naive_rag needs a vector search, not {base.name}. "
                "Use --retriever dense, or remove the variant."
            )

    def solve(self, trace: Trace) -> dspy.Prediction:
        return self.finish(trace, self.answer, trace.search(trace.question, k=self.knobs.k))
