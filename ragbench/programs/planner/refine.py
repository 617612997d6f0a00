"""Answers that name nothing, and the name that stands in for one."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ragbench.metrics import tokens
from ragbench.programs.core import is_answer
from ragbench.programs.planner.tree import Node

_SPAN = re.compile(r"[A-Z0-9][\w'.&-]*(?: (?:(?:of|the|and|de|la|von|van) )*[A-Z0-9][\w'.&-]*)*")
_YES_NO = re.compile(
    r"(is|are|was|were|am|do|does|did|has|have|had|can|could|will|would|shall|should|may)\b",
    re.IGNORECASE,
)


def is_poor(answer: str, question: str) -> bool:
    """Whether `answer` names nothing: blank, a refusal, or only words of the question.

    Yes and no are poor where the question does not ask for them.
    """
    said = tokens(answer)
    if said in (["yes"], ["no"]):
        return not _YES_NO.match(question.strip())
    return not is_answer(answer) or set(said) <= set(tokens(question))


def best_entity(question: str, solved: Sequence[Node]) -> str:
    """The capitalised span of the solved answers with the most support; blank if there is none.

    Support is the sum of the confidences of the nodes whose answer holds the span. Spans of the
    question are no answers; of equals the last found wins, since the last hop is nearest to the
    answer.
    """
    asked = f" {' '.join(tokens(question))} "
    support: dict[str, float] = {}
    ordered = sorted(solved, key=lambda n: int(n.id[1:]))
    for node in ordered:
        for span in _SPAN.findall(node.answer):
            name = " ".join(tokens(span))
            if name and f" {name} " not in asked:
                backing = [n.confidence for n in ordered if span in n.answer]
                support.pop(span, None)
                support[span] = sum(backing) + 1e-6 * len(backing)
    return max(reversed(support), key=lambda span: support[span], default="")
