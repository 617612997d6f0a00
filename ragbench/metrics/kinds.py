"""What kind of thing an answer is: yes or no, a date, a number, or the name of something."""

import re
from functools import lru_cache
from typing import Literal

from ragbench.metrics.text import normalise_answer

Kind = Literal["yes_no", "date", "number", "entity"]

_MONTHS = (
    "january|february|march|april|may|june|july|august|september|october|november|december"
    "|jan|feb|mar|apr|jun|jul|aug|sept|sep|oct|nov|dec"
)
_DATE = re.compile(
    rf"(?:(?:{_MONTHS}) \d{{1,4}}(?:st|nd|rd|th)?(?: \d{{3,4}})?"  # May 12 1990, May 1990
    rf"|\d{{1,2}}(?:st|nd|rd|th)? (?:of )?(?:{_MONTHS})(?: \d{{3,4}})?"  # 12 May 1990
    r"|(?:in |from |circa |c |early |late |mid )*(?:1\d{3}|20\d{2})s?(?: (?:bc|ad|ce|bce))?"
    r"|(?:from )?(?:1\d{3}|20\d{2}) ?(?:to|until|and|\u2013|\u2014) ?(?:1\d{3}|20\d{2})"  # 1990-95
    r"|\d{1,4} (?:bc|ad|ce|bce)|(?:1\d{3}|20\d{2})\d{4}"  # 44 BC; 1990-05-12 and 1990-1995
    r"|\d{1,2}(?:st|nd|rd|th) century(?: (?:bc|ad))?)"
)
_NUMBER_WORDS = (
    "zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen"
    "|sixteen|seventeen|eighteen|nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety"
    "|hundred|thousand|million|billion|dozen"
)
# A number, and at most two words of unit: "about 3.5 million people", "12 km", "twenty".
_NUMBER = re.compile(
    rf"(?:about |over |around |approximately |some |nearly |almost |more than )?"
    rf"(?:once|twice|thrice|[$\u00a3\u20ac]?(?:\d[\d]*|{_NUMBER_WORDS})(?:times?)?)"  # two-time
    rf"(?: (?:{_NUMBER_WORDS}))*(?: [^\W\d]+){{0,2}}"
)


@lru_cache(maxsize=4096)
def answer_kind(answer: str) -> Kind:
    """The kind of `answer`, by its form alone; a bare year counts as a date."""
    text = normalise_answer(answer)
    if text in ("yes", "no"):
        return "yes_no"
    thousands = re.search(r"\d,\d{3}", answer)  # "1,000" is no year
    if _DATE.fullmatch(text) and not thousands:
        return "date"
    titled = any(letter.isupper() for letter in answer[1:])  # "Nine Inch Nails", "45 Fathers"
    return "number" if _NUMBER.fullmatch(text) and not titled else "entity"
