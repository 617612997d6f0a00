"""Scores that a model gave when the run was scored, read from the record, and what it is asked of.

They stand in the record's `scores` under the name of their metric. An answer without a usable reply
has none: it is out of the mean and counted as `unscored` beside it. (Code published for
GraphRAG-Bench, Xiang et al. 2025, arXiv:2506.05690, gives an unreadable reply an empty list, and
two empty lists the score 1.)
"""

import re
from collections.abc import Mapping
from itertools import pairwise

from ragbench.metrics.base import Metric, add, add_metric
from ragbench.metrics.support import harmonic
from ragbench.metrics.text import answer_kind, is_blank
from ragbench.record import Record

#: Metrics of claims, which one pass fills.
GROUNDED = ("chain_fidelity_judged", "hallucination_rate_judged")
#: Metrics that a judge fills.
JUDGED = ("judge", "judge_arag", *GROUNDED)
#: GraphRAG-Bench's, which a model fills too.
ASKED = {
    "answer_correctness": "three quarters statement F1 by a model, one quarter similarity",
    "coverage": "share of the gold answer's facts that the answer has, by a model",
    "faithfulness": "share of the answer's statements that the passages support, by a model",
}
#: Question type of GraphRAG-Bench -> the scores that are taken of it.
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
#: Actions whose thought says what to do, and not what is so.
_NO_CLAIMS = frozenset({"decompose"})


def _sentences(text: str) -> list[str]:
    return [sentence.strip() for sentence in _SENTENCE.split(text) if not is_blank(sentence)]


def claims_of_chain(record: Record) -> list[str]:
    """The sentences of a program's thoughts; empty where it wrote down none.

    A single word, such as the move that a planner chose, claims nothing, nor does the instruction
    by which a question is taken apart.
    """
    thoughts = (step.thought for step in record.steps if step.action not in _NO_CLAIMS)
    lines = (line for thought in thoughts for line in _sentences(thought))
    return [line for line in lines if len(line.split()) > 1]


def claims_of_answer(record: Record) -> list[str]:
    """The sentences of an answer; none of a yes or no, which claims nothing to be looked up."""
    answer = record.answer_text
    if answer_kind(answer) == "yes_no":
        return []
    return _sentences(answer)


def says_something(text: str) -> bool:
    """Whether `text` reads as a sentence: more than six words, or it ends like one."""
    return len(text.split()) > 6 or text.rstrip().endswith((".", "!", "?"))


def rouge_l(pred: str, gold: str) -> float:
    """ROUGE-L's F1: the longest common subsequence of lower-case words, which are not stemmed."""
    a = _WORD.findall(pred.lower())
    b = _WORD.findall(gold.lower())
    if not a or not b:
        return 0.0
    row = [0] * (len(b) + 1)  # lengths of the longest common subsequence so far
    for word in a:
        before = row
        row = [0]
        for token, (corner, above) in zip(b, pairwise(before), strict=True):
            row.append(corner + 1 if word == token else max(above, row[-1]))
    return harmonic(row[-1] / len(a), row[-1] / len(b))


def statement_f1(supported: int, unsupported: int, missing: int) -> float | None:
    """F1 of an answer's statements against the gold's; None where there are none at all."""
    if not supported + unsupported + missing:
        return None
    return 2 * supported / (2 * supported + unsupported + missing)


def answer_correctness(factual: float | None, cosine: float) -> float | None:
    """Three quarters statement F1, one quarter similarity, in [0, 1]; `cosine` in [-1, 1]."""
    if factual is None:
        return None
    return _FACTUAL_WEIGHT * factual + (1 - _FACTUAL_WEIGHT) * (cosine + 1) / 2


def share(count: float, total: int) -> float | None:
    """`part` of `whole`, for coverage and faithfulness; None where there is nothing to count."""
    if total:
        return count / total
    return None


def _asked(name: str, description: str, source: str = "", *, worst: float = 0.0) -> None:
    """Register a metric that a model fills; a failed record has the `worst` score, 0 or 1."""

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
_asked("judge", "correct by meaning, as a judge sees it with the question")
_asked(
    "judge_arag",
    "correct by A-RAG's and LinearRAG's rule: a judge that is not shown the question",
    "A-RAG (Du et al. 2026), LinearRAG (arXiv:2510.10114)",
)
_asked(
    "chain_fidelity_judged",
    "share of the sentences thought that are grounded in what was retrieved, by a judge",
)
_asked(
    "hallucination_rate_judged",
    "share of the answer's claims not grounded in what was retrieved, by a judge",
    worst=1.0,
)
