"""The grounding rule piece by piece, and its two metrics on records."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ragbench.metrics import get_metric
from ragbench.metrics.grounding import grounded, sentences, stands_in
from tests.metrics.records import failure, passage, record

PASSAGES = [passage("p1"), passage("p2")]


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        ("Ann Lee wrote Red Sky.", True),
        ("Red Sky was written by Bo Dan.", False),  # a name that was not retrieved
        ("Oslo has 700,000 people.", True),
        ("Oslo has 800,000 people.", False),  # a number that was not retrieved
        ("Oslo is not the capital of Norway.", False),  # negated against the passage
        ("Ann Lee was born in the capital of Norway.", True),  # two passages joined by Oslo
        ("Oslo", True),
        ("oslo!", True),
        ("Osl", False),  # whole words only
        ("700,000 inhabitants", True),  # units vary
        ("", False),
    ],
)
def test_rule(claim: str, expected: bool) -> None:
    assert grounded([claim], PASSAGES) == [expected]


def test_nothing_is_grounded_in_nothing() -> None:
    assert grounded(["Ann Lee wrote Red Sky."], []) == [False]
    assert not stands_in("", PASSAGES)
    assert not stands_in("Oslo", [])


def test_a_pronoun_stands_for_the_title() -> None:
    assert grounded(["Ann Lee was born in Oslo."], [passage("p1")]) == [True]
    untitled = replace(passage("p1"), title="")
    assert grounded(["Ann Lee was born in Oslo."], [untitled]) == [True]


def test_sentences_keep_initials_and_decimals_whole() -> None:
    assert sentences("It is 3.5 km. He left. \n") == ["It is 3.5 km.", "He left."]
    assert sentences("") == []


def thoughts(*texts: str) -> list[dict]:
    return [
        {
            "action": "think",
            "input": "",
            "thought": text,
            "observation": "",
            "pids": [],
            "notes": {},
        }
        for text in texts
    ]


def test_chain_word_overlap_is_the_share_of_grounded_sentences() -> None:
    metric = get_metric("chain_word_overlap")
    steps = thoughts(
        "Ann Lee wrote Red Sky. Bo Dan lived in Paris.", "Oslo is the capital of Norway."
    )
    assert metric.score(record(steps=steps)) == pytest.approx(2 / 3)
    assert metric.score(record(steps=[])) is None
    assert metric.score(record(steps=thoughts(""))) is None
    assert metric.score(record(steps=thoughts("TRAVERSE", "answer"))) is None  # moves, not claims
    parts = [{**step, "action": "decompose"} for step in thoughts("Give the later of both dates.")]
    assert metric.score(record(steps=parts)) is None
    assert metric.score(record(steps=[*parts, *steps])) == pytest.approx(2 / 3)
    assert metric.score(failure()) == metric.worst == 0.0


def test_answer_word_overlap_counts_claims_of_the_answer() -> None:
    metric = get_metric("answer_word_overlap")
    assert metric.score(record("Norway")) == 1.0
    assert metric.score(record("Sweden")) == 0.0
    assert metric.score(record("Oslo is the capital of Norway. Its mayor is Bo Dan.")) == 0.5
    assert metric.score(record("yes")) is None
    assert metric.score(record("Norway", pids=())) == 0.0
    assert metric.score(failure()) == metric.worst == 0.0
