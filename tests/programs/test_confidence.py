"""Probabilities of labels: stated, and from the tokens of a reply."""

import math
from types import SimpleNamespace
from typing import Any

import dspy
import pytest

from ragbench.errors import LMSetupError
from ragbench.programs.core.confidence import _from_tokens, ask_probabilities, grader
from ragbench.programs.core.trace import Budget, Trace
from ragbench.signatures.judging import IsRel, IsUse, RetrievalDecision
from tests.programs.shelf import shelf

QUESTION = "Where was the author of the novel Salt Road born?"


def test_logprob_needs_an_lm_that_gives_them() -> None:
    trace = Trace(QUESTION, shelf(), Budget(9, 9))
    with pytest.raises(LMSetupError, match="set confidence_source to verbal"):
        ask_probabilities(
            trace,
            lambda question: dspy.Prediction(retrieve=True),
            "retrieve",
            (True, False),
            source="logprob",
            question=QUESTION,
        )


def tokens(*given: tuple[str, dict[str, float]]) -> Any:
    """Token probabilities as DSPy hands them on; the first alternative is the one written."""
    content = [
        SimpleNamespace(
            token=text,
            logprob=math.log(options.get(text, 1.0)),
            top_logprobs=[
                SimpleNamespace(token=t, logprob=math.log(p)) for t, p in options.items()
            ],
        )
        for text, options in given
    ]
    return dspy.Prediction(logprobs=SimpleNamespace(content=content))


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ((" relevant", {" relevant": 0.6, " irrelevant": 0.2, " a": 0.2}), 0.75),
        (("rel", {"rel": 0.6, "ir": 0.3, '"rel': 0.1}), 0.7),
        (("relevant", {"relevant": 1.0}), 1.0),
    ],
)
def test_token_probabilities_are_read_at_the_place_of_the_label(
    place: tuple[str, dict[str, float]], expected: float
) -> None:
    text, options = place
    rest = "" if text.strip() == "relevant" else "evant"
    reply = tokens(('{"', {}), ("relevance", {}), ('": "', {}), (text, options), (rest, {}))
    found = _from_tokens(reply, "relevance", "relevant", ("relevant", "irrelevant"))
    assert found["relevant"] == pytest.approx(expected)
    assert sum(found.values()) == pytest.approx(1.0)


def test_token_probabilities_of_numbers_and_booleans() -> None:
    reply = tokens(('{"utility": ', {}), ("4", {"4": 0.5, "5": 0.25, "1": 0.25}), ("}", {}))
    found = _from_tokens(reply, "utility", 4, (1, 2, 3, 4, 5))
    assert found == pytest.approx({1: 0.25, 2: 0, 3: 0, 4: 0.5, 5: 0.25})
    reply = tokens(('{"retrieve":', {}), (" false", {" false": 0.6, " true": 0.4}), ("}", {}))
    assert _from_tokens(reply, "retrieve", False, (True, False))[True] == pytest.approx(0.4)


def test_logprob_asks_the_lm_for_its_alternatives() -> None:
    for signature, field in ((IsRel, "relevance"), (IsUse, "utility")):
        predictor = grader(signature, field, "logprob")
        assert predictor.config == {"logprobs": True, "top_logprobs": 20}
        assert "confidence" not in predictor.signature.output_fields


def test_a_stated_label_is_never_less_likely_than_by_chance() -> None:
    trace = Trace(QUESTION, shelf(), Budget(9, 9))

    def gate(question: str) -> dspy.Prediction:
        return dspy.Prediction(retrieve=False, confidence=0.0)

    found = ask_probabilities(
        trace, gate, "retrieve", (True, False), source="verbal", question=QUESTION
    )
    assert found == {True: 0.5, False: 0.5}
    assert "confidence" in RetrievalDecision.output_fields
