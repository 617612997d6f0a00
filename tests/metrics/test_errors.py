"""One cause per wrong answer, rule by rule, and the order of the rules."""

from dataclasses import replace
from typing import Any

import pytest

from ragbench.metrics.errors import cause_of, loose_words
from ragbench.metrics.text import answer_kind
from tests.metrics.records import failure, record, search


def name(sample: dict[str, Any]) -> str | None:
    cause = cause_of(sample)
    return cause.name if cause else None


def test_a_right_answer_has_no_cause() -> None:
    assert cause_of(record("Norway")) is None
    assert cause_of(record("the Norway!")) is None
    assert cause_of(record("Noreg", answers=["Norway", "Noreg"])) is None


@pytest.mark.parametrize(
    ("boundary", "kind"),
    [
        ("provider", "provider"),
        ("parse", "parse"),
        ("limit", "budget"),
        ("retriever", "retriever"),
        ("program", "program"),
    ],
)
def test_a_failed_question_is_filed_by_its_boundary(boundary: str, kind: str) -> None:
    cause = cause_of(failure("SomeError", boundary))
    assert cause is not None
    assert (cause.name, cause.detail, cause.by) == (f"control/{kind}", "SomeError", "rule")


def test_an_answer_that_is_missing_without_an_error_is_a_failure_too() -> None:
    assert name(record(None)) == "control/program"


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("12 May 1990", "May 12, 1990"),
        ("Yes, both are.", "yes"),
        ("Caf\u00e9 Noir", "Cafe Noir"),
        ("O\u2019Brien", "O'Brien"),
        ("Jean-Luc", "Jean Luc"),
        ("3", "three"),
        ("the 5th", "5"),
        ("2", "two-time"),
        ("2 times", "twice"),
        ("Ada Byron", "Ada King Byron Jr."),
        ("Ada King Byron", "Ada Byron"),
    ],
)
def test_right_answer_in_the_wrong_form(answer: str, gold: str) -> None:
    assert name(record(answer, answers=[gold])) == "reading/wrong_form"
    # whatever was retrieved: the answer is there
    assert name(record(answer, answers=[gold], pids=())) == "reading/wrong_form"


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("Yes, but they lived apart, so the answer is no", "yes"),
        ("Yes? No, they are not", "yes"),
        ("No. However, both were French, so yes", "no"),
        ("No, but one of them was", "no"),
    ],
)
def test_a_yes_or_no_that_is_taken_back_is_no_right_answer(answer: str, gold: str) -> None:
    assert name(record(answer, answers=[gold])) != "reading/wrong_form"
    assert name(record(f"{gold}, it is not a film", answers=[gold])) == "reading/wrong_form"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Norway or Sweden", "reading/partial"),  # hedged
        ("not Norway", "reading/partial"),
        ("It was never Norway", "reading/partial"),
        ("It wasn't Norway", "reading/partial"),
        ("Norway is wrong", "reading/partial"),
        ("Sweden rather than Norway", "reading/partial"),
        ("Norway was denied, it is Sweden instead", "reading/partial"),
        ("everywhere except Norway", "reading/partial"),
        ("It is no part of Norway", "reading/partial"),
        ("without Norway", "reading/partial"),
        ("Norway, but only until 1905", "reading/partial"),
        ("Norway " + "and more words " * 5, "reading/partial"),  # buried
        ("North", "reading/same_type"),
        ("Sweden", "reading/same_type"),
        ("1990", "reading/other_type"),
        ("yes", "reading/other_type"),
    ],
)
def test_all_gold_was_there(answer: str, expected: str) -> None:
    assert name(record(answer)) == expected


def test_parts_of_longer_answers() -> None:
    assert name(record("Stanley", answers=["G. Stanley Hall"])) == "data/answer_not_in_gold"
    gold = ["the capital of Norway"]
    assert name(record("capital", answers=gold)) == "reading/partial"
    assert name(record("capital of Oslo and of Norway", answers=gold)) == "reading/partial"
    assert name(record("Oslo people", answers=["Oslo town"])) == "reading/same_type"


def test_words_of_the_question_are_no_answer() -> None:
    assert name(record("the author of Red Sky")) == "reading/from_question"
    assert name(record("the editor of Red Sky")) == "reading/same_type"
    choice = "Which is further north, Oslo or Norway's Bergen?"
    assert name(record("Bergen", question=choice, answers=["Oslo"])) == "reading/same_type"


def test_most_words_of_a_name_are_a_part_of_it() -> None:
    gold = {"answers": ["Gerald Lee Olav Hill"]}
    assert name(record("Gerald Olav Hill and John Parks sang", **gold)) == "reading/partial"
    assert name(record("Gerald Parks and Lee Johns", **gold)) == "reading/same_type"


def test_a_count_is_a_number() -> None:
    assert [answer_kind(text) for text in ("twice", "two-time", "9", "Twice Shy")] == [
        "number", "number", "number", "entity",
    ]  # fmt: skip


def test_yes_for_no_is_the_same_type() -> None:
    assert name(record("yes", answers=["no"])) == "reading/same_type"


def test_gold_missing_but_named_in_what_was_seen() -> None:
    cause = cause_of(record("Sweden", pids=("p1",)))  # p1 names Oslo, the title of p2
    assert cause is not None
    assert (cause.name, cause.hop) == ("retrieval/not_retrieved", 2)
    assert "'Oslo' was named" in cause.detail


def test_gold_missing_and_nothing_named_it() -> None:
    cause = cause_of(record("Sweden", pids=("p3", "p4")))
    assert cause is not None
    assert (cause.name, cause.hop) == ("retrieval/never_in_reach", 1)
    found_second = cause_of(record("Sweden", pids=("p2",)))
    assert found_second is not None
    assert (found_second.name, found_second.hop) == ("retrieval/never_in_reach", 2)


def test_a_query_or_the_question_brings_gold_into_reach() -> None:
    searched = record("Sweden", pids=("p3",), searches=[search("who is Ann Lee", ["p3"])])
    assert name(searched) == "retrieval/not_retrieved"
    asked = record("Sweden", pids=("p3",), question="Where is Oslo?")
    assert name(asked) == "retrieval/not_retrieved"


def test_without_titles_the_answer_before_names_the_next_hop() -> None:
    parts = [{"question": "?", "answer": "Oslo"}, {"question": "?", "answer": "Norway"}]
    sample = record("Sweden", support=[], decomposition=parts, pids=("p1",))
    assert name(sample) == "retrieval/not_retrieved"
    parts[0]["answer"] = "Trondheim"
    sample = replace(sample, decomposition=parts)
    assert name(sample) == "retrieval/never_in_reach"
    assert name(replace(sample, decomposition=[])) == "retrieval/not_retrieved"


def test_a_bracket_in_a_title_need_not_be_named() -> None:
    sample = record("Sweden", pids=("p1",), support=[["Ann Lee", 1], ["Oslo (city)", 0]])
    assert name(sample) == "retrieval/not_retrieved"


def test_repeated_searches_without_the_gold_are_a_loop() -> None:
    again = replace(search("x", ["p1"]), cached=True)
    sample = record("Sweden", pids=("p1",), searches=[search("x", ["p1"]), again, again])
    cause = cause_of(sample)
    assert cause is not None
    assert (cause.name, cause.hop) == ("control/loop", 2)
    assert name(replace(sample, searches=sample.searches[:2])) == "retrieval/not_retrieved"
    assert name(record("Sweden", pids=("p1",), stop_reason="no_progress")) == "control/loop"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"stop_reason": "parse_fallback"}, "control/parse"),
        ({"stop_reason": "budget"}, "control/budget"),
        ({"pids": ()}, "control/no_search"),
        ({"counts": {"parse_fallback": 1}}, "reading/same_type"),  # mended: an answer was given
        ({"scores": {"judge": 1.0}}, "data/metrics_disagree"),
        ({"scores": {"judge": None}}, "reading/same_type"),
    ],
)
def test_control_and_judge(fields: dict[str, Any], expected: str) -> None:
    assert name(record("Sweden", **fields)) == expected


@pytest.mark.parametrize(
    "answer",
    [
        *("noanswer", "", "Unknown", "None", "N/A", "not mentioned in the passages"),
        *("The passages do not say.", "I don't know", "Cannot be determined", "Not enough info"),
        *("no information given", "The provided context does not mention it"),
    ],
)
def test_giving_up(answer: str) -> None:
    assert name(record(answer)) == "control/gave_up"
    # where the gold was not found, that is the cause
    assert name(record(answer, pids=("p1",))) == "retrieval/not_retrieved"
    assert name(record(answer, counts={"parse_fallback": 1})) == "control/parse"


@pytest.mark.parametrize("answer", ["Nathan Lee", "Nashville", "Nonette", "Unknown Soldier", "no"])
def test_names_that_begin_like_giving_up(answer: str) -> None:
    assert name(record(answer)) in ("reading/same_type", "reading/other_type")


def test_a_gold_answer_that_gold_passages_do_not_hold() -> None:
    assert name(record("Sweden", answers=["Iceland"])) == "data/answer_not_in_gold"
    assert name(record("Sweden", answers=["no"])) == "reading/other_type"


def test_without_gold_pids_the_answer_is_looked_for() -> None:
    assert name(record("Sweden", gold_pids=[])) == "reading/same_type"
    assert name(record("Sweden", gold_pids=[], pids=("p1",))) == "retrieval/answer_not_seen"
    assert name(record("yes", answers=["no"], gold_pids=[], pids=("p1",))) == "reading/same_type"


def test_loose_words() -> None:
    assert loose_words("The Caf\u00e9's 2nd, \u2018two\u2019 1,000") == (
        "cafe",
        "2",
        "2",
        "1000",
    )
