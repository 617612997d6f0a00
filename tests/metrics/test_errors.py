"""One cause per wrong answer, rule by rule, and the order of the rules."""

from dataclasses import replace
from typing import Any

import pytest

from ragbench.metrics.errors import Cause, cause_of, loose_words
from ragbench.record import Record
from tests.metrics.records import failure, record, search


def cause(sample: Record) -> Cause:
    found = cause_of(sample)
    assert found is not None
    return found


def name(answer: str, **fields: Any) -> str:
    return cause(record(answer, **fields)).name


def test_a_right_answer_has_no_cause() -> None:
    assert cause_of(record("the Norway!")) is None
    assert cause_of(record("Noreg", answers=["Norway", "Noreg"])) is None


@pytest.mark.parametrize("boundary", ["provider", "parse", "retriever", "program", "limit"])
def test_a_failed_question_is_filed_by_its_boundary(boundary: str) -> None:
    kind = "budget" if boundary == "limit" else boundary
    found = cause(failure("SomeError", boundary))
    assert (found.name, found.detail, found.by) == (f"control/{kind}", "SomeError", "rule")
    # An answer that is missing without an error is a failure too.
    assert cause(record(None)).name == "control/program"


@pytest.mark.parametrize(
    ("answer", "gold", "kind"),
    [
        ("12 May 1990", "May 12, 1990", "wrong_form"),
        ("Caf\u00e9 Noir", "Cafe Noir", "wrong_form"),
        ("O\u2019Brien", "O'Brien", "wrong_form"),
        ("Jean-Luc", "Jean Luc", "wrong_form"),
        ("3", "three", "wrong_form"),
        ("the 5th", "5", "wrong_form"),
        ("Ada Byron", "Ada King Byron Jr.", "wrong_form"),
        ("Ada King Byron", "Ada Byron", "wrong_form"),
        # Perhaps right, denied or named after it: only a reader can tell.
        ("The kingdom of Norway", "Norway", "among_words"),
        ("Norway Street in Bergen", "Norway", "among_words"),
        ("Yes, but they lived apart, so the answer is no", "yes", "among_words"),
    ],
)
def test_the_gold_answer_in_another_form_or_among_words(answer: str, gold: str, kind: str) -> None:
    assert name(answer, answers=[gold]) == f"reading/{kind}"
    # whatever was retrieved: the answer is there
    assert name(answer, answers=[gold], pids=()) == f"reading/{kind}"


#: Repeated searches without the gold.
AGAIN = [search("x", ["p1"]), *[replace(search("x", ["p1"]), cached=True)] * 2]
#: Without titles the answer before names the next hop.
OSLO, TRONDHEIM = ([{"question": "?", "answer": a}] * 2 for a in ("Oslo", "Trondheim"))


@pytest.mark.parametrize(
    ("answer", "fields", "expected"),
    [
        # All gold was there.
        ("Norway " + "and more words " * 5, {}, "reading/partial"),  # buried
        ("North", {}, "reading/same_type"),
        ("Sweden", {}, "reading/same_type"),
        ("1990", {}, "reading/other_type"),
        ("yes", {}, "reading/other_type"),
        ("yes", {"answers": ["no"]}, "reading/same_type"),
        ("Stanley", {"answers": ["G. Stanley Hall"]}, "data/answer_not_in_gold"),
        ("Sweden", {"answers": ["Iceland"]}, "data/answer_not_in_gold"),
        ("Sweden", {"answers": ["no"]}, "reading/other_type"),
        ("capital", {"answers": ["the capital of Norway"]}, "reading/partial"),
        ("capital, of Oslo and of Norway", {"answers": ["capital of Norway"]}, "reading/partial"),
        ("Oslo people", {"answers": ["Oslo town"]}, "reading/same_type"),
        ("the author of Red Sky", {}, "reading/from_question"),
        ("the editor of Red Sky", {}, "reading/same_type"),
        ("Bergen", {"question": "Which is further north, Oslo or Norway's Bergen?",
                    "answers": ["Oslo"]}, "reading/same_type"),
        ("Gerald Olav Hill and John Parks sang", {"answers": ["Gerald Lee Olav Hill"]},
         "reading/partial"),
        ("Gerald Parks and Lee Johns", {"answers": ["Gerald Lee Olav Hill"]}, "reading/same_type"),
        # Without gold pids the answer is looked for in what was retrieved.
        ("Sweden", {"gold_pids": []}, "reading/same_type"),
        ("Sweden", {"gold_pids": [], "pids": ("p1",)}, "retrieval/answer_not_seen"),
        ("yes", {"answers": ["no"], "gold_pids": [], "pids": ("p1",)}, "reading/same_type"),
        # What ended it, and what a judge said.
        ("Sweden", {"stop_reason": "parse_fallback"}, "control/parse"),
        ("Sweden", {"stop_reason": "budget"}, "control/budget"),
        ("Sweden", {"pids": ()}, "control/no_search"),
        ("Sweden", {"counts": {"parse_fallback": 1}}, "reading/same_type"),  # an answer was given
        ("Sweden", {"scores": {"judge": 1.0}}, "data/metrics_disagree"),
        ("Sweden", {"scores": {"judge": None}}, "reading/same_type"),
        # Gold is missing: named in what was seen (p1 names Oslo), asked or searched, or not.
        ("Sweden", {"pids": ("p1",)}, "retrieval/not_retrieved"),
        ("Sweden", {"pids": ("p2",)}, "retrieval/never_in_reach"),
        ("Sweden", {"pids": ("p3", "p4")}, "retrieval/never_in_reach"),
        ("Sweden", {"pids": ("p3",), "searches": [search("who is Ann Lee", ["p3"])]},
         "retrieval/not_retrieved"),
        ("Sweden", {"pids": ("p3",), "question": "Where is Oslo?"}, "retrieval/not_retrieved"),
        # A bracket in a title need not be named.
        ("Sweden", {"pids": ("p1",), "support": [["Ann Lee", 1], ["Oslo (city)", 0]]},
         "retrieval/not_retrieved"),
        ("Sweden", {"pids": ("p1",), "support": [], "decomposition": OSLO},
         "retrieval/not_retrieved"),
        ("Sweden", {"pids": ("p1",), "support": [], "decomposition": TRONDHEIM},
         "retrieval/never_in_reach"),
        ("Sweden", {"pids": ("p1",), "support": []}, "retrieval/not_retrieved"),
        ("Sweden", {"pids": ("p1",), "searches": AGAIN}, "control/loop"),
        ("Sweden", {"pids": ("p1",), "searches": AGAIN[:2]}, "retrieval/not_retrieved"),
        ("Sweden", {"pids": ("p1",), "stop_reason": "no_progress"}, "control/loop"),
    ],
)  # fmt: skip
def test_the_first_rule_that_holds(answer: str, fields: dict[str, Any], expected: str) -> None:
    assert name(answer, **fields) == expected


def test_the_hop_is_how_far_the_chain_got() -> None:
    found = cause(record("Sweden", pids=("p1",)))
    assert (found.hop, "'Oslo' was named" in found.detail) == (2, True)
    assert cause(record("Sweden", pids=("p3", "p4"))).hop == 1
    assert cause(record("Sweden", pids=("p1",), searches=AGAIN)).hop == 2


@pytest.mark.parametrize(
    "answer",
    [
        *("noanswer", "", "Unknown", "None", "N/A", "not mentioned in the passages"),
        *("The passages do not say.", "I don't know", "Cannot be determined", "Not enough info"),
        *("no information given", "The provided context does not mention it"),
    ],
)
def test_giving_up(answer: str) -> None:
    assert name(answer) == "control/gave_up"
    # where the gold was not found, that is the cause
    assert name(answer, pids=("p1",)) == "retrieval/not_retrieved"
    assert name(answer, counts={"parse_fallback": 1}) == "control/parse"


@pytest.mark.parametrize("answer", ["Nathan Lee", "Nashville", "Nonette", "Unknown Soldier", "no"])
def test_names_that_begin_like_giving_up(answer: str) -> None:
    assert name(answer) in ("reading/same_type", "reading/other_type")


def test_loose_words() -> None:
    assert loose_words("The Caf\u00e9's 2nd, \u2018two\u2019 1,000") == ("cafe", "2", "2", "1000")
