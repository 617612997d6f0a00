"""The certificate of a question: the checks and calls that show that it needs every hop.

Checks of the texts come first, then the answers of a reader. With all passages, in both orders, the
reader gives the answer. Without one of them, or from memory, it does not. A question is kept only
if all checks pass. The first failed check is the reason for dropping it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ragbench.experiments.questions.chains import PassageChain
from ragbench.metrics import normalise_answer, token_f1
from ragbench.sentences import split_sentences
from ragbench.text_normalization import words

#: Minimum F1 of two answers that count as the same.
SAME = 0.75
#: Minimum share of common words of two questions that count as the same.
ALIKE = 0.8

#: Function that answers a question from passages, or from memory without any.
Reader = Callable[[str, Sequence[str]], str]


@dataclass(frozen=True)
class Draft:
    """The question, answer and quoted sentences that the writer gave for a chain."""

    question: str
    answer: str
    sentences: tuple[str, ...]


@dataclass
class ValidationReport:
    """The results of the checks, in order. `reason` is the failed check, if any."""

    checks: dict[str, Any] = field(default_factory=dict)
    reason: str = ""


def validate_draft(
    draft: Draft, chain: PassageChain, reader: Reader, others: Sequence[str] = ()
) -> ValidationReport:
    """Check a draft. A call is made only if all earlier checks pass.

    Args:
        draft: Draft of the question.
        chain: Passages and links of the question.
        reader: Function that answers a question from passages.
        others: Texts of other passages, which must not give the answer.
    """
    reason = text_reason(draft, chain, ())
    report = ValidationReport(reason=reason)
    if reason:
        return report
    texts = list(map(str, chain.passages))
    # Each context: the check, its passages, whether they give the answer, and what a failure means.
    contexts = [("with_all", texts, True, "the passages do not give the answer")]
    if len(texts) > 1:
        contexts.append(("with_all", texts[::-1], *contexts[0][2:]))
    contexts.append(("memory", [], False, "known from memory"))
    for i in range(len(texts)) if len(texts) > 1 else ():
        without = texts[:i] + texts[i + 1 :]
        contexts.append(("without", without, False, f"passage {i + 1} is not needed"))
    if others:
        contexts.append(("others", list(others), False, "other passages give the answer too"))
    for check, context, gives_answer, failure in contexts:
        answer = reader(draft.question, context)
        report.checks.setdefault(check, []).append(answer)
        if is_same(answer, draft.answer) != gives_answer:
            report.reason = failure
            break
    return report


def text_reason(draft: Draft, chain: PassageChain, questions: Sequence[str]) -> str:
    """Return the first failed check of the texts, blank if all pass.

    Args:
        draft: Draft of the question.
        chain: Passages and links of the question.
        questions: Questions that are already kept.
    """
    checks = _text_checks(draft, chain, questions).items()
    return next((f"not so: {check}" for check, holds in checks if not holds), "")


def is_same(answer: str, reference: str) -> bool:
    """Return True if two answers are equal or nearly equal after normalization.

    Args:
        answer: Answer of the reader.
        reference: Answer of the draft.
    """
    if normalise_answer(answer) == normalise_answer(reference):
        return True
    return token_f1(answer, reference) >= SAME


def _text_checks(draft: Draft, chain: PassageChain, questions: Sequence[str]) -> dict[str, bool]:
    """Return the result of each check of the texts."""
    answer = _padded(draft.answer)
    question = _padded(draft.question)
    quoted = len(draft.sentences) == len(chain.passages)
    for quote, passage in zip(draft.sentences, chain.passages, strict=False):
        body = " ".join(f"{passage.title} {passage.text}".split())
        sentences = [" ".join(sentence.split()) for sentence in split_sentences(quote)]
        quoted = quoted and sentences != [] and all(sentence in body for sentence in sentences)
    question_words = set(words(draft.question))
    alike = False
    for earlier in map(set, map(words, questions)):
        alike |= len(question_words & earlier) >= ALIKE * len(question_words | earlier)
    return {
        "a question and an answer": bool(answer.strip() and question.strip()),
        "the sentences stand in the passages": quoted,
        "the answer stands in the last passage": answer in _padded(str(chain.passages[-1])),
        "the answer is not in the question": answer not in question,
        "the question names no link": not any(_padded(link) in question for link in chain.links),
        "no other question has its words": not alike,
    }


def _padded(text: str) -> str:
    """Return `text` normalized, with a space at either end, to match only whole words."""
    return f" {normalise_answer(text)} "
