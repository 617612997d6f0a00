"""Which answers are none."""

from __future__ import annotations

import pytest

from ragbench.metrics import is_refusal


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
        *(
            "She was not given a name",
            "Information Society",
            "Text is a rapper",
            "I Can't Tell You",
        ),
        *("Evidence is a producer", "not guilty", "Can't Buy Me Love", "The Answer"),
    ],
)
def test_answers_that_only_look_like_refusals(text: str) -> None:
    assert not is_refusal(text)
