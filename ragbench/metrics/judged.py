"""Scores by a model, read from the record, and the inputs of its judgments.

They are in the record's `scores` under the name of their metric. An answer without a usable reply
has no score. The mean excludes it, and `unscored` counts it. (Code published for GraphRAG-Bench,
Xiang et al. 2025, arXiv:2506.05690, treats an unreadable reply as an empty list, and two empty
lists score 1.)
"""

import re
from collections.abc import Mapping
from itertools import pairwise

from ragbench.metrics.base import Metric, add, add_metric
from ragbench.metrics.support import harmonic
from ragbench.metrics.text import answer_kind, is_blank
from ragbench.record import Record

#: Metrics of claims, filled in one pass.
GROUNDED = ("chain_fidelity_judged", "hallucination_rate_judged")
#: Metrics that a judge fills.
JUDGED = ("judge", "judge_arag", *GROUNDED)
#: Metrics of GraphRAG-Bench that a model fills.
ASKED = {
    "answer_correctness": "three quarters statement F1 by a model, one quarter similarity",
    "coverage": "share of the gold answer's facts that the answer has, by a model",
    "faithfulness": "share of the answer's statements that the passages support, by a model",
}
#: Question type of GraphRAG-Bench -> its scores.
SCORES_OF_TYPE: Mapping[str, tuple[str, ...]] = {
    "Fact Retrieval": ("rouge_l", "answer_correctness"),
    "Complex Reasoning": ("rouge_l", "answer_correctness"),
    "Contextual Summarize": ("answer_correctness", "coverage"),
    "Creative Generation": ("answer_correctness", "coverage", "faithfulness"),
}
_FACTUAL_WEIGHT = 0.75
_GRAPHRAG_BENCH = "GraphRAG-Bench, generation_eval.py"

_WORD = re.compile(r"[a-z0-9]+")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[\"'(\u201c]?[A-Z0-9])")
#: Actions whose thought is an instruction and not a claim.
_NO_CLAIMS = frozenset({"decompose"})


def _sentences(text: str) -> list[str]:
    return [sentence.strip() for sentence in _SENTENCE.split(text) if not is_blank(sentence)]


def claims_of_chain(record: Record) -> list[str]:
    """Return the sentences of a program's thoughts. Empty if it has none.

    A single word, such as the action of a planner, is not a claim, and neither is an instruction to
    decompose a question.
    """
    thoughts = (step.thought for step in record.steps if step.action not in _NO_CLAIMS)
    lines = (line for thought in thoughts for line in _sentences(thought))
    return [line for line in lines if len(line.split()) > 1]


def claims_of_answer(record: Record) -> list[str]:
    """Return the sentences of an answer. Empty for yes or no, which makes no claim."""
    answer = record.answer_text
    if answer_kind(answer) == "yes_no":
        return []
    return _sentences(answer)


def says_something(text: str) -> bool:
    """Return True if `text` looks like a sentence: over six words, or ends like one."""
    return len(text.split()) > 6 or text.rstrip().endswith((".", "!", "?"))


def rouge_l(pred: str, gold: str) -> float:
    """Compute ROUGE-L F1: longest common subsequence of lower-case words, without stemming.

    Args:
        pred: Prediction.
        gold: Gold answer.

    Returns:
        F1, in [0, 1].
    """
    a = _WORD.findall(pred.lower())
    b = _WORD.findall(gold.lower())
    if not a or not b:
        return 0.0
    row = [0] * (len(b) + 1)  # Lengths of the longest common subsequence.
    for word in a:
        before = row
        row = [0]
        for token, (corner, above) in zip(b, pairwise(before), strict=True):
            row.append(corner + 1 if word == token else max(above, row[-1]))
    return harmonic(row[-1] / len(a), row[-1] / len(b))


def statement_f1(supported: int, unsupported: int, missing: int) -> float | None:
    """Compute F1 of an answer's statements against those of the gold answer.

    Args:
        supported: Number of statements that the gold answer supports.
        unsupported: Number of statements that it does not support.
        missing: Number of gold statements that the answer lacks.

    Returns:
        F1, in [0, 1]. None if there are no statements.
    """
    if not supported + unsupported + missing:
        return None
    return 2 * supported / (2 * supported + unsupported + missing)


def answer_correctness(factual: float | None, cosine: float) -> float | None:
    """Combine three quarters statement F1 and one quarter similarity.

    Args:
        factual: Statement F1, in [0, 1]. None if unknown.
        cosine: Cosine similarity of the embeddings, in [-1, 1].

    Returns:
        The score, in [0, 1]. None if `factual` is None.
    """
    if factual is None:
        return None
    return _FACTUAL_WEIGHT * factual + (1 - _FACTUAL_WEIGHT) * (cosine + 1) / 2


def share(count: float, total: int) -> float | None:
    """Return `count` divided by `total`, for coverage and faithfulness.

    Args:
        count: Number of statements that count.
        total: Number of statements.

    Returns:
        The share. None if `total` is 0.
    """
    if total:
        return count / total
    return None


def _asked(name: str, description: str, source: str = "", *, worst: float = 0.0) -> None:
    """Register a metric that a model fills. A failed record has the `worst` score, 0 or 1."""

    def score(record: Record) -> float | None:
        value = worst if record.failed else record.scores.get(name)
        if value is None:
            return None
        return float(value)

    add(Metric(name, score, description, source, worst, higher_is_better=worst == 0.0))


add_metric(
    "rouge_l",
    lambda record: rouge_l(record.answer_text, record.answers[0]),
    "ROUGE-L F1 against the first gold answer, words not stemmed",
    source=_GRAPHRAG_BENCH,
)
for _name, _description in ASKED.items():
    _asked(_name, _description, _GRAPHRAG_BENCH)
_asked("judge", "correct by meaning, according to a judge that sees the question")
_asked(
    "judge_arag",
    "correct by A-RAG's and LinearRAG's rule: a judge that does not see the question",
    "A-RAG (Du et al. 2026), LinearRAG (arXiv:2510.10114)",
)
_asked(
    "chain_fidelity_judged",
    "share of the program's thoughts that the retrieved passages support, by a judge",
)
_asked(
    "hallucination_rate_judged",
    "share of the answer's claims that the retrieved passages do not support, by a judge",
    worst=1.0,
)
