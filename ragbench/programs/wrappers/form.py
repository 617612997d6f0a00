"""The answer's form, repaired without compiling: the control that a verdict on compiling needs.

An optimizer that teaches a model to answer in three words instead of a sentence raises EM and F1
without a better answer. How much of its gain is of that kind shows when the same program, not
compiled, gets two fixed things that know nothing of any question:

- `FORM_INSTRUCTION`, added to the instructions of every predictor that has an output `answer`;
- `bare_answer`, which cuts the final answer down and never puts a character in.
"""

from __future__ import annotations

import re

import dspy

from ragbench.programs.core import RAGProgram
from ragbench.programs.wrappers.base import Around

FORM_INSTRUCTION = (
    "Form of the answer: only the name, date, number or short phrase that was asked for, or yes or "
    "no. No sentence, no explanation, no label, no quotation marks."
)

_WRAPPING = " \t\r\n\"'`*_“”\u2018\u2019«»"
_LABEL = re.compile(
    r"^(?:(?:so|thus|therefore|hence),?\s+)?(?:the\s+)?(?:final\s+|short\s+)?answer"
    r"(?:\s+to\s+the\s+question)?(?:\s*:\s*|\s+is\s*:?\s+)",
    re.IGNORECASE,
)
_CLOSED_QUESTION = re.compile(
    r"^(?:(?:is|are|was|were|am|do|does|did|has|have|had|can|could|will|would|should|may|might)\b)",
    re.IGNORECASE,
)
_YES_NO = re.compile(r"^(?:yes|no)\b", re.IGNORECASE)


def bare_answer(answer: str, question: str = "") -> str:
    """The part of `answer` that answers: always a contiguous piece of it, and never blank.

    The first line that is not blank, without quotation marks, emphasis, a label such as "The answer
    is", and the full stop at its end (one after a single letter, as in "Jr. A.", stays); of an
    answer to a yes/no question that starts with yes or no, that word. Where nothing would be left,
    the answer as it is.
    """
    lines = [line for line in answer.splitlines() if line.strip(_WRAPPING)]
    bare = lines[0].strip(_WRAPPING) if lines else ""
    labelled = _LABEL.match(bare)
    if labelled and labelled.end() == len(bare) and len(lines) > 1:
        bare, labelled = lines[1].strip(_WRAPPING), None  # "Answer:" on a line of its own
    if labelled:
        bare = bare[labelled.end() :].strip(_WRAPPING)
    if bare.endswith(".") and not re.search(r"(?:\b[^\W\d]|\.\w*)\.$", bare):
        bare = bare[:-1].strip(_WRAPPING)
    closed = _YES_NO.match(bare) if _CLOSED_QUESTION.match(question.strip()) else None
    return (closed[0] if closed else bare) or answer


def repair_form(program: RAGProgram) -> FormRepaired:
    """`program` with `FORM_INSTRUCTION` where it answers, and its final answer made bare.

    Changes `program` itself, which must be fresh.
    """
    for predictor in program.predictors():
        signature = predictor.signature
        if "answer" in signature.output_fields:
            predictor.signature = signature.with_instructions(
                f"{signature.instructions}\n\n{FORM_INSTRUCTION}"
            )
    return FormRepaired(program)


class FormRepaired(Around):
    """Ask another program and make its answer bare."""

    def forward(self, question: str) -> dspy.Prediction:
        """The inner program's prediction, with the bare answer; a change is counted."""
        prediction = self.inner(question=question)
        bare = bare_answer(str(prediction.answer), question)
        if bare != prediction.answer:
            prediction.counts["form_repaired"] += 1
            prediction.answer = bare
        return prediction
