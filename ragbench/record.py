"""What is kept of one question: the record, and the calls, steps and searches in it.

A record is written by a program and a run, stored as one JSON line, and read by metrics, reports
and comparisons. The classes here are its schema, its type and its documentation; they need neither
DSPy nor a model. Reading is strict about types and leaves fields out that it does not know, so that
records of other versions stay readable.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field, FiniteFloat, TypeAdapter

#: Title of a paragraph and number of a sentence in it, from 0.
Fact = tuple[str, int]
#: Subject, relation and object.
Triple = tuple[str, str, str]
#: Id of a passage and its score.
Hit = tuple[str, FiniteFloat]

#: Kinds of call that count as LM calls; embedding and reranking servers are counted apart.
LM_KINDS = frozenset({"lm", "judge"})
#: Class of error of a question that a limit of the command's spending cut off.
CUT_OFF = "LimitReachedError"


def _is_none(value: object) -> bool:
    return value is None


#: Marks a field that is left out of a line where it is None.
_ABSENT = Field(exclude_if=_is_none)
#: Likewise where it is empty.
_NOT_EMPTY = Field(exclude_if=lambda value: not value)


@dataclass(frozen=True, slots=True)
class Call:
    """One call to a model.

    `latency_s` is the time of the call that reached the server, retries and waits included; a
    cached call carries that of the call that filled the cache. `cost_usd` is None where no price
    is known. `error` is the class of error of a call that failed, whose tokens are then 0. A call
    of a `batch` costs half, and has no latency of its own.
    """

    model: str
    signature: str = ""
    role: str = ""
    kind: Literal["lm", "embed", "rerank", "judge"] = "lm"
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: FiniteFloat | None = None
    latency_s: FiniteFloat = 0.0
    attempts: int = 1
    cached: bool = False
    fallback: bool = False
    error: str | None = None
    batch: bool = False
    #: Ids of the messages sent, and of the reply, where the run keeps them; see `records.prompts`.
    prompt: Annotated[tuple[str, ...], _NOT_EMPTY] = field(default=(), compare=False)
    reply: Annotated[str, _NOT_EMPTY] = field(default="", compare=False)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form; `parse_call` reads it back."""
        found: dict[str, Any] = _CALL.dump_python(self, warnings=False)
        return found


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over calls; `cost_usd` is None as soon as one call's price is unknown.

    `calls` counts those to an LM, `others` those to an embedder or a reranker; the rest is of both.
    """

    calls: int = 0
    others: int = 0
    failed: int = 0
    attempts: int = 0
    fallbacks: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float | None = 0.0
    latency_s: float = 0.0

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens together."""
        return self.prompt_tokens + self.completion_tokens

    def __add__(self, other: Totals) -> Totals:
        known = self.cost_usd is not None and other.cost_usd is not None
        return Totals(
            calls=self.calls + other.calls,
            others=self.others + other.others,
            failed=self.failed + other.failed,
            attempts=self.attempts + other.attempts,
            fallbacks=self.fallbacks + other.fallbacks,
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            cost_usd=(self.cost_usd or 0.0) + (other.cost_usd or 0.0) if known else None,
            latency_s=self.latency_s + other.latency_s,
        )


def was_sent(call: Call) -> bool:
    """Whether a server was asked: not a cache, and no work done by this process itself."""
    own_work = call.kind not in LM_KINDS and call.cost_usd == 0.0
    return not call.cached and not own_work


class Sum:
    """Adds up calls one by one."""

    def __init__(self) -> None:
        self._n = self._of_lms = self._failed = self._attempts = self._fallbacks = 0
        self._prompt_tokens = self._completion_tokens = 0
        self._costs, self._latencies = array("d"), array("d")

    def add(self, call: Call) -> None:
        """Count `call`."""
        self._n += 1
        self._of_lms += call.kind in LM_KINDS
        self._attempts += call.attempts
        self._fallbacks += call.fallback
        self._prompt_tokens += call.prompt_tokens
        self._completion_tokens += call.completion_tokens
        self._latencies.append(call.latency_s)
        if call.error is not None:
            self._failed += 1
        elif call.cost_usd is not None:
            self._costs.append(call.cost_usd)

    def totals(self) -> Totals:
        """The sums over the calls so far."""
        priced = len(self._costs) == self._n - self._failed
        return Totals(
            calls=self._of_lms,
            others=self._n - self._of_lms,
            failed=self._failed,
            attempts=self._attempts,
            fallbacks=self._fallbacks,
            prompt_tokens=self._prompt_tokens,
            completion_tokens=self._completion_tokens,
            cost_usd=sum(self._costs) if priced else None,
            latency_s=sum(self._latencies),
        )


def total(calls: Iterable[Call]) -> Totals:
    """The sums over `calls`."""
    found = Sum()
    for call in calls:
        found.add(call)
    return found.totals()


@dataclass(slots=True)
class CriticalPath:
    """Length of the longest chain of calls that had to wait for each other.

    `cached_s` is the part of `latency_s` that the cache saved this time.
    """

    calls: int = 0
    latency_s: FiniteFloat = 0.0
    cached_s: FiniteFloat = 0.0


@dataclass(slots=True)
class Ledger:
    """All calls of one question, in the order in which they ended, and their critical path."""

    calls: list[Call]
    path: CriticalPath

    @property
    def as_if(self) -> Totals:
        """Totals as if nothing had been cached; the same on a cached re-run."""
        return total(self.calls)

    @property
    def billed(self) -> Totals:
        """Totals of what this run sent to a server."""
        return total(call for call in self.calls if not call.cached)


@dataclass(frozen=True, slots=True)
class Step:
    """One thing a program did: what it thought, did with what input, and saw.

    `action` is a short verb: search, answer, gate, judge, plan, think, lookup, read, decompose,
    extract, ... `pids` are the passages it got or used; `notes` holds scores and labels.
    """

    action: str
    input: str = ""
    thought: str = ""
    observation: str = ""
    pids: tuple[str, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)
    #: Places in the ledger, from 0, of the calls that were made for it.
    calls: Annotated[tuple[int, ...], _NOT_EMPTY] = ()


@dataclass(frozen=True, slots=True)
class Search:
    """One search: query, depth, and the passages that came back with their scores, best first.

    `cached` marks a query that the same question had searched before; it cost nothing.
    """

    query: str
    k: int
    hits: tuple[Hit, ...]
    latency_s: FiniteFloat
    cached: bool = False


@dataclass(frozen=True, slots=True)
class ShownPassage:
    """One passage that the program saw; `sentences` where the data splits it.

    On a chunk corpus that is aligned, `holds` lists the paragraphs' sentences in it.
    """

    pid: str
    title: str
    text: str
    sentences: Annotated[tuple[str, ...], _NOT_EMPTY] = ()
    holds: Annotated[tuple[Fact, ...] | None, _ABSENT] = None


@dataclass(frozen=True, slots=True)
class Failure:
    """The boundary that failed, the class of the error and its message, keys taken out."""

    boundary: str
    error: str
    message: str

    @property
    def name(self) -> str:
        """Boundary and class, as `provider/LMServerError`."""
        return f"{self.boundary}/{self.error}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One question of a run: what was asked, what the program did, and what came of it."""

    qid: str
    question: str
    #: The canonical answer first, then its aliases.
    answers: Annotated[list[str], Field(min_length=1)]
    qtype: str = ""
    hops: int | None = None
    #: Supporting facts.
    support: list[Fact]
    gold_pids: list[str]
    decomposition: list[dict[str, Any]] = field(default_factory=list)
    #: Other fields of the data set's example.
    extra: dict[str, Any] = field(default_factory=dict)
    answer: str | None
    stop_reason: str | None
    steps: list[Step]
    searches: list[Search]
    passages: list[ShownPassage]
    counts: dict[str, int]
    ledger: Ledger
    latency_s: FiniteFloat
    failure: Failure | None
    scores: dict[str, FiniteFloat | None]
    citations: Annotated[Any, _ABSENT] = None
    plan: Annotated[Any, _ABSENT] = None
    facts: Annotated[Any, _ABSENT] = None
    tree: Annotated[Any, _ABSENT] = None
    stages: Annotated[Any, _ABSENT] = None
    #: Filled in when a run is scored, never stored with the record.
    attribution: Annotated[list[Fact] | None, _ABSENT] = None
    attributed_triples: Annotated[list[Triple] | None, _ABSENT] = None
    #: What metrics have worked out of this record; see `ragbench.metrics.base.once`.
    memo: Annotated[dict[object, Any], Field(exclude=True)] = field(
        init=False, default_factory=dict, repr=False, compare=False
    )

    @property
    def answer_text(self) -> str:
        """The answer; empty where there is none."""
        return self.answer or ""

    @property
    def failed(self) -> bool:
        """Whether the question got no answer: an error ended it, or none was given."""
        return self.failure is not None or self.answer is None

    @property
    def cut_off(self) -> bool:
        """Whether a limit of the command's spending kept the question from its end."""
        return self.failure is not None and self.failure.error == CUT_OFF

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form; `parse_record` reads it back."""
        found: dict[str, Any] = _RECORD.dump_python(self, warnings=False)
        return found


_RECORD: TypeAdapter[Record] = TypeAdapter(Record)
_CALL: TypeAdapter[Call] = TypeAdapter(Call)


def parse_call(row: Mapping[str, Any]) -> Call:
    """The call that `Call.to_dict` wrote; fields it does not know are left out.

    Raises:
        ValidationError: it is no call.
    """
    return _CALL.validate_python(row)


def parse_record(line: str | bytes) -> Record:
    """The record that a JSON object holds.

    Raises:
        ValidationError: it is no record, or a field is missing or of another type.
    """
    return _RECORD.validate_json(line, strict=True)
