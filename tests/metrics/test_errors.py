"""Which answers are none, kinds of answers, and one cause per wrong answer, in order of rules."""

from dataclasses import replace
from typing import Any

import pytest

from ragbench.metrics.errors import Cause, cause_of
from ragbench.metrics.text import answer_kind, is_refusal
from ragbench.record import Record
from tests.metrics.records import failure, record, search


def cause(sample: Record) -> Cause:
    found = cause_of(sample)
    assert found is not None
    return found


def name(answer: str, **fields: Any) -> str:
    return cause(record(answer, **fields)).name


def test_cause_of_a_right_answer_is_none() -> None:
    assert cause_of(record("the Norway!")) is None
    assert cause_of(record("Noreg", answers=["Norway", "Noreg"])) is None


def test_cause_of_an_unanswerable_question_if_refused_is_none() -> None:
    assert cause_of(record("not stated", extra={"answerable": False})) is None
    assert name("Norway", extra={"answerable": False}) == "control/answered_anyway"
    assert name("not stated", extra={"answerable": True}) == "control/no_answer"


@pytest.mark.parametrize("boundary", ["provider", "parse", "retriever", "program", "limit"])
def test_cause_of_a_failed_question_is_its_boundary(boundary: str) -> None:
    kind = "budget" if boundary == "limit" else boundary
    found = cause(failure("SomeError", boundary))
    assert (found.name, found.detail, found.by) == (f"control/{kind}", "SomeError", "rule")
    # An answer that is missing without an error is a failure too.
    assert cause(record(None)).name == "control/program"


#: Repeated searches without the gold.
AGAIN = [search("x", ["p1"]), *[replace(search("x", ["p1"]), cached=True)] * 2]
#: Without titles the answer before names the next hop.
OSLO, TRONDHEIM = ([{"question": "?", "answer": a}] * 2 for a in ("Oslo", "Trondheim"))


@pytest.mark.parametrize(
    ("answer", "fields", "expected"),
    [
        # The answer is there, whatever was retrieved.
        ("12 May 1990", {"answers": ["May 12, 1990"], "pids": ()}, "reading/wrong_form"),
        ("Caf\u00e9 Noir", {"answers": ["Cafe Noir"]}, "reading/wrong_form"),
        ("3", {"answers": ["three"]}, "reading/wrong_form"),
        # Perhaps right, denied or named after it: only a reader can tell.
        ("The kingdom of Norway", {"pids": ()}, "reading/among_words"),
        ("Yes, but they lived apart, so the answer is no", {"answers": ["yes"]},
         "reading/among_words"),
        # All gold was there.
        ("Norway " + "and more words " * 5, {}, "reading/partial"),  # buried
        ("Sweden", {}, "reading/same_type"),
        ("1990", {}, "reading/other_type"),
        ("yes", {"answers": ["no"]}, "reading/same_type"),
        ("Stanley", {"answers": ["G. Stanley Hall"]}, "data/answer_not_in_gold"),
        ("capital, of Oslo and of Norway", {"answers": ["capital of Norway"]}, "reading/partial"),
        ("the author of Red Sky", {}, "reading/same_type"),
        # Without gold pids the answer is looked for in what was retrieved.
        ("Sweden", {"gold_pids": []}, "reading/same_type"),
        ("Sweden", {"gold_pids": [], "pids": ("p1",)}, "retrieval/answer_not_seen"),
        # What ended it, and what a judge said.
        ("Sweden", {"stop_reason": "parse_fallback"}, "control/parse"),
        ("Sweden", {"stop_reason": "budget"}, "control/budget"),
        ("Sweden", {"pids": ()}, "control/no_search"),
        ("Sweden", {"counts": {"parse_fallback": 1}}, "reading/same_type"),  # an answer was given
        ("Sweden", {"scores": {"judge": 1.0}}, "data/metrics_disagree"),
        # Gold is missing: named in what was seen (p1 names Oslo), asked or searched, or not.
        ("Sweden", {"pids": ("p1",)}, "control/too_few_steps"),
        ("Sweden", {"pids": ("p2",)}, "retrieval/never_in_reach"),
        ("Sweden", {"pids": ("p3",), "searches": [search("who is Ann Lee", ["p3"])]},
         "retrieval/not_retrieved"),
        ("Sweden", {"pids": ("p3",), "question": "Where is Oslo?"}, "control/too_few_steps"),
        ("Sweden", {"pids": ("p1",), "searches": [search("Oslo", ["p1"])]},
         "retrieval/not_retrieved"),
        ("Sweden", {"pids": ("p1",), "support": [], "decomposition": OSLO},
         "control/too_few_steps"),
        ("Sweden", {"pids": ("p1",), "support": [], "decomposition": TRONDHEIM},
         "retrieval/never_in_reach"),
        ("Sweden", {"pids": ("p1",), "searches": AGAIN}, "control/loop"),
        ("Sweden", {"pids": ("p1",), "searches": AGAIN[:2]}, "control/too_few_steps"),
        ("Sweden", {"pids": ("p1",), "stop_reason": "no_progress"}, "control/loop"),
        # No answer was given: where the gold was not found, that is the cause.
        ("Unknown", {}, "control/no_answer"),
        ("", {"pids": ("p1",)}, "control/too_few_steps"),
        # Found is not shown, and the choice of memory is no lack of searches.
        ("Sweden", {"in_context": ["p1"]}, "control/not_in_context"),
        ("Sweden", {"in_context": ["p1", "p2"]}, "reading/same_type"),
        ("Sweden", {"pids": (), "stop_reason": "direct"}, "control/from_memory"),
        ("noanswer", {"counts": {"parse_fallback": 1}}, "control/parse"),
    ],
)  # fmt: skip
def test_cause_of_a_wrong_answer_is_the_first_matching_rule(
    answer: str, fields: dict[str, Any], expected: str
) -> None:
    assert name(answer, **fields) == expected


def test_hop_of_a_cause_counts_the_gold_passages_obtained() -> None:
    found = cause(record("Sweden", pids=("p1",)))
    assert (found.hop, "'Oslo' was not searched" in found.detail) == (2, True)
    assert cause(record("Sweden", pids=("p3", "p4"))).hop == 1
    assert cause(record("Sweden", pids=("p1",), searches=AGAIN)).hop == 2


# -- words

REFUSALS = (
    "Unknown", "N/A", "noanswer", "The answer is unknown.", "Not stated in the passages",
    "The provided context doesn\u2019t say who.", "No information is given.", "Not sure",
    "None of the passages name her father.", "It cannot be determined from the text.",
    "I do not have enough information", "There is no mention of a sequel", "I'm sorry, but no.",
    "Insufficient evidence", "Based on the passages is not clear",
)  # fmt: skip
ANSWERS = (
    "", "no", "Yes", "Harwick", "1987", "No Country for Old Men", "Nothing Compares 2 U",
    "Don't Stop Believin'", "Sorry Seems to Be the Hardest Word", "The Unknown Soldier",
    "It was not found until 1950", "None But the Lonely Heart", "I Can't Tell You",
    "Text is a rapper", "not guilty", "The Answer",
)  # fmt: skip


def test_is_refusal_if_an_answer_resembles_a_refusal_is_false() -> None:
    assert [text for text in REFUSALS if not is_refusal(text)] == []
    assert [text for text in ANSWERS if is_refusal(text)] == []


@pytest.mark.parametrize(
    ("kind", "answers"),
    [
        ("yes_no", "yes|No.|The yes"),
        ("date", "1990|12 May 1990|May 12, 1990|19th century|1990s|in 1990|44 BC|1990-1995"),
        ("date", "12th of May|from 1990 to 1995|8 June 851|1990-05-12"),
        ("number", "7|1,000|about 3.5 million|12 km|twenty|$5|-3|twice|six million people"),
        ("entity", "Oslo|Nine Inch Nails|45 Fathers|May|March of Dimes|Studio 33||12th|no way"),
        ("entity", "Edmund Grey, 1st Earl of Kent|One Direction|noanswer|Twice Shy"),
    ],
)
def test_answer_kind_of_each_answer(kind: str, answers: str) -> None:
    assert {answer: answer_kind(answer) for answer in answers.split("|")} == dict.fromkeys(
        answers.split("|"), kind
    )
