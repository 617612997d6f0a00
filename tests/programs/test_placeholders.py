"""Numbered placeholders of sub-questions, in the forms in which models write them."""

from collections import Counter

import pytest

from ragbench.programs.core.text import answers_used, with_answers

PARTS = {1: "Who wrote it?", 2: "Where was {1} born?"}


@pytest.mark.parametrize("form", ["{1}", "{ 1 }", "{n1}", "{answer 1}", "{answer_1}", "#1"])
def test_each_form_is_filled(form: str) -> None:
    counts: Counter[str] = Counter()
    text = f"Where was {form} born?"
    assert answers_used(text) == [1]
    assert with_answers(text, PARTS, {1: "Orla"}, lambda e: counts.update([e])) == (
        "Where was Orla born?"
    )
    assert counts == {}


@pytest.mark.parametrize("text", ["the {author} of it", "item # 1", "{}", "C#1a"])
def test_what_names_no_number_stays(text: str) -> None:
    assert answers_used(text) == []
    assert with_answers(text, PARTS, {1: "Orla"}, lambda event: None) == text


def test_a_refusal_is_no_answer_to_put_in() -> None:
    counts: Counter[str] = Counter()
    filled = with_answers(PARTS[2], PARTS, {1: "not stated"}, lambda e: counts.update([e]))
    assert filled == "Where was (Who wrote it) born?"
    assert counts == {"unfilled_placeholder": 1}
