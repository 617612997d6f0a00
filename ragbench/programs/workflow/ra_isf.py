"""RA-ISF: answer from memory, from relevant passages, or from sub-questions, in that order.

Liu et al. 2024 (arXiv:2403.06840). For each question, the model decides if it knows the answer. If
not, it searches, judges each passage, and answers from the relevant ones. If none is relevant, it
splits the question, processes each sub-question in the same way, and combines their answers. A
question below `max_depth` splits stays unknown. (The published code passes the depth on unchanged,
so that its recursion has no limit.) If nothing is answered, a call reads all passages.
"""

import dspy
from pydantic import Field

from ragbench import signatures
from ragbench.programs import core
from ragbench.programs.core import (
    PROGRAMS,
    Passages,
    ProgramKnobs,
    RAGProgram,
    Trace,
    bounded,
    is_answer,
    predict,
)
from ragbench.programs.core.text import with_answers
from ragbench.retrievers import Passage
from ragbench.text_normalization import question_key

#: Maximum number of sub-questions of one question.
_MAX_PARTS = 2
#: Question -> those of its passages that were judged relevant.
Judged = dict[str, Passages]


class RAISFKnobs(ProgramKnobs):
    """Knobs of `ra_isf`."""

    max_depth: int = bounded(3, 0, 10, "maximum number of splits above a question")
    self_knowledge: bool = Field(True, description="ask if memory suffices, else always search")


@PROGRAMS.register("ra_isf")
class RAISF(RAGProgram[RAISFKnobs]):
    """Answer from memory, else from relevant passages, else from the parts of the question."""

    variants = {"official": {}}  # noqa: RUF012

    def make_predictors(self) -> None:
        if self.knobs.self_knowledge:
            self.decide = predict(signatures.RetrievalDecision)
            self.direct = predict(signatures.DirectAnswer)
        self.judge = predict(signatures.IsRel)
        self.read = predict(signatures.AnswerFromContext)
        if self.knobs.max_depth:
            self.split = predict(signatures.SplitQuestion)
            self.combine = predict(signatures.CombineAnswers)
        self.guess = predict(signatures.AnswerFromContext)

    def solve(self, trace: Trace) -> dspy.Prediction:
        answer = self._resolved(trace, {}, trace.question, ())
        if not is_answer(answer):
            return trace.prediction(self.force(trace), "no_progress")
        return trace.prediction(answer, "answered" if trace.searches else "direct")

    def force(self, trace: Trace) -> str:
        return self.answer_from(trace, self.guess, trace.passages)

    def _resolved(self, trace: Trace, judged: Judged, question: str, above: tuple[str, ...]) -> str:
        """Return the answer to `question`, or blank if it stays unknown.

        `judged` has the relevant passages of earlier questions.
        """
        if self._known(trace, question):
            return trace.answer(self.direct, question=question)
        key = question_key(question)
        if key not in judged:
            passages = trace.search(question, k=self.knobs.k)
            judged[key] = self._relevant(trace, question, passages)
        if relevant := judged[key]:
            context = self.as_context(relevant)
            return trace.answer(self.read, context=context, question=question)
        if len(above) >= self.knobs.max_depth:
            return ""
        return self._from_parts(trace, judged, question, (*above, key))

    def _known(self, trace: Trace, question: str) -> bool:
        if not self.knobs.self_knowledge:
            return False
        reply = trace.ask(self.decide, otherwise={"retrieve": True}, question=question)
        trace.step("gate", input=question, observation="search" if reply.retrieve else "memory")
        return not reply.retrieve

    def _relevant(self, trace: Trace, question: str, passages: Passages) -> Passages:
        if not passages:
            return []
        marks = trace.fan_out(lambda p: self._is_relevant(trace, question, p), passages)
        relevant = [p for p, marked in zip(passages, marks, strict=False) if marked]
        trace.step("judge", input=question, of=relevant)
        return relevant

    def _is_relevant(self, trace: Trace, question: str, passage: Passage) -> bool:
        sure = {"relevance": "relevant"}
        text = self.as_context_line(passage)
        reply = trace.ask(self.judge, otherwise=sure, question=question, passage=text)
        return bool(reply.relevance == "relevant")

    def _from_parts(
        self, trace: Trace, judged: Judged, question: str, above: tuple[str, ...]
    ) -> str:
        reply = trace.ask(self.split, question=question, max_parts=_MAX_PARTS)
        written = dict(enumerate(core.distinct(reply.sub_questions)[:_MAX_PARTS], start=1))
        questions = {n: text for n, text in written.items() if question_key(text) not in above}
        if len(questions) < len(written):
            trace.count("cycle_refused", len(written) - len(questions))
        trace.step("split", input=question, observation="\n".join(questions.values()))
        answers: dict[int, str] = {}
        notes = []
        for n, text in questions.items():
            sub_question = with_answers(text, questions, answers, trace.count)
            answers[n] = self._resolved(trace, judged, sub_question, above) if sub_question else ""
            notes.append(f"{sub_question or text} {answers[n] or 'unknown'}")
        if not any(map(is_answer, answers.values())):
            return ""
        return trace.answer(self.combine, notes=notes, question=question)
