"""Questions that are asked again in nearly the same words: they are right or wrong together."""

import re
import unicodedata
from collections.abc import Hashable, Sequence

from ragbench.words import question_key

_WORDS = (
    "a an and are as at be been by can could did do does for from give had has have how i in is it "
    "its me my name of on or please s say so tell that the their them then there these they this "
    "those to us was we were what when where which who whom whose why will with would you"
)
#: Words of English that two wordings of one question may differ in.
_FUNCTION_WORDS = frozenset(_WORDS.split())
#: Words of content that two wordings must share.
_LEAST_SHARED = 2


def repeat_keys(question: str, answers: Sequence[str]) -> list[Hashable]:
    """Keys that `question` shares with wordings of the same question.

    Two wordings share a key where they have the same words of content, in any order; or, with the
    same first answer, where they differ in one word each that is neither a name nor a number (a
    word in lower case).
    """
    words = re.findall(r"\w+", unicodedata.normalize("NFKC", question))
    content: dict[str, bool] = {}  # word -> whether it may differ
    for word in words:
        key = word.lower()
        if key not in _FUNCTION_WORDS:
            content[key] = content.get(key, True) and word.islower() and not word.isnumeric()
    every = frozenset(content)
    if len(every) < _LEAST_SHARED:
        return [question_key(question)]
    keys: list[Hashable] = [every]
    if not answers:
        return keys
    answer = question_key(answers[0])
    keys.append((every, answer))
    for word, may_differ in content.items():
        if may_differ and len(every) > _LEAST_SHARED:
            keys.append((every - {word}, answer))
    return keys
