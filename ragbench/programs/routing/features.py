"""What is known of a question before anything answers it: the features of its wording.

Types and numbers of hops are predicted by fixed rules, never read from the data set, so that they
are known of any question.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict

_COMPARING = re.compile(
    r"\b(?:both|same|common|either|neither|than|first|earli(?:er|est)|lat(?:er|est)|old(?:er|est)"
    r"|young(?:er|est)|elde(?:r|st)|long(?:er|est)|short(?:er|est)|larg(?:er|est)|small(?:er|est)"
    r"|bigg(?:er|est)|high(?:er|est)|low(?:er|est)|tall(?:er|est)|close(?:r|st)|more|fewer|less|most"
    r"|least|farther|further|before|after|between|differ\w*|compar\w*)\b",
    re.IGNORECASE,
)
_JOINED = re.compile(r"\b(?:or|and)\b", re.IGNORECASE)
#: Two names to choose from.
_CHOICE = re.compile(r"[A-Z][^\s,]*\s+or\s+(?:the\s+|The\s+)?[\"\u201c]?[A-Z]")
_CLOSED = re.compile(
    r"(?:is|are|was|were|am|do|does|did|has|have|had|can|could|will|would|should|may|might)\b",
    re.IGNORECASE,
)
_QUANTITY = re.compile(
    r"\b(?:when|how (?:many|much|long|old|far|tall|large|often)|(?:what|which|in what|in which) "
    r"(?:\w+ )?(?:year|date|day|month|century|decade|number|population|age|percentage))\b",
    re.IGNORECASE,
)
#: Words that tie one thing to another: each is a relation that may have to be looked up.
_RELATION = re.compile(r"\b(?:of|by|whose|who|whom|that|which|where)\b|['\u2019]s\b", re.IGNORECASE)
#: A run of capitalised words, small joining words among them; a text in quotation marks.
_NAME = re.compile(
    r"[\"\u201c]([^\"\u201d]+)[\"\u201d]|\b[A-Z][\w.'\u2019&-]*(?:\s+(?:(?:of|the|de|la|van|von|in)\s+)?"
    r"[A-Z0-9][\w.'\u2019&-]*)*"
)
_ASKING = re.compile(
    r"(?:who|whose|whom|what|which|where|when|why|how|in|on|at|of|the|are|is|was|were|did|do|does"
    r"|has|have|had|between|both|a|an|for|to|from|by|after|before)\b",
    re.IGNORECASE,
)

#: The most relations that count as hops.
_MOST_HOPS = 4


class Feature(BaseModel):
    """A feature as a rule says it, with `{}` for the bound where it has one.

    `yes` is said where the feature is at least the bound. `whole` ones are counted.
    """

    model_config = ConfigDict(frozen=True)

    yes: str
    no: str
    whole: bool = False

    def describe(self, bound: float, *, yes: bool) -> str:
        """The condition in words."""
        shown = str(math.ceil(bound)) if self.whole else f"{bound:.3g}"
        return (self.yes if yes else self.no).format(shown)


FEATURES: Mapping[str, Feature] = {
    "words": Feature(yes="it has {} words or more", no="it has fewer than {} words", whole=True),
    "names": Feature(yes="it has {} names or more", no="it has fewer than {} names", whole=True),
    "comparison": Feature(yes="it asks for a comparison", no="it asks for no comparison"),
    "yes_no": Feature(yes="it asks for yes or no", no="it does not ask for yes or no"),
    "quantity": Feature(
        yes="it asks for a date or a number", no="it asks for neither a date nor a number"
    ),
    "hops": Feature(
        yes="its wording has {} hops or more", no="its wording has fewer than {} hops", whole=True
    ),
}


def question_features(question: str) -> dict[str, float]:
    """The features of the wording; empty words give zeros.

    `hops` is predicted: 2 for a comparison, else one more than the relations in the wording, from
    1 to 4. `comparison`, `yes_no` and `quantity` are 0 or 1.
    """
    names = [name for name in _NAME.finditer(question) if _is_name(name[0])]
    comparison = _is_comparison(question, len(names))
    relations = len(_RELATION.findall(_after_question_word(question)))
    return {
        "words": float(len(re.findall(r"\w+(?:['\u2019]\w+)?", question))),
        "names": float(len(names)),
        "comparison": float(comparison),
        "yes_no": float(bool(_CLOSED.match(question.strip()))),
        "quantity": float(bool(_QUANTITY.search(question))),
        "hops": 2.0 if comparison else float(min(1 + relations, _MOST_HOPS)),
    }


def _is_comparison(question: str, names: int) -> bool:
    """Whether two things are set side by side: two names, and words that compare or choose."""
    if names < 2:
        return False
    closed = bool(_CLOSED.match(question.strip()))
    side_by_side = closed or bool(_COMPARING.search(question))
    return bool(_CHOICE.search(question)) or (side_by_side and bool(_JOINED.search(question)))


def _is_name(text: str) -> bool:
    return len(text.split()) > 1 or not _ASKING.fullmatch(text)


def _after_question_word(question: str) -> str:
    """`question` without the words that only ask, in which "which" relates nothing."""
    return re.sub(r"^\W*(?:(?:in|on|at|by|of|for|from|to)\s+)?\w+", "", question, count=1)
