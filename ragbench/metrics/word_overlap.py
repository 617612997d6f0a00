"""The claims of a program, and the share of them whose words stand in what it retrieved.

By the rule of `ragbench.metrics.grounding`, which tests words and not meaning: swapped roles and
another relation between the same names pass. The judged metrics are for that.
"""

from collections.abc import Sequence

from ragbench.metrics.base import add_metric
from ragbench.metrics.grounding import grounded, sentences
from ragbench.metrics.kinds import answer_kind
from ragbench.metrics.text import is_blank
from ragbench.record import Record

#: Actions whose thought says what to do, and not what is so.
_NO_CLAIMS = frozenset({"decompose"})


def claims_of_chain(record: Record) -> list[str]:
    """The sentences of a program's thoughts; empty where it wrote down none.

    A single word, such as the move that a planner chose, claims nothing, nor does the instruction
    by which a question is taken apart.
    """
    steps = (step for step in record.steps if step.action not in _NO_CLAIMS)
    lines = (line for step in steps for line in sentences(step.thought))
    return [line for line in lines if len(line.split()) > 1 and not is_blank(line)]


def claims_of_answer(record: Record) -> list[str]:
    """The sentences of an answer; none of a yes or no, which claims nothing to be looked up."""
    answer = record.answer_text
    if answer_kind(answer) == "yes_no":
        return []
    return [line for line in sentences(answer) if not is_blank(line)]


def chain_word_overlap(record: Record) -> float | None:
    """The share of the sentences of a program's thoughts whose words stand in what it retrieved.

    None where it wrote down no thought.
    """
    return _share(claims_of_chain(record), record)


def answer_word_overlap(record: Record) -> float | None:
    """The share of the answer's claims whose words stand in what was retrieved.

    None where the answer claims nothing, as a yes or no.
    """
    return _share(claims_of_answer(record), record)


def _share(claims: Sequence[str], record: Record) -> float | None:
    if not claims:
        return None
    return sum(grounded(claims, record.passages)) / len(claims)


add_metric(
    "chain_word_overlap",
    chain_word_overlap,
    "share of the sentences thought whose words stand in what was retrieved; sees no swapped roles",
)
add_metric(
    "answer_word_overlap",
    answer_word_overlap,
    "share of the answer's claims whose words stand in what was retrieved; sees no swapped roles",
)
