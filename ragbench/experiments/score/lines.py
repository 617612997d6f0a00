"""What the lines of `judged.jsonl` and `scores.jsonl` hold: replies, batches and scores.

As for records, a checksum that fits says nothing about what a line holds.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Literal, NotRequired

from pydantic import (
    AfterValidator,
    Field,
    FiniteFloat,
    NonNegativeInt,
    Strict,
    StrictBool,
    TypeAdapter,
    with_config,
)
from typing_extensions import TypedDict

from ragbench.experiments.records import STRICT, CallLine, first_fault

# JSON has lists alone.
_Facts = list[Annotated[tuple[str, int], Strict(False)]]
_Triples = list[Annotated[tuple[str, str, str], Strict(False)]]


@with_config(STRICT)
class _Attribution(TypedDict):
    facts: _Facts
    out_of_range: NonNegativeInt


@with_config(STRICT)
class _Statements(TypedDict):
    answer_statements: Annotated[int, Field(ge=1)]
    gold_statements: Annotated[int, Field(ge=1)]
    supported: NonNegativeInt
    covered: NonNegativeInt
    faithful: NonNegativeInt | None
    cosine: FiniteFloat


def _add_up(value: _Statements) -> _Statements:
    """`value`, where no count is of more statements than there are."""
    n, gold = value["answer_statements"], value["gold_statements"]
    if value["supported"] > n or value["covered"] > gold or (value["faithful"] or 0) > n:
        raise ValueError("more statements than there are")
    return value


def _mistake() -> Any:
    from ragbench.signatures import Mistake  # slow: loads DSPy, which reading scores has no need of

    return Mistake


#: Pass -> what its replies hold. The value of another pass is not looked at: nothing reads it.
_VALUES: dict[str, Any] = {
    "judge": str,
    "judge_arag": str,
    "attribution": _Attribution,
    "evidence": _Triples,
    "grounding": list[StrictBool],
    "statements": Annotated[_Statements, AfterValidator(_add_up)],
    "mistake": _mistake,
}

# "pass" can be no name in a class.
_Reply = TypedDict(
    "_Reply",
    {
        "qid": str,
        "pass": str,
        "key": str,
        "model": str,
        "value": Any,
        "why": str,
        "provider_failed": StrictBool,
        "calls": list[CallLine],
    },
)


@with_config(STRICT)
class _Planned(TypedDict):
    batch: Literal["planned"]
    name: str
    keys: list[str]
    tasks: list[str]
    since_s: FiniteFloat


@with_config(STRICT)
class _Submitted(TypedDict):
    batch: Literal["submitted"]
    name: str
    id: str


@with_config(STRICT)
class _ItemReply(TypedDict):
    status: int
    body: dict[str, Any]


@with_config(STRICT)
class _Over(TypedDict):
    batch: Literal["ended", "lost"]
    name: str
    replies: NotRequired[dict[str, _ItemReply]]


_Batch = Annotated[_Planned | _Submitted | _Over, Field(discriminator="batch")]


@with_config(STRICT)
class _Scores(TypedDict):
    qid: str
    of: str
    scores: dict[str, FiniteFloat | None]
    attribution: NotRequired[_Facts]
    attributed_triples: NotRequired[_Triples]


_LINES: dict[str, Any] = {
    "reply": _Reply,
    "batch": _Batch,
    "line of scores": _Scores,
}


@cache
def _adapter(name: str) -> TypeAdapter[Any]:
    kind = (_LINES | _VALUES)[name]
    return TypeAdapter(kind() if kind is _mistake else kind)


def wrong_with_reply(row: object) -> str:
    """What keeps a line of a pass's journal from being used; empty if nothing does."""
    if is_of_batch(row):
        return _fault("batch", row)
    wrong = _fault("reply", row)
    if wrong or not isinstance(row, dict) or row["value"] is None or row["pass"] not in _VALUES:
        return wrong
    return "value" if _fault(row["pass"], row["value"]) else ""


def is_of_batch(row: object) -> bool:
    """Whether a line of a journal tells of a batch, not of a reply."""
    return isinstance(row, dict) and "batch" in row


def wrong_with_scores(row: object) -> str:
    """What keeps a line of scores from being used; empty if nothing does."""
    return _fault("line of scores", row)


def _fault(name: str, value: object) -> str:
    return first_fault(_adapter(name), value, name)
