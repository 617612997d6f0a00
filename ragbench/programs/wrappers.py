"""Wrappers of a program: the controls that a verdict on compiling needs.

Form: an optimizer that teaches a model to answer in three words raises EM and F1 without better
answers. To measure this share of its gain, the uncompiled program gets two generic changes:
`FORM_INSTRUCTION` in the instructions of every predictor with an output `answer`, and
`bare_answer`, which shortens the final answer.

Votes: self-consistency (Wang et al. 2022, arXiv:2203.11171) spends the additional tokens of a
compiled prompt without compiling. The first vote is the program's answer at the run's temperature,
and it wins a tie. The paper samples all votes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import dspy

from ragbench.context import current, use
from ragbench.ledger import fan_out
from ragbench.metrics import normalise_answer
from ragbench.programs.core import RAGProgram, each_once
from ragbench.programs.core.program import NO_ANSWER, CallKind
from ragbench.record import Step


class WrapperProgram(RAGProgram):
    """Ask another program."""

    # A wrapper takes a constructed program, not a retriever and knobs, and is not registered.
    def __init__(self, inner: RAGProgram) -> None:
        dspy.Module.__init__(self)
        self.inner = inner
        self.name = inner.name  # type: ignore[misc]
        self.retriever = inner.retriever
        self.knobs = inner.knobs

    @property
    def label(self) -> str:
        return self.inner.label

    @property
    def changed_knobs(self) -> dict[str, Any]:
        return self.inner.changed_knobs

    def inside(self) -> Sequence[RAGProgram]:
        return (self.inner,)

    def other_calls(self) -> Sequence[CallKind]:
        return self.inner.other_calls()


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
    """Return the essential part of `answer`: a contiguous part of it, never blank.

    It is the first line that is not blank, without quotation marks, emphasis, a label such as "The
    answer is", and the period at its end. A period after a single letter, as in "Jr. A.", stays.
    For a yes/no question, only a leading yes or no remains.

    Args:
        answer: Final answer of a program.
        question: Text of the question.

    Returns:
        The shortened answer. If nothing remains, `answer` unchanged.
    """
    lines = []
    for line in answer.splitlines():
        if line.strip(_WRAPPING):
            lines.append(line)
    bare = lines[0].strip(_WRAPPING) if lines else ""
    labelled = _LABEL.match(bare)
    if labelled and labelled.end() == len(bare) and len(lines) > 1:
        bare = lines[1].strip(_WRAPPING)  # "Answer:" on a separate line
        labelled = None
    if labelled:
        bare = bare[labelled.end() :].strip(_WRAPPING)
    if bare.endswith(".") and not re.search(r"(?:\b[^\W\d]|\.\w*)\.$", bare):
        bare = bare[:-1].strip(_WRAPPING)
    if _CLOSED_QUESTION.match(question.strip()):
        closed = _YES_NO.match(bare)
    else:
        closed = None
    return (closed[0] if closed else bare) or answer


def repair_form(program: RAGProgram) -> FormRepaired:
    """Wrap `program` so that its final answer is short, and add `FORM_INSTRUCTION` to its prompts.

    This changes `program`, which must be a new object.
    """
    for predictor in program.predictors():
        signature = predictor.signature
        if "answer" in signature.output_fields:
            predictor.signature = signature.with_instructions(
                f"{signature.instructions}\n\n{FORM_INSTRUCTION}"
            )
    return FormRepaired(program)


class FormRepaired(WrapperProgram):
    """Ask another program and make its answer bare."""

    def forward(self, question: str) -> dspy.Prediction:
        prediction = self.inner(question=question)
        bare = bare_answer(str(prediction.answer), question)
        if bare != prediction.answer:
            prediction.counts["form_repaired"] += 1
            prediction.answer = bare
        return prediction


#: Temperature of every vote except the first, as in the paper.
TEMPERATURE = 0.7


class Voting(WrapperProgram):
    """Ask another program several times and keep the most common answer."""

    def __init__(self, inner: RAGProgram, votes: int) -> None:
        super().__init__(inner)
        self.votes = votes

    def forward(self, question: str) -> dspy.Prediction:
        cast = fan_out(lambda number: ask_again(self.inner, question, number), range(self.votes))
        answers = [normalise_answer(prediction.answer) for prediction in cast]
        tally = Counter(answer for answer in answers if answer != normalise_answer(NO_ANSWER))
        winner = cast[0]
        if tally:
            winner = cast[answers.index(tally.most_common(1)[0][0])]  # the first one wins a tie
        in_context: list[str] | None = None  # unknown for one vote, so unknown for all
        if all(prediction.get("in_context") is not None for prediction in cast):
            in_context = list(dict.fromkeys(chain.from_iterable(p.in_context for p in cast)))
        vote = Step("vote", observation=winner.answer, notes=dict(tally))
        joined = {
            "steps": [*chain.from_iterable(p.steps for p in cast), vote],
            "searches": list(chain.from_iterable(p.searches for p in cast)),
            "passages": each_once(chain.from_iterable(p.passages for p in cast)),
            "counts": sum((prediction.counts for prediction in cast), Counter[str]()),
            "in_context": in_context,
        }
        return dspy.Prediction(**{**dict(winner.items()), **joined})


def ask_again(program: RAGProgram, question: str, number: int) -> dspy.Prediction:
    """Return a sample of the program's answers.

    Args:
        program: Program to ask.
        question: Text of the question.
        number: Number of the sample. 0 is the answer at the run's temperature.
    """
    if not number:
        return program(question=question)

    def sampling(lm: dspy.LM) -> dspy.LM:
        # The rollout id gives each sample a separate seed and cache entry.
        return lm.copy(rollout_id=number, temperature=TEMPERATURE)

    context = current()
    roles = {role: sampling(lm) for role, lm in context.role_lms.items()}
    with use(replace(context, role_lms=roles), lm=sampling(dspy.settings.lm)):
        return program(question=question)
