"""Exact match, F1 and contain-match, as defined by the scripts of the data sets.

HotpotQA v1 (Yang et al. 2018, arXiv:1809.09600), SQuAD v1.1 (Rajpurkar et al. 2016,
arXiv:1606.05250), MuSiQue v1.0 (Trivedi et al. 2022, arXiv:2108.00573), 2WikiMultiHopQA v1.1 (Ho et
al. 2020, arXiv:2011.01060). Every metric takes the best score over all gold answers.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

import regex

from ragbench.metrics.base import add_amount, add_metric, once
from ragbench.metrics.text import normalise_answer
from ragbench.record import Record
from ragbench.text_normalization import with_spaces

#: Answers without partial credit in HotpotQA.
CLOSED = frozenset({"yes", "no", "noanswer"})
#: Punctuation of any script.
_MARKS = regex.compile(r"\p{P}+")

Compare = Callable[[str, str], float]


class Overlap(NamedTuple):
    """Precision, recall and F1 of two bags of words, each in [0, 1]."""

    precision: float
    recall: float
    f1: float


NOTHING = Overlap(0.0, 0.0, 0.0)


def exact_match(pred: str, gold: str) -> float:
    """Return 1.0 if both texts are equal after normalization, else 0.0.

    Two texts that normalize to nothing match.

    Args:
        pred: Prediction.
        gold: Gold answer.
    """
    return float(normalise_answer(pred) == normalise_answer(gold))


@lru_cache(maxsize=4096)  # Many metrics compare the same two texts.
def _words_overlap(pred: str, gold: str) -> Overlap:
    """Compute the overlap of two bags of words. All zero if they share no word."""
    a = pred.split()
    b = gold.split()
    common = (Counter(a) & Counter(b)).total()
    if not common:
        return NOTHING
    return Overlap(common / len(a), common / len(b), 2 * common / (len(a) + len(b)))


def hotpot_overlap(pred: str, gold: str) -> Overlap:
    """Compute the token overlap of two answers as HotpotQA does.

    If either one is yes, no or noanswer, both must be equal.

    Args:
        pred: Prediction.
        gold: Gold answer.
    """
    a = normalise_answer(pred)
    b = normalise_answer(gold)
    if a != b and (a in CLOSED or b in CLOSED):
        return NOTHING
    return _words_overlap(a, b)


def token_f1(pred: str, gold: str) -> float:
    """Compute HotpotQA's F1 of two answers, in [0, 1].

    Args:
        pred: Prediction.
        gold: Gold answer.
    """
    return hotpot_overlap(pred, gold).f1


def squad_token_f1(pred: str, gold: str) -> float:
    """Compute SQuAD v1.1's F1, in [0, 1]: no rule for yes and no, and 0 if both are empty.

    Args:
        pred: Prediction.
        gold: Gold answer.
    """
    return _words_overlap(normalise_answer(pred), normalise_answer(gold)).f1


def musique_token_f1(pred: str, gold: str) -> float:
    """Compute MuSiQue v1.0's F1, in [0, 1]: SQuAD's, but 1 if both normalize to nothing.

    Args:
        pred: Prediction.
        gold: Gold answer.
    """
    a = normalise_answer(pred)
    b = normalise_answer(gold)
    if a and b:
        return _words_overlap(a, b).f1
    return float(a == b)


def contains(pred: str, gold: str) -> float:
    """Return 1.0 if the normalized gold is a substring of the normalized prediction, else 0.0.

    The published rule is Python's `in`, by which a gold that normalizes to nothing ("The") is in
    every prediction. Here such a gold must match exactly. A blank prediction contains nothing: its
    substitute, noanswer, would contain "no" and "answer".

    Args:
        pred: Prediction.
        gold: Gold answer.
    """
    inner = normalise_answer(gold)
    if not inner or is_blank_answer(pred):
        return exact_match(pred, gold)
    return float(inner in normalise_answer(pred))


def is_blank_answer(answer: str | None) -> bool:
    """Return True if the answer is None, blank, or the substitute "noanswer"."""
    return not (answer and answer.strip()) or normalise_answer(answer) == "noanswer"


def best(compare: Compare, pred: str, answers: Sequence[str]) -> float:
    """Return the highest score of a prediction over the gold answers.

    Args:
        compare: Score of a prediction and a gold answer.
        pred: Prediction.
        answers: Gold answers, at least one.
    """
    return max(compare(pred, answer) for answer in answers)


def is_answerable(record: Record) -> bool:
    """Return False if the searched data has no answer to the question (`metrics.abstention`)."""
    return record.extra.get("answerable") is not False


def is_open_question(record: Record) -> bool:
    """Return True if the answer is neither yes or no nor named in the question."""
    question = f" {normalise_answer(record.question)} "
    for answer in map(normalise_answer, record.answers):
        if answer in ("yes", "no") or f" {answer} " in question:
            return False
    return True


@cache
def best_of_answer(compare: Compare) -> Callable[[Record], float | None]:
    """Return the function that computes `best` for a record, cached by `compare`.

    The function returns None for a question without an answer: a refusal is correct.
    """

    def score(record: Record) -> float | None:
        if not is_answerable(record):
            return None
        return best(compare, record.answer_text, record.answers)

    return once(score)


def char_f1(pred: str, gold: str) -> float:
    """Compute F1 with each character of a script without spaces as a token, in [0, 1].

    Args:
        pred: Prediction.
        gold: Gold answer.
    """
    a, b = (with_spaces(_MARKS.sub(" ", normalise_answer(text))) for text in (pred, gold))
    return _words_overlap(a, b).f1


_HOTPOT_F1 = best_of_answer(token_f1)
_MUSIQUE_F1 = best_of_answer(musique_token_f1)


def official_f1(record: Record) -> float | None:
    """Compute F1 as the question's data set defines it, by default HotpotQA's (and 2Wiki's)."""
    return (_MUSIQUE_F1 if record.extra.get("f1") == "musique" else _HOTPOT_F1)(record)


add_metric(
    "em",
    best_of_answer(exact_match),
    "exact match: the definition of HotpotQA, SQuAD, MuSiQue and 2WikiMultiHopQA",
    source="hotpot_evaluate_v1.py, evaluate-v1.1.py, evaluate_v1.0.py, 2wikimultihop_evaluate_v1.1",
)
add_metric(
    "f1",
    official_f1,
    "token F1 of the data set's script; in HotpotQA's, yes, no and noanswer must match exactly",
    source="HotpotQA, hotpot_evaluate_v1.py; for MuSiQue evaluate_v1.0.py",
)
add_metric(
    "squad_f1",
    best_of_answer(squad_token_f1),
    "token F1, SQuAD: no rule for yes and no",
    source="SQuAD v1.1, evaluate-v1.1.py",
)
add_metric(
    "f1_chars",
    best_of_answer(char_f1),
    "token F1 with each Chinese, Japanese, Thai, Lao, Khmer or Burmese character as a token",
    source="MLQA (arXiv:1910.07475), its mixed segmentation",
)
add_metric(
    "contain",
    best_of_answer(contains),
    "the prediction contains the gold answer",
    source="LinearRAG (arXiv:2510.10114), A-RAG",
)
add_amount(
    "answer_length",
    lambda record: None if record.failed else float(len(record.answer_text.split())),
    "number of words in the answer; contain favors long answers",
)
