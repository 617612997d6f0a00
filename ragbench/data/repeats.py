"""Detect questions that repeat another one in nearly the same words."""

import re
import unicodedata
from collections.abc import Sequence

from ragbench.text_normalization import question_key

_WORDS = (
    "a an and are as at be been by can could did do does for from give had has have how i in is it "
    "its me my name of on or please s say so tell that the their them then there these they this "
    "those to us was we were what when where which who whom whose why will with would you"
)
#: English function words. Two wordings of one question may differ in them.
_FUNCTION_WORDS = frozenset(_WORDS.split())
#: Minimum number of content words that two wordings must share.
_LEAST_SHARED = 2


def repeat_keys(question: str, answers: Sequence[str]) -> list[str]:
    """Return the keys that `question` shares with other wordings of it.

    Two wordings share a key if they have the same content words, in any order. If they also have
    the same first answer, each may have one other lower-case word, which is neither a name nor a
    number.

    Args:
        question: Text of the question.
        answers: Gold answers.
    """
    words = re.findall(r"\w+", unicodedata.normalize("NFKC", question))
    content: dict[str, bool] = {}  # Maps each word to True if it may differ between wordings.
    for word in words:
        key = word.lower()
        if key not in _FUNCTION_WORDS:
            content[key] = content.get(key, True) and word.islower() and not word.isnumeric()
    if len(content) < _LEAST_SHARED:
        return [question_key(question)]
    keys = [" ".join(sorted(content))]
    if not answers:
        return keys
    answer = question_key(answers[0])
    keys.append(f"{keys[0]}|{answer}")
    for word, may_differ in content.items():
        if may_differ and len(content) > _LEAST_SHARED:
            others = sorted(content.keys() - {word})
            keys.append(f"{' '.join(others)}|{answer}")
    return keys
