"""Split text into words independent of their spelling, and detect equal questions.

Search, nearest questions and every comparison of words use this module, so that words that look the
same are the same: ligatures and full-width forms of PDF files (NFKC), soft hyphens and zero-width
characters, separate accents. Official scores have their own normalization
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
    """Normalize `text` (NFKC) and remove invisible characters; keep case."""
    if text.isascii():
        return text
    return unicodedata.normalize("NFKC", _INVISIBLE.sub("", text))


def fold(text: str) -> str:
    """Normalize `text` like `clean`, and fold case."""
    if text.isascii():
        return text.lower()
    return clean(unicodedata.normalize("NFKC", clean(text).casefold()))


def words(text: str) -> list[str]:
    """Split `text` into folded words, in order, with repeats."""
    return _WORD.findall(fold(text))


def question_key(question: str) -> str:
    """Return the key that equal questions share, without case, blanks and final marks."""
    return " ".join(fold(question).split()).rstrip(_ENDS)
