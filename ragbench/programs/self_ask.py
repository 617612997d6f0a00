"""Self-Ask: ask a simpler follow-up question, answer it, and repeat until no question is open.

Press et al. 2022 (arXiv:2210.03350), section 3, with search. The model decides if a follow-up
question is needed and writes it. The next prompt contains its answer. The last call reads only
these intermediate answers. As published, if the search does not answer a follow-up question, the
model answers it in the same call. A repeated follow-up question ends the loop.
"""

import dspy

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
from ragbench.signatures import AnswerFollowUp, FollowUpStep, SynthesizeAnswer
from ragbench.text_normalization import question_key


class SelfAskKnobs(ProgramKnobs):
    """Knobs of `self_ask`."""

    max_follow_ups: int = bounded(5, 1, 30, "maximum number of follow-up questions")


@PROGRAMS.register("self_ask")
class SelfAsk(RAGProgram[SelfAskKnobs]):
    """Ask follow-up questions, answer each from passages, then answer from these answers."""

    def make_predictors(self) -> None:
        self.step = predict(FollowUpStep)
        self.answer_part = predict(AnswerFollowUp)
        self.conclude = predict(SynthesizeAnswer)

    def solve(self, trace: Trace) -> dspy.Prediction:
        """Ask and answer follow-up questions, then answer the question."""
        notes: list[str] = []
        return trace.concluded(lambda: self._ask_on(trace, notes), self.conclude, notes)

    def _ask_on(self, trace: Trace, notes: list[str]) -> tuple[str, core.StopReason]:
        """Return the answer or blank, and the stop reason. Add other answers to `notes`."""
        questions: set[str] = set()
        for follow_ups_left in range(self.knobs.max_follow_ups, -1, -1):
            step = trace.ask(self.step, notes=notes, follow_ups_left=follow_ups_left)
            answer = step.answer
            follow_up = one_line(step.follow_up)
            if step.next_step == "answer" or not follow_up:
                trace.step("decide", observation=answer)
                if closing := trace.closing(step):
                    return closing, "answered"
                return "", core.stalled(step)
            if follow_ups_left == 0:
                trace.step("decide", thought=follow_up)
                break
            if question_key(follow_up) in questions:
                return "", "no_progress"
            questions.add(question_key(follow_up))
            notes.append(self._answered(trace, follow_up))
        return "", "max_steps"

    def _answered(self, trace: Trace, follow_up: str) -> str:
        """Return `follow_up` with its answer, for the next prompt."""
        passages = trace.searched(follow_up, self.knobs.k)
        answer = trace.answer(
            self.answer_part, question=follow_up, context=self.as_context(passages)
        )
        if not is_answer(answer):
            answer = "not found"
        return f"{follow_up} {answer}"
