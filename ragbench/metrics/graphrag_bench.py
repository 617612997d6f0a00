"""GraphRAG-Bench's generation scores (Xiang et al. 2025, arXiv:2506.05690).

ROUGE-L is a function of the two texts. The others need a model; it is asked when a run is scored,
and its counts are turned into scores here. They are read from the record's `scores`, and a reply
that could not be read leaves none: published code gives an unreadable reply an empty list, and two
empty lists the score 1.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from ragbench.metrics.base import add_metric
from ragbench.metrics.judged import asked_metric
from ragbench.metrics.support import harmonic

SOURCE = "GraphRAG-Bench, generation_eval.py"

FACTUAL_WEIGHT = 0.75

#: Question type -> the scores that are taken of it.
SCORES_OF_TYPE: Mapping[str, tuple[str, ...]] = {
    "Fact Retrieval": ("rouge_l", "answer_correctness"),
    "Complex Reasoning": ("rouge_l", "answer_correctness"),
    "Contextual Summarize": ("answer_correctness", "coverage"),
    "Creative Generation": ("answer_correctness", "coverage", "faithfulness"),
}

_WORD = re.compile(r"[a-z0-9]+")


def rouge_l(pred: str, gold: str) -> float:
    """ROUGE-L's F1 of two texts: their longest common subsequence of lower-case words.

    Words are not stemmed.
    """
    a, b = _WORD.findall(pred.lower()), _WORD.findall(gold.lower())
    if not a or not b:
        return 0.0
    common = _longest_common(a, b)
    return harmonic(common / len(a), common / len(b))


def _longest_common(a: Sequence[str], b: Sequence[str]) -> int:
    row = [0] * (len(b) + 1)
    for word in a:
        before = row
        row = [0]
        for other, (corner, above) in zip(b, pairwise(before), strict=True):
            row.append(corner + 1 if word == other else max(above, row[-1]))
    return row[-1]


def statement_f1(supported: int, unsupported: int, missing: int) -> float | None:
    """F1 of an answer's statements against the gold's; None where there are none at all."""
    if not supported + unsupported + missing:
        return None
    return 2 * supported / (2 * supported + unsupported + missing)


def answer_correctness(factual: float | None, cosine: float) -> float | None:
    """Three quarters statement F1, one quarter similarity, in [0, 1]; `cosine` in [-1, 1]."""
    if factual is None:
        return None
    return FACTUAL_WEIGHT * factual + (1 - FACTUAL_WEIGHT) * (cosine + 1) / 2


def share(part: int, whole: int) -> float | None:
    """`part` of `whole`, for coverage and faithfulness; None where there is nothing to count."""
    return part / whole if whole else None


add_metric(
    "rouge_l",
    lambda record: rouge_l(record.answer_text, record.answers[0]),
    "ROUGE-L F1 against the first gold answer, words not stemmed",
    source=SOURCE,
)
#: Metrics that a model fills when a run is scored.
ASKED = {
    "answer_correctness": "three quarters statement F1 by a model, one quarter similarity",
    "coverage": "share of the gold answer's facts that the answer has, by a model",
    "faithfulness": "share of the answer's statements that the passages support, by a model",
}
for _name, _description in ASKED.items():
    asked_metric(_name, _description, SOURCE)
