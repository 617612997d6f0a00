"""Texts of answers: normalization, refusals, kinds of answers, and lengths.

SQuAD v1.1 (Rajpurkar et al. 2016), HotpotQA, 2WikiMultiHopQA and MuSiQue share one normalization.
"""

import re
import string
from functools import lru_cache
from typing import Literal

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE_WORDS = ("a", "an", "the")
ARTICLES = re.compile(rf"\b(?:{'|'.join(_ARTICLE_WORDS)})\b")
_PIECES = re.compile(r"[^\W\d_]+|\d{1,3}|[^\w\s]+|_")

_SOURCE = (
    r"(?:(?:given|provided|these|this|any|above|available|retrieved) )*"
    r"(?:passages?|contexts?|texts?|documents?|information|sources?|notes?|facts|evidence|articles?)"
)
_GIVEN = (
    r"(?:explicitly |directly |clearly |specifically )?"
    r"(?:stated?|mentioned|mention|specified|specify|provided?|given?|known|found|available"
    r"|say|said|listed|list|indicated?|contain|include|answered|answer|clear|enough|sure|tell)"
)
#: Refusals after normalization: lower case, without punctuation and articles.
_REFUSAL = re.compile(
    r"(?:(?:answer|it|this|that) (?:is|remains) )?"
    r"(?:unknown|none|na|n a|null|nothing|no answer|noanswer|unclear|unanswerable|undetermined"
    r"|insufficient|not applicable|unspecified)"
    rf"|(?:(?:answer|it|this|that|{_SOURCE}) (?:is|are|was|were) )?not {_GIVEN}"
    rf"(?: (?:in|by|from|to|for) .*|{_SOURCE}.*| (?:information|data|evidence|context)\b.*)?"
    rf"|(?:according to |based on |from |in )?{_SOURCE} (?:provided |given )?"
    r"(?:(?:do|does|did|is|are|has|have) (?:not|no)|dont|doesnt|didnt|isnt|arent)\b.*"
    rf"|(?:\w+ ){{1,8}}(?:is|are|was|were) not {_GIVEN} (?:in|by|from) {_SOURCE}.*"
    rf"|(?:no|none of|neither of|insufficient|not enough) {_SOURCE}.*"
    r"|(?:there is |there are )?(?:no|insufficient|not enough) "
    r"(?:information|info|mention|evidence|data|answer|indication|context)\b.*"
    r"|(?:\w+ ){0,8}(?:cannot|cant|can not|could not|couldnt) be "
    r"(?:determined|answered|found|inferred|identified|confirmed|known|established)\b.*"
    r"|(?:(?:i am |im )sorry|sorry (?:but|i)|(?:i am |im |we are )?(?:unable|not able) to)\b.*"
    r"|(?:i |we )?(?:do not|dont|cannot|cant|could not|couldnt) "
    r"(?:(?:know|answer|find|determine|identify)\b.*"
    r"|(?:tell|say|have)(?: (?:from|if|whether|wh\w+|enough|information)\b.*)?)"
)


@lru_cache(maxsize=32_768)  # Many metrics normalize the same answers.
def normalise_answer(text: str) -> str:
    """Normalize `text`: lower case, without ASCII punctuation, articles and extra blanks.

    Punctuation is removed before articles, so "a-b" becomes "ab". Other dashes and quotation marks
    remain, and composed and decomposed letters differ, as in the official scripts.
    """
    bare = strip_punctuation(text.lower())
    return " ".join(ARTICLES.sub(" ", bare).split())


def is_blank(text: str) -> bool:
    """Return True if `text` normalizes to nothing."""
    return all(word in _ARTICLE_WORDS for word in strip_punctuation(text.lower()).split())


@lru_cache(maxsize=32_768)
def is_refusal(text: str) -> bool:
    """Return True if `text` states that there is no answer.

    Examples are "Unknown" and "The passages do not mention it". Neither a blank text nor a text
    with further content, such as "It was not found until 1950", is a refusal.
    """
    return _REFUSAL.fullmatch(normalise_answer(text.replace("\u2019", "'"))) is not None


def strip_punctuation(text: str) -> str:
    """Remove ASCII punctuation from `text`. Words around a hyphen are joined."""
    return text.translate(_NO_PUNCTUATION)


def tokens(text: str) -> list[str]:
    """Return the blank-separated words of the normalized `text`, in order."""
    return normalise_answer(text).split()


def approx_tokens(text: str) -> int:
    """Estimate the number of tokens of GPT models in `text`, the same on every machine.

    Their tokenizer's tables require a download, so pieces are counted instead: seven letters, three
    digits or a run of punctuation each. Compared with cl100k_base, the totals over English
    Wikipedia and medical text are off by at most 4 %, and over lower-cased chunks 8 % low.
    """
    return sum(map(_count_pieces, text.split()))


@lru_cache(maxsize=200_000)
def _count_pieces(word: str) -> int:
    if word.isascii():
        bare = word.rstrip(string.punctuation)
        if bare.isalpha() and len(word) - len(bare) <= 1:  # Letters and one mark.
            return 1 + (len(bare) - 1) // 7 + len(word) - len(bare)
    return sum(
        1 + (len(piece) - 1) // 7 if piece.isascii() else -(-len(piece.encode()) // 3)
        for piece in _PIECES.findall(word)
    )


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
    """Return the kind of `answer`, by its form only. A bare year counts as a date."""
    text = normalise_answer(answer)
    if text in ("yes", "no"):
        return "yes_no"
    thousands = re.search(r"\d,\d{3}", answer)  # Excludes "1,000", which is not a year.
    if _DATE.fullmatch(text) and not thousands:
        return "date"
    titled = any(letter.isupper() for letter in answer[1:])  # "Nine Inch Nails", "45 Fathers"
    if _NUMBER.fullmatch(text) and not titled:
        return "number"
    return "entity"
