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
from ragbench.programs.core import PROGRAMS, ProgramKnobs, RAGProgram, Trace, is_answer, predict
from ragbench.retrievers import Retriever
from ragbench.signatures import ReadForReasoning, ReasonStep, SynthesizeAnswer
from ragbench.words import question_key

#: What stands in the reasoning where a search gave nothing to go on with.
_NOTHING = "nothing helpful found"
_REPEATED = "searched before, see above"


class SearchO1Knobs(ProgramKnobs):
    """Knobs of `search_o1`."""

    k: int = Field(10, ge=1, le=100, description="passages per search")
    max_searches: int = Field(10, ge=1, le=50, description="searches at the most")
    max_turns: int = Field(15, ge=1, le=100, description="turns of reasoning at the most")
    reason_in_documents: bool = Field(
        True, description="a call of its own reads what is found; else the reasoning shows it whole"
    )


@PROGRAMS.register("search_o1")
class SearchO1(RAGProgram[SearchO1Knobs]):
    """Reason, search where a fact is missing, reason on with what is found, then answer."""

    name, family, paper = "search_o1", "agentic", "arXiv:2501.05366"
    calls = "turns (<= max_turns) + 1 per search (<= max_searches) + 1 if forced"
    autonomy = core.Autonomy("no", "yes", "yes")
    variants = {"paper": {}, "no_reading": {"reason_in_documents": False}}  # noqa: RUF012

    def __init__(self, retriever: Retriever, **knobs: object) -> None:
        super().__init__(retriever, **knobs)
        self.reason = predict(ReasonStep)
        if self.knobs.reason_in_documents:
            self.read = predict(ReadForReasoning)
        self.conclude = predict(SynthesizeAnswer)

    def solve(self, trace: Trace) -> dspy.Prediction:
        """Turns of reasoning, each ended by a search, until one answers."""
        thoughts: list[str] = []
        answer = ""
        reason: core.StopReason
        try:
            answer, reason = self._reasoned(trace, thoughts)
        except core.BudgetSpentError:
            reason = "budget"
        if not is_answer(answer):
            answer = trace.answer(self.conclude, last=True, notes=thoughts)
        return trace.prediction(answer, reason)

    def _reasoned(self, trace: Trace, thoughts: list[str]) -> tuple[str, core.StopReason]:
        """The answer, blank if none was given, and why it ended; `thoughts` gets the reasoning."""
        asked: set[str] = set()
        for _ in range(self.knobs.max_turns):
            left = self.knobs.max_searches - len(asked)
            turn = trace.ask(
                self.reason,
                otherwise={"thought": "", "next_step": "answer", "query": "", "answer": ""},
                thoughts=thoughts,
                searches_left=left,
            )
            thought = " ".join(str(turn.thought or "").split())
            query = " ".join(str(turn.query or "").split())
            answer = str(turn.answer or "").strip()
            if thought:
                thoughts.append(thought)
            if turn.next_step == "answer" or not query:
                trace.step("reason", thought=thought, observation=answer)
                if is_answer(answer):
                    return answer, "answered"
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
        found = trace.search(query, k=self.knobs.k)
        trace.step("search", thought=thought, input=query, of=found)
        context = self.shown(found)
        if not self.knobs.reason_in_documents:
            return [f"[search] {query}:", *context]
        nothing = {"information": ""}
        reply = trace.ask(
            self.read, otherwise=nothing, context=context, thoughts=thoughts, query=query
        )
        information = " ".join(str(reply.information or "").split())
        trace.step("read", input=query, observation=information, of=found[: len(context)])
        return [f"[search] {query}: {information or _NOTHING}"]
