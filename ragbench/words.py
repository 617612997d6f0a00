"""Words of a text, whichever way its letters are written, and when two questions are the same.

Search, nearest questions and every comparison of words ask here, so that what a reader takes for
one word is one: ligatures and full-width forms of PDF files (NFKC), soft hyphens and characters
without width, accents that stand by themselves. Official scores have normalisations of their own
(`ragbench.metrics.text`).
"""

import unicodedata

import regex

#: A soft hyphen, with the end of the line that it was written for, and what has no width.
_INVISIBLE = regex.compile(r"\u00ad\s*|[\p{Cf}\p{Default_Ignorable_Code_Point}]+")
#: Letters with their combining marks (Hindi and Thai vowels), digits and underscores.
_WORD = regex.compile(r"\w+")
#: What may end a question without making it another one.
_ENDS = " .?!…;:,،؟。、।॥"


def clean(text: str) -> str:
    """Returns `text` in one writing (NFKC) without invisible characters; case is kept."""
    if text.isascii():
        return text
    return unicodedata.normalize("NFKC", _INVISIBLE.sub("", text))


def fold(text: str) -> str:
    """Returns `text` as `clean` gives it, without regard to case."""
    if text.isascii():
        return text.lower()
    return clean(unicodedata.normalize("NFKC", clean(text).casefold()))


def words(text: str) -> list[str]:
    """Returns the words of `text` in order, repeats kept, folded."""
    return _WORD.findall(fold(text))


def question_key(question: str) -> str:
    """Returns the key that equal questions share, without case, blanks and final marks."""
    return " ".join(fold(question).split()).rstrip(_ENDS)
