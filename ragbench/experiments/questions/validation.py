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


def validate_draft(draft: Draft, chain: PassageChain, reader: Reader) -> ValidationReport:
    """Check a draft. A call is made only if all earlier checks pass.

    Args:
        draft: Draft of the question.
        chain: Passages and links of the question.
        reader: Function that answers a question from passages.
    """
    checks: dict[str, Any] = {}
    reason = text_reason(draft, chain, ())
    return ValidationReport(checks, reason or _reader_reason(draft, chain, reader, checks))


def _reader_reason(
    draft: Draft, chain: PassageChain, reader: Reader, checks: dict[str, Any]
) -> str:
    """Return the first failed check of the reader's answers. Add answers to `checks`."""
    texts = list(map(str, chain.passages))
    checks["with_all"] = []
    for context in [texts] if len(texts) == 1 else [texts, texts[::-1]]:
        checks["with_all"].append(reader(draft.question, context))
        if not is_same(checks["with_all"][-1], draft.answer):
            return "the passages do not give the answer"
    checks["memory"] = reader(draft.question, ())
    if is_same(checks["memory"], draft.answer):
        return "known from memory"
    checks["without"] = []
    for left_out in range(len(texts)) if len(texts) > 1 else ():
        context = texts[:left_out] + texts[left_out + 1 :]
        checks["without"].append(reader(draft.question, context))
        if is_same(checks["without"][-1], draft.answer):
            return f"passage {left_out + 1} is not needed"
    return ""


def text_reason(draft: Draft, chain: PassageChain, questions: Sequence[str]) -> str:
    """Return the first failed check of the texts, blank if all pass.

    Args:
        draft: Draft of the question.
        chain: Passages and links of the question.
        questions: Questions that are already kept.
    """
    for check, holds in _text_checks(draft, chain, questions).items():
        if not holds:
            return f"not so: {check}"
    return ""


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
    for sentence, passage in zip(draft.sentences, chain.passages, strict=False):
        body = " ".join(f"{passage.title} {passage.text}".split())
        sentence_parts = split_sentences(sentence)
        quoted = (
            quoted
            and bool(sentence_parts)
            and all(" ".join(p.split()) in body for p in sentence_parts)
        )
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
