"""Answer kinds by form."""

from __future__ import annotations

import pytest

from ragbench.metrics.text import answer_kind

KINDS = {
    "yes_no": ["yes", "No.", "The yes"],
    "date": [
        *("1990", "12 May 1990", "May 12, 1990", "May 1990", "19th century", "1990s", "in 1990"),
        *("44 BC", "1990-1995", "12th of May", "from 1990 to 1995", "8 June 851", "1990-05-12"),
    ],
    "number": [
        *("7", "1,000", "about 3.5 million", "12 km", "twenty", "$5", "6.8 inches", "-3", "two"),
        *("six million people",),
    ],
    "entity": [
        *(
            "Oslo",
            "Nine Inch Nails",
            "45 Fathers",
            "May",
            "March of Dimes",
            "Studio 33",
            "12th",
            "",
        ),
        *("Edmund Grey, 1st Earl of Kent", "One Direction", "no way", "noanswer"),
    ],
}


@pytest.mark.parametrize(("kind", "answer"), [(k, a) for k, many in KINDS.items() for a in many])
def test_kind(kind: str, answer: str) -> None:
    assert answer_kind(answer) == kind
