"""Search-o1: reasoning that searches if it is unsure, with a separate call that reads documents.

Li et al. 2025 (arXiv:2501.05366). The model reasons until it writes a query or an answer. A
separate call reads the search results. It sees the reasoning so far and writes only the relevant
information (reason-in-documents). This text is added to the reasoning, the documents are not. A
repeated query gets a line that states the repetition. `paper` has the limits of the published
script for multi-hop questions: ten searches of ten documents each, fifteen turns.
"""

import dspy
from pydantic import Field

from ragbench.programs import core
from ragbench.programs.core import (
    PROGRAMS,
    ProgramKnobs,
    RAGProgram,
    Trace,
    bounded,
    one_line,
    predict,
)
from ragbench.signatures import ReadForReasoning, ReasonStep, SynthesizeAnswer
from ragbench.text_normalization import question_key

#: Text in the reasoning if a search does not help.
_NOTHING = "nothing helpful found"
_REPEATED = "searched before, see above"


class SearchO1Knobs(ProgramKnobs):
    """Knobs of `search_o1`."""

    k: int = bounded(10, 1, 100, "passages per search")
    max_searches: int = bounded(10, 1, 50, "maximum number of searches")
    max_turns: int = bounded(15, 1, 100, "maximum number of turns of reasoning")
    reason_in_documents: bool = Field(
        True, description="read results in a separate call, else add them to the reasoning"
    )


@PROGRAMS.register("search_o1")
class SearchO1(RAGProgram[SearchO1Knobs]):
    """Reason, search where a fact is missing, reason on with what is found, then answer."""

    variants = {"paper": {}, "no_reading": {"reason_in_documents": False}}  # noqa: RUF012

    def make_predictors(self) -> None:
        self.reason = predict(ReasonStep)
        if self.knobs.reason_in_documents:
            self.read = predict(ReadForReasoning)
        self.conclude = predict(SynthesizeAnswer)

    def solve(self, trace: Trace) -> dspy.Prediction:
        """Reason and search in turns until a turn answers."""
        thoughts: list[str] = []
        return trace.concluded(lambda: self._reasoned(trace, thoughts), self.conclude, thoughts)

    def _reasoned(self, trace: Trace, thoughts: list[str]) -> tuple[str, core.StopReason]:
        """Return the answer or blank, and the stop reason. Add reasoning to `thoughts`."""
        queries: set[str] = set()
        for _ in range(self.knobs.max_turns):
            searches_left = self.knobs.max_searches - len(queries)
            turn = trace.ask(
                self.reason,
                thoughts=thoughts,
                searches_left=searches_left,
            )
            thought = one_line(turn.thought)
            query = one_line(turn.query)
            answer = turn.answer
            if thought:
                thoughts.append(thought)
            if turn.next_step == "answer" or not query:
                trace.step("reason", thought=thought, observation=answer)
                if closing := trace.closing(turn):
                    return closing, "answered"
                return "", core.stalled(turn)
            if searches_left < 1:  # the model knew the limit, so another turn would add nothing
                trace.step("reason", thought=thought)
                return "", "max_steps"
            if question_key(query) in queries:
                trace.count("repeated_query")
                trace.step("reason", thought=thought, input=query, observation=_REPEATED)
                thoughts.append(f"[search] {query}: {_REPEATED}")
                continue
            queries.add(question_key(query))
            thoughts += self._searched(trace, thought, query, thoughts)
        return "", "max_steps"

    def _searched(self, trace: Trace, thought: str, query: str, thoughts: list[str]) -> list[str]:
        """Return the lines that a search for `query` adds to the reasoning."""
        passages = trace.searched(query, self.knobs.k, thought=thought)
        context = self.as_context(passages)
        if not self.knobs.reason_in_documents:
            return [f"[search] {query}:", *context]
        reply = trace.ask(self.read, context=context, thoughts=thoughts, query=query)
        information = one_line(reply.information)
        trace.step("read", input=query, observation=information, of=passages[: len(context)])
        return [f"[search] {query}: {information or _NOTHING}"]
