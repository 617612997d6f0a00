"""The certificate of a question: the checks and calls that show that it needs every hop.

What a text shows is checked first, then what a model shows: the reader with all passages gives the
answer, in both orders of theirs; without any one of them it does not state it; from memory it does
not. A question is kept
only where all hold, and the first that does not is the reason why it was dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ragbench.experiments.questions.chains import Chain
from ragbench.metrics import normalise_answer, token_f1
from ragbench.words import words

#: Overlap of two answers from which they count as the same.
SAME = 0.75
#: Share of their words from which two questions are one.
ALIKE = 0.8

#: Answers a question from passages; from none it is asked from memory.
Reader = Callable[[str, Sequence[str]], str]


@dataclass(frozen=True)
class Draft:
    """What the writer gave for a chain."""

    question: str
    answer: str
    sentences: tuple[str, ...]


@dataclass
class Certificate:
    """The results of the checks, in the order made; `reason` is the one that failed, if any."""

    checks: dict[str, Any] = field(default_factory=dict)
    reason: str = ""

    @property
    def holds(self) -> bool:
        """Whether every check holds."""
        return not self.reason


def certify(
    draft: Draft, chain: Chain, reader: Reader, *, questions: Sequence[str] = ()
) -> Certificate:
    """Returns the certificate of `draft`; `questions` are those kept so far.

    Calls are made only while every check before them holds.
    """
    certificate = Certificate()
    certificate.reason = text_reason(draft, chain, questions)
    if certificate.reason:
        return certificate
    texts = list(map(str, chain.passages))
    checks = certificate.checks
    checks["with_all"] = []
    orders = [texts] if len(texts) == 1 else [texts, texts[::-1]]
    for context in orders:
        answer = reader(draft.question, context)
        checks["with_all"].append(answer)
        if not is_same(answer, draft.answer):
            certificate.reason = "the passages do not give the answer"
            return certificate
    checks["memory"] = reader(draft.question, ())
    if is_same(checks["memory"], draft.answer):
        certificate.reason = "known from memory"
        return certificate
    checks["without"] = []
    for left_out in range(len(texts)) if len(texts) > 1 else ():
        context = texts[:left_out] + texts[left_out + 1 :]
        answer = reader(draft.question, context)
        checks["without"].append(answer)
        if is_same(answer, draft.answer):
            certificate.reason = f"passage {left_out + 1} is not needed"
            return certificate
    return certificate


def text_reason(draft: Draft, chain: Chain, questions: Sequence[str]) -> str:
    """Returns the first check of the texts that does not hold; blank where all do."""
    for name, holds in _text_checks(draft, chain, questions):
        if not holds:
            return f"not so: {name}"
    return ""


def is_same(answer: str, reference: str) -> bool:
    """Whether two answers are the same once normalised, or nearly."""
    if normalise_answer(answer) == normalise_answer(reference):
        return True
    return token_f1(answer, reference) >= SAME


def _text_checks(
    draft: Draft, chain: Chain, questions: Sequence[str]
) -> Sequence[tuple[str, bool]]:
    """Returns each check of the texts alone, and whether it holds."""
    answer = f" {normalise_answer(draft.answer)} "
    question = f" {normalise_answer(draft.question)} "
    last_passage = f" {normalise_answer(str(chain.passages[-1]))} "
    quoted = len(draft.sentences) == len(chain.passages)
    for sentence, passage in zip(draft.sentences, chain.passages, strict=False):
        body = " ".join(f"{passage.title} {passage.text}".split())
        quoted = quoted and bool(sentence.strip()) and " ".join(sentence.split()) in body
    question_words = set(words(draft.question))
    alike = False
    for earlier in questions:
        earlier_words = set(words(earlier))
        shared = question_words & earlier_words
        alike = alike or len(shared) >= ALIKE * len(question_words | earlier_words)
    hidden = [f" {normalise_answer(link)} " for link in chain.links]
    return (
        ("a question and an answer", bool(answer.strip() and question.strip())),
        ("the sentences stand in the passages", quoted),
        ("the answer stands in the last passage", answer in last_passage),
        ("the answer is not in the question", answer not in question),
        ("the question names no link", not any(link in question for link in hidden)),
        ("no other question has its words", not alike),
    )
