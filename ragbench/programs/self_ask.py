"""Self-Ask: ask a simpler follow-up question, answer it, and repeat until the question is settled.

Press et al. 2022 (arXiv:2210.03350), section 3, with search. The model says whether a follow-up
question is needed and writes it; the answer found for it is put back into the prompt, and the last
answer is read off these intermediate ones alone. As published, a follow-up that the search does not
answer is answered by the model itself, in the same call. A follow-up that was asked before ends the
loop.
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
    is_answer,
    one_line,
    predict,
)
from ragbench.signatures import AnswerFollowUp, AnswerIfStated, FollowUpStep, SynthesizeAnswer
from ragbench.words import question_key


class SelfAskKnobs(ProgramKnobs):
    """Knobs of `self_ask`."""

    max_follow_ups: int = bounded(5, 1, 30, "follow-up questions at the most")
    from_memory: bool = Field(
        True, description="answer from memory a follow-up that the passages do not"
    )


@PROGRAMS.register("self_ask")
class SelfAsk(RAGProgram[SelfAskKnobs]):
    """Ask follow-up questions, answer each from passages, then answer from these answers."""

    def make_predictors(self) -> None:
        self.step = predict(FollowUpStep)
        if self.knobs.from_memory:
            self.answer_part = predict(AnswerFollowUp)
        else:
            self.answer_part = predict(AnswerIfStated)
        self.conclude = predict(SynthesizeAnswer)

    def solve(self, trace: Trace) -> dspy.Prediction:
        """Rounds of one follow-up question and its answer, then the answer."""
        notes: list[str] = []
        return trace.concluded(lambda: self._ask_on(trace, notes), self.conclude, notes)

    def _ask_on(self, trace: Trace, notes: list[str]) -> tuple[str, core.StopReason]:
        """The answer, blank if none was given, and why the loop ended; `notes` gets the others."""
        asked: set[str] = set()
        for left in range(self.knobs.max_follow_ups, -1, -1):
            step = trace.ask(self.step, notes=notes, follow_ups_left=left)
            answer = step.answer
            follow_up = one_line(step.follow_up)
            if step.next_step == "answer" or not follow_up:
                trace.step("decide", observation=answer)
                if closing := trace.closing(step):
                    return closing, "answered"
                return "", core.stalled(step)
            if left == 0:
                trace.step("decide", thought=follow_up)
                break
            if question_key(follow_up) in asked:
                trace.count("repeated_follow_up")
                return "", "no_progress"
            asked.add(question_key(follow_up))
            notes.append(self._answered(trace, follow_up))
        return "", "max_steps"

    def _answered(self, trace: Trace, follow_up: str) -> str:
        """`follow_up` with its answer, as the next prompt shows it."""
        found = trace.searched(follow_up, self.knobs.k)
        answer = trace.answer(self.answer_part, question=follow_up, context=self.shown(found))
        if not is_answer(answer):
            answer = "not found"
        return f"{follow_up} {answer}"
