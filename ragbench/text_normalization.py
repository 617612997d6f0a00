"""Words of a text independent of their spelling, equal questions, and estimated tokens.

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
#: Characters of scripts that write no spaces between words, each with its combining marks.
_UNSPACED = regex.compile(
    r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]\p{M}*"
)
#: Conversion between characters and tokens in the whole package.
CHARACTERS_PER_TOKEN = 4
#: Characters that may end a question without changing it.
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


def is_unspaced(text: str) -> bool:
    """Return whether most letters of `text` are of scripts that write no spaces between words."""
    letters = _WORD.findall(text)
    return 2 * len(_UNSPACED.findall(text)) > sum(map(len, letters))


def with_spaces(text: str) -> str:
    """Return `text` with each character of a script without spaces as a word."""
    return _UNSPACED.sub(r" \g<0> ", text)


def question_key(question: str) -> str:
    """Return the key that equal questions share, without case, blanks and final marks."""
    return " ".join(fold(question).split()).rstrip(_ENDS)


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of `text`: a quarter of its characters, rounded up."""
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def first_tokens(text: str, tokens: int) -> str:
    """Return the beginning of a text, cut at a word and marked, or the entire text if it fits.

    Args:
        text: Text.
        tokens: Maximum number of tokens, estimated.
    """
    if estimate_tokens(text) <= tokens:
        return text
    return text[: max(tokens * CHARACTERS_PER_TOKEN - 4, 0)].rsplit(" ", 1)[0] + " ..."
