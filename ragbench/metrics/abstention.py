"""Metrics of refusals, for data in which some questions have no answer.

A question has no answer if its example has `answerable: false`: in MuSiQue's Full set (Trivedi et
al. 2022, arXiv:2108.00573), or in a data set without some gold passages (`--unanswerable`). A blank
answer is a refusal, and so is an answer that states that there is none (`metrics.text.is_refusal`).
A failed question has the worst score.
"""

from typing import TypeGuard

from ragbench.metrics.answer import best_of_answer, exact_match, is_answerable
from ragbench.metrics.base import Metric, add
from ragbench.metrics.text import is_blank, is_refusal
from ragbench.record import Record


def refused(record: Record) -> bool:
    """Return True if the answer of `record` is blank or states that there is none."""
    return is_blank(record.answer_text) or is_refusal(record.answer_text)


def confidence(record: Record) -> float | None:
    """Return the program's confidence in its answer, on its own scale. None if unknown.

    A user's module reports it as its output `confidence`. Otherwise it is the `confidence` or
    `score` in the notes of the steps: the highest of the steps that returned the answer, else the
    last.
    """
    if record.failed or refused(record):
        return None
    output = record.extra.get("outputs", {}).get("confidence")
    if _is_number(output):
        return float(output)
    values: list[float] = []
    of_answer: list[float] = []
    for step in record.steps:
        value = step.notes.get("confidence", step.notes.get("score"))
        if _is_number(value):
            values.append(float(value))
            if step.observation == record.answer_text:
                of_answer.append(values[-1])
    return max(of_answer or values[-1:], default=None)


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _answer_rate(record: Record) -> float:
    return float(not (record.failed or refused(record)))


def _selective_accuracy(record: Record) -> float | None:
    if record.failed:
        return 0.0
    if refused(record):
        return None
    if not is_answerable(record):
        return 0.0
    return best_of_answer(exact_match)(record)


def _correct_refusal_rate(record: Record) -> float | None:
    if is_answerable(record):
        return None
    return 1 - _answer_rate(record) - record.failed


def _false_refusal_rate(record: Record) -> float | None:
    if is_answerable(record):
        return 1 - _answer_rate(record)
    return None


add(Metric("answer_rate", _answer_rate, "share of answers that are not refusals"))
add(
    Metric(
        "selective_accuracy",
        _selective_accuracy,
        "exact match of the answers that are not refusals",
    )
)
add(
    Metric(
        "correct_refusal_rate",
        _correct_refusal_rate,
        "refusals of the questions without an answer",
    )
)
add(
    Metric(
        "false_refusal_rate",
        _false_refusal_rate,
        "refusals of the questions that have an answer, and their failures",
        worst=1.0,
        higher_is_better=False,
    )
)
