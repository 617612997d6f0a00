"""Programs around a program: the controls that a verdict on compiling needs.

Form: an optimizer that teaches a model to answer in three words raises EM and F1 without a better
answer. How much of its gain is of that kind shows when the same program, not compiled, gets two
things that know nothing of any question: `FORM_INSTRUCTION` in the instructions of every predictor
with an output `answer`, and `bare_answer`, which cuts the final answer down.

Votes: self-consistency (Wang et al. 2022, arXiv:2203.11171), what the tokens that a compiled prompt
takes would buy without compiling. The first vote is the program's answer at the run's own
temperature, and it wins a tie; the paper samples them all.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import dspy

from ragbench.context import current, use
from ragbench.ledger import fan_out
from ragbench.metrics import normalise_answer
from ragbench.passages import Passage
from ragbench.programs.core import RAGProgram
from ragbench.programs.core.program import NO_ANSWER, CallKind
from ragbench.record import Search, Step


class Around(RAGProgram):
    """Ask another program."""

    # A wrapper is made of a finished program, not of a retriever and knobs, and is not registered.
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
    """The part of `answer` that answers: always a contiguous piece of it, and never blank.

    The first line that is not blank, without quotation marks, emphasis, a label such as "The answer
    is", and the full stop at its end (one after a single letter, as in "Jr. A.", stays); of an
    answer to a yes/no question that starts with yes or no, that word. Where nothing would be left,
    the answer as it is.
    """
    lines = []
    for line in answer.splitlines():
        if line.strip(_WRAPPING):
            lines.append(line)
    bare = lines[0].strip(_WRAPPING) if lines else ""
    labelled = _LABEL.match(bare)
    if labelled and labelled.end() == len(bare) and len(lines) > 1:
        bare = lines[1].strip(_WRAPPING)  # "Answer:" on a line of its own
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
        prediction = self.inner(question=question)
        bare = bare_answer(str(prediction.answer), question)
        if bare != prediction.answer:
            prediction.counts["form_repaired"] += 1
            prediction.answer = bare
        return prediction


#: Temperature of every vote but the first, as in the paper.
TEMPERATURE = 0.7


class Voting(Around):
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
            winner = cast[answers.index(tally.most_common(1)[0][0])]  # the first of equals
        steps: list[Step] = []
        searches: list[Search] = []
        passages: dict[str, Passage] = {}
        shown: dict[str, None] | None = {}
        counts: Counter[str] = Counter()
        for prediction in cast:
            steps += prediction.steps
            searches += prediction.searches
            for passage in prediction.passages:
                passages.setdefault(passage.pid, passage)
            if shown is None or prediction.get("shown") is None:
                shown = None  # what one vote showed the LM is unknown, so all of it is
            else:
                shown.update(dict.fromkeys(prediction.shown))
            counts.update(prediction.counts)
        steps.append(Step("vote", observation=winner.answer, notes=dict(tally)))
        fields = {**dict(winner.items()), "steps": steps, "searches": searches, "counts": counts}
        fields["shown"] = None if shown is None else list(shown)
        return dspy.Prediction(**{**fields, "passages": list(passages.values())})


class Sampled(Around):
    """Ask another program for a sample, by its number; number 0 is its answer as it is."""

    def __init__(self, inner: RAGProgram, number: int) -> None:
        super().__init__(inner)
        self.number = number

    def forward(self, question: str) -> dspy.Prediction:
        return ask_again(self.inner, question, self.number)


def ask_again(program: RAGProgram, question: str, number: int) -> dspy.Prediction:
    """The sample `number` of the answers of `program`; number 0 is at the run's own temperature."""
    if not number:
        return program(question=question)

    def sampling(lm: dspy.LM) -> dspy.LM:
        # The rollout gives a sample a seed and a place in the cache of its own.
        return lm.copy(rollout_id=number, temperature=TEMPERATURE)

    context = current()
    roles = {role: sampling(lm) for role, lm in context.role_lms.items()}
    with use(replace(context, role_lms=roles), lm=sampling(dspy.settings.lm)):
        return program(question=question)
