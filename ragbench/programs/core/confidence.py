"""Probabilities of labels, from the source that an LM can provide.

- `label`: the chosen label has probability 1.
- `verbal`: the label and a confidence that the model states. Every LM can do this. It is not a
  calibrated probability.
- `logprob`: the LM's token probabilities at the position of the label in its reply.
"""

import itertools
import json
import math
import re
from collections.abc import Sequence
from typing import Any, Literal

import dspy

from ragbench.errors import LMSetupError
from ragbench.programs.core.program import predict
from ragbench.programs.core.trace import Trace
from ragbench.signatures.judging import SURE

#: Source of the confidence in a label.
Weighing = Literal["label", "verbal", "logprob"]
Label = str | int | bool

#: Requested alternatives per token: the maximum of hosted APIs.
TOP_LOGPROBS = 20


def grader(signature: type[dspy.Signature], source: Weighing) -> dspy.Module:
    """Return a predictor of a label that `ask_probabilities` can read.

    Args:
        signature: Signature of the label.
        source: Source of the probabilities: `label`, `verbal` or `logprob`.
    """
    if source == "verbal":
        confidence: Any = dspy.OutputField(desc=SURE)
        return predict(signature.append("confidence", confidence, float), like=signature)
    if source == "logprob":
        return predict(signature, logprobs=True, top_logprobs=TOP_LOGPROBS)
    return predict(signature)


def ask_probabilities(
    trace: Trace,
    grading: dspy.Module,
    field: str,
    labels: Sequence[Label],
    *,
    source: Weighing,
    **inputs: Any,
) -> dict[Label, float] | None:
    """Ask for a label and return the probability of each label.

    Args:
        trace: Trace of the question.
        grading: Predictor made by `grader` for the same source.
        field: Output field that contains the label.
        labels: All possible labels, at least two.
        source: Source of the probabilities.
        inputs: Input fields of the predictor.

    Returns:
        Probabilities that sum to 1. None if the reply cannot be read.
    """
    reply = trace.ask(grading, otherwise={field: None}, **inputs)
    value = reply[field]
    if value is None:
        return None
    if source == "logprob":
        return label_probabilities(reply, field, value, labels)
    confidence = 1.0
    if source == "verbal":
        confidence = probability(reply.get("confidence"), default=1.0)
    return _spread(value, confidence, labels)


def _spread(value: Label, confidence: float, labels: Sequence[Label]) -> dict[Label, float]:
    # The chosen label is at least as likely as by chance. The others share the rest.
    top = max(confidence, 1 / len(labels))
    remainder = (1 - top) / (len(labels) - 1)
    return {label: top if label == value else remainder for label in labels}


def label_probabilities(
    reply: dspy.Prediction, field: str, value: Label, labels: Sequence[Label]
) -> dict[Label, float]:
    """Return the probability of each label, from the first token of `value` in the reply.

    Args:
        reply: Reply with token probabilities.
        field: Output field that contains the label.
        value: Label in the reply.
        labels: All possible labels.

    Returns:
        Probabilities that sum to 1. If no token matches a label, `value` has probability 1.
    """
    content = _tokens(reply)
    weights: dict[Label, float] = dict.fromkeys(labels, 0.0)
    begin = _place(content, field, str(value))
    if begin is not None:
        ends = itertools.accumulate(len(token.token) for token in content)
        token_at = next(token for token, end in zip(content, ends, strict=True) if end > begin)
        options = {option.token: option.logprob for option in token_at.top_logprobs}
        for text, logprob in {token_at.token: token_at.logprob, **options}.items():
            token = _bare(text)
            meant = []
            for label in labels:
                if token and _bare(str(label)).startswith(token):
                    meant.append(label)
            if len(meant) == 1:  # a prefix of two labels is ambiguous
                weights[meant[0]] += math.exp(logprob)
    total = sum(weights.values())
    if total:
        return {label: weight / total for label, weight in weights.items()}
    return _spread(value, 1.0, labels)


def token_probabilities(reply: dspy.Prediction, field: str) -> list[tuple[str, float]]:
    """Return the tokens of the value of `field` in the reply, with their probabilities.

    Args:
        reply: Reply with token probabilities.
        field: Output field with the text.

    Returns:
        Pairs of token and probability in (0, 1], in order. Empty if the reply could not be read or
        its text does not contain the value.
    """
    if reply.get("parse_fallback") or reply.get("partial_reply"):
        return []
    content = _tokens(reply)
    value = str(reply[field] or "")
    for written in filter(None, (json.dumps(value, ensure_ascii=False)[1:-1], value)):
        begin = _place(content, field, written)
        if begin is None:
            continue
        end = begin + len(written)
        pairs = []
        start = 0
        for token in content:
            # The first and last token may contain characters that are not part of the value.
            text = token.token[max(begin - start, 0) : max(end - start, 0)]
            start += len(token.token)
            if text:
                pairs.append((text, math.exp(token.logprob)))
        return pairs
    return []


def _tokens(reply: dspy.Prediction) -> list[Any]:
    content = list(getattr(reply.get("logprobs"), "content", None) or [])
    if not content:
        raise LMSetupError(
            "confidence_source=logprob needs an LM that returns token probabilities, but this one "
            "returned none. Set confidence_source to verbal."
        )
    return content


def _place(content: Sequence[Any], field: str, value: str) -> int | None:
    """Return the character offset of the value of `field` in the reply, None if absent."""
    text = "".join(token.token for token in content)
    after = text.rfind(field) + len(field) if field in text else 0
    match = re.compile(re.escape(value), re.IGNORECASE).search(text, after)
    if match:
        return match.start()
    return None


def probability(value: Any, *, default: float = 0.0) -> float:
    """Convert a stated confidence to a number in [0, 1].

    Args:
        value: Stated confidence. A number above 1, up to 100, is a percentage.
        default: Result if `value` is not a number.
    """
    try:
        number = float(value)
    except (TypeError, ValueError):
        return default
    if math.isnan(number):
        return default
    return min(max(number / 100 if 1 < number <= 100 else number, 0.0), 1.0)


def _bare(token: str) -> str:
    return token.strip().strip("\"'[").strip().lower()
