"""Which answers are none, and what kind of thing an answer is."""

import pytest

from ragbench.metrics.text import answer_kind, is_refusal


@pytest.mark.parametrize(
    "text",
    [
        *("Unknown", "N/A", "noanswer", "The answer is unknown.", "unclear", "Not specified."),
        *("Not stated in the passages", "not mentioned", "The passage does not mention it."),
        *("The provided context doesn\u2019t say who.", "No information is given.", "Not sure"),
        *("None of the passages name her father.", "It cannot be determined from the text."),
        *("I don't know", "I do not have enough information", "Unable to determine"),
        *("The director's birthplace is not mentioned in the passages.", "Not enough information"),
        *("There is no mention of a sequel", "Insufficient evidence", "not found in the context"),
        *("Based on the passages is not clear", "I'm sorry, but no.", "The answer is not stated."),
    ],
)
def test_refusals(text: str) -> None:
    assert is_refusal(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "no", "Yes", "Harwick", "1987", "No Country for Old Men", "Nothing Compares 2 U"),
        *("Don't Stop Believin'", "Sorry Seems to Be the Hardest Word", "The Unknown Soldier"),
        *("It was not found until 1950", "Not Afraid", "None But the Lonely Heart"),
        *("She was not given a name", "Information Society", "Text is a rapper"),
        *("I Can't Tell You",),
        *("Evidence is a producer", "not guilty", "Can't Buy Me Love", "The Answer"),
    ],
)
def test_answers_that_only_look_like_refusals(text: str) -> None:
    assert not is_refusal(text)


KINDS = {
    "yes_no": ["yes", "No.", "The yes"],
    "date": [
        *("1990", "12 May 1990", "May 12, 1990", "May 1990", "19th century", "1990s", "in 1990"),
        *("44 BC", "1990-1995", "12th of May", "from 1990 to 1995", "8 June 851", "1990-05-12"),
    ],
    "number": [
        *("7", "1,000", "about 3.5 million", "12 km", "twenty", "$5", "6.8 inches", "-3", "two"),
        *("twice", "two-time"),
        *("six million people",),
    ],
    "entity": [
        *("Oslo", "Nine Inch Nails", "45 Fathers", "May", "March of Dimes", "Studio 33", ""),
        *("12th", "Edmund Grey, 1st Earl of Kent", "One Direction", "no way", "noanswer"),
        "Twice Shy",
    ],
}


@pytest.mark.parametrize(("kind", "answer"), [(k, a) for k, many in KINDS.items() for a in many])
def test_kind(kind: str, answer: str) -> None:
    assert answer_kind(answer) == kind
