"""The shape that a record must have to be read, as a check of what a checksum cannot know."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, NotRequired, Required

from pydantic import (
    ConfigDict,
    Field,
    FiniteFloat,
    Strict,
    TypeAdapter,
    ValidationError,
    with_config,
)
from typing_extensions import TypedDict

STRICT = ConfigDict(strict=True)
# JSON has lists alone.
_Hit = Annotated[tuple[str, FiniteFloat], Strict(False)]
FactShape = Annotated[tuple[str, int], Strict(False)]


@with_config(STRICT)
class _Failure(TypedDict):
    boundary: str
    error: str
    message: str


@with_config(STRICT)
class CallShape(TypedDict, total=False):
    """A call as `asdict` writes it."""

    model: Required[str]
    signature: str
    role: str
    kind: str
    prompt_tokens: int
    completion_tokens: int
    cost_usd: FiniteFloat | None
    latency_s: FiniteFloat
    attempts: int
    cached: bool
    fallback: bool
    error: str | None
    batch: bool


@with_config(STRICT)
class _Path(TypedDict, total=False):
    calls: int
    latency_s: FiniteFloat
    cached_s: FiniteFloat


@with_config(STRICT)
class _Ledger(TypedDict):
    calls: list[CallShape]
    path: _Path


@with_config(STRICT)
class _Search(TypedDict):
    query: str
    k: int
    hits: list[_Hit]
    latency_s: FiniteFloat
    cached: bool


@with_config(STRICT)
class _Step(TypedDict):
    action: str
    input: str
    thought: str
    observation: str
    pids: list[str]
    notes: dict[str, Any]


@with_config(STRICT)
class _Passage(TypedDict, total=False):
    pid: Required[str]
    title: Required[str]
    text: Required[str]
    sentences: list[str]
    holds: list[FactShape]


@with_config(STRICT)
class _Record(TypedDict):
    qid: str
    question: str
    answers: Annotated[list[str], Field(min_length=1)]
    qtype: NotRequired[str]
    hops: NotRequired[int | None]
    decomposition: NotRequired[list[dict[str, Any]]]
    answer: str | None
    support: list[FactShape]
    gold_pids: list[str]
    stop_reason: str | None
    steps: list[_Step]
    searches: list[_Search]
    passages: list[_Passage]
    counts: dict[str, int]
    ledger: _Ledger
    latency_s: FiniteFloat
    failure: _Failure | None
    scores: dict[str, FiniteFloat | None]


@cache
def _adapter() -> TypeAdapter[_Record]:
    return TypeAdapter(_Record)


def wrong_with(record: object) -> str:
    """What keeps `record` from being read as one, such as "ledger.calls"; empty if nothing does."""
    return fault(_adapter(), record, "record")


def fault(adapter: TypeAdapter[Any], value: object, name: str) -> str:
    """Where `value` first differs from the shape of `adapter`, such as "ledger.calls".

    Empty if nowhere; `name` where it is none at all.
    """
    try:
        adapter.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        return ".".join(map(str, first["loc"])) or name
    return ""
