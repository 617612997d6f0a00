"""Normalisation of answers before they are compared (SQuAD v1.1, Rajpurkar et al. 2016).

HotpotQA, 2WikiMultiHopQA and MuSiQue use the same steps in the same order.
"""

import re
import string

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


def normalise_answer(text: str) -> str:
    """`text` in lower case, without ASCII punctuation, articles and spare blanks.

    Punctuation goes before articles, so "a-b" becomes "ab"; other dashes and quotation marks stay,
    and composed and decomposed letters stay different, as in the official scripts.
    """
    bare = text.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", bare).split())


def tokens(text: str) -> list[str]:
    """The blank-separated words of the normalised `text`, in order."""
    return normalise_answer(text).split()
