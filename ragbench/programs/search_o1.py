"""Search-o1: a reasoning that searches where it is unsure, and reads documents beside itself.

Li et al. 2025 (arXiv:2501.05366). The model reasons until it writes a query or an answer. What a
query finds is read by a call of its own, which sees the reasoning so far and writes only what bears
on it (reason-in-documents); that text goes into the reasoning, the documents do not. A query that
was searched before gets a line that says so. `paper` has the limits of the published script for
multi-hop questions: ten searches of ten documents each, fifteen turns.
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
from ragbench.words import question_key

#: What stands in the reasoning where a search gave nothing to go on with.
_NOTHING = "nothing helpful found"
_REPEATED = "searched before, see above"


class SearchO1Knobs(ProgramKnobs):
    """Knobs of `search_o1`."""

    k: int = bounded(10, 1, 100, "passages per search")
    max_searches: int = bounded(10, 1, 50, "searches at the most")
    max_turns: int = bounded(15, 1, 100, "turns of reasoning at the most")
    reason_in_documents: bool = Field(
        True, description="a call of its own reads what is found; else the reasoning shows it whole"
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
        """Turns of reasoning, each ended by a search, until one answers."""
        thoughts: list[str] = []
        return trace.concluded(lambda: self._reasoned(trace, thoughts), self.conclude, thoughts)

    def _reasoned(self, trace: Trace, thoughts: list[str]) -> tuple[str, core.StopReason]:
        """The answer, blank if none was given, and why it ended; `thoughts` gets the reasoning."""
        asked: set[str] = set()
        for _ in range(self.knobs.max_turns):
            left = self.knobs.max_searches - len(asked)
            turn = trace.ask(
                self.reason,
                thoughts=thoughts,
                searches_left=left,
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
            if left < 1:  # it was told so: another turn would have nothing new to go by
                trace.step("reason", thought=thought)
                return "", "max_steps"
            if question_key(query) in asked:
                trace.count("repeated_query")
                trace.step("reason", thought=thought, input=query, observation=_REPEATED)
                thoughts.append(f"[search] {query}: {_REPEATED}")
                continue
            asked.add(question_key(query))
            thoughts += self._searched(trace, thought, query, thoughts)
        return "", "max_steps"

    def _searched(self, trace: Trace, thought: str, query: str, thoughts: list[str]) -> list[str]:
        """What the reasoning gets of a search for `query`."""
        found = trace.searched(query, self.knobs.k, thought=thought)
        context = self.shown(found)
        if not self.knobs.reason_in_documents:
            return [f"[search] {query}:", *context]
        reply = trace.ask(self.read, context=context, thoughts=thoughts, query=query)
        information = one_line(reply.information)
        trace.step("read", input=query, observation=information, of=found[: len(context)])
        return [f"[search] {query}: {information or _NOTHING}"]
