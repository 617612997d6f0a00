"""DROP's exact match and F1, as IRCoT scores answers (Dua et al. 2019, arXiv:1903.00161).

IRCoT (Trivedi et al. 2023, arXiv:2212.10509) extracts the answer from a chain of thought, splits
apparent lists, repairs the encoding with ftfy, and compares only with the canonical answer.
"""

import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

from ragbench.metrics.base import add_metric, once
from ragbench.metrics.text import ARTICLES, strip_punctuation
from ragbench.record import Record

_ANSWER_IS = re.compile(r".* answer is:? (.*)\.?")


class DropScore(NamedTuple):
    """Exact match (0 or 1) and F1, rounded to two decimals as DROP does per question."""

    em: float
    f1: float


def drop_score(pred: Sequence[str], gold: Sequence[str]) -> DropScore:
    """Compute DROP's score of predicted spans.

    Spans are matched one to one for the highest F1. A gold span with numbers scores 0 unless the
    prediction shares one of them. F1 is over sets of words, averaged over the longer list.

    Args:
        pred: Predicted spans, at least one.
        gold: Gold spans, at least one.
    """
    predicted = list(map(_normalise, pred))
    gold_spans = list(map(_normalise, gold))
    same = set(predicted) == set(gold_spans) and len(predicted) == len(gold_spans)
    if len(predicted) == len(gold_spans) == 1:
        mean = _span_f1(predicted[0], gold_spans[0])
    else:
        import numpy as np  # Slow to load, and few answers are lists.
        from scipy.optimize import linear_sum_assignment

        pairs = itertools.product(gold_spans, predicted)
        scores = [_span_f1(span, gold_span) for gold_span, span in pairs]
        grid = np.array(scores).reshape(len(gold_spans), len(predicted))
        rows, columns = linear_sum_assignment(grid, maximize=True)
        mean = grid[rows, columns].sum() / max(len(predicted), len(gold_spans))
    return DropScore(float(same), round(mean * 100) / 100)  # Equal to np.round with 2 decimals.


def spans_of(prediction: str) -> list[str]:
    """Return the spans that IRCoT reads in a prediction. Splits a bracketed list at commas."""
    bare = prediction.strip()
    if bare.startswith("[") or bare.endswith("]"):
        spans = re.sub(r'["\[\]]', "", prediction).split(",")
    else:
        spans = [prediction]
    return [mended(answer_of(span)) for span in spans]


def mended(text: str) -> str:
    """Repair `text` with ftfy. Skips printable ASCII without HTML entities."""
    if text.isascii() and text.isprintable() and "&" not in text:
        return text
    import ftfy  # Slow to load, and few answers need it.

    fixed: str = ftfy.fix_text(text)
    return fixed


def answer_of(text: str) -> str:
    """Return the text after the last " answer is" of a chain of thought, or all of `text`."""
    if text.startswith('"') and text.endswith('"'):
        text = text[1:-1]
    match = _ANSWER_IS.match(text)
    if match:
        return match[1].removesuffix(".")
    return text


def _normalise(span: str) -> str:
    return " ".join(filter(None, map(_normalise_word, re.split(r"[ -]", span.lower()))))


def _normalise_word(word: str) -> str:
    # Keep punctuation in words that Python reads as numbers ("1.50"). Remove all other punctuation.
    bare = word if _is_number(word) else strip_punctuation(word)
    if _is_number(bare):
        bare = str(float(bare))
    return " ".join(ARTICLES.sub(" ", bare).split())


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _span_f1(pred: str, gold: str) -> float:
    predicted = set(pred.split())
    gold_words = set(gold.split())
    numbers = set(filter(_is_number, gold_words))
    if numbers and not numbers & predicted:
        return 0.0
    if not predicted or not gold_words:
        return float(predicted == gold_words)
    common = len(predicted & gold_words)
    precision = common / len(predicted)
    recall = common / len(gold_words)
    # Not 2c/(p+g), whose last bit may differ: the result is rounded, and halves must round alike.
    if common:
        return 2 * precision * recall / (precision + recall)
    return 0.0


@once
def _score(record: Record) -> DropScore:
    return drop_score(spans_of(record.answer_text), [mended(record.answers[0])])


_SOURCE = "DROP's script as in IRCoT's evaluate.py"
add_metric(
    "drop_em",
    lambda record: _score(record).em,
    "exact match, DROP as IRCoT uses it: numbers as numbers, canonical answer only",
    source=_SOURCE,
)
add_metric(
    "drop_f1",
    lambda record: _score(record).f1,
    "F1 over sets of words, DROP as IRCoT uses it: a number in the gold must be found",
    source=_SOURCE,
)
