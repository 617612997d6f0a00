"""Define the record of one question with its calls, steps and searches.

Programs and runs write records. The run's database stores them as JSON. Metrics, reports and
comparisons read them. The classes are the schema, the types and the documentation. They need
neither DSPy nor a model. Reading checks types strictly.

Calls have two totals: *uncached*, at list price without failed attempts, and *billed*.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, FiniteFloat, TypeAdapter

#: Kinds of call that count as LM calls; embedding and reranking servers are counted apart.
LM_KINDS = frozenset({"lm", "judge"})
#: Class of error of a question that a limit of the command's spending cut off.
CUT_OFF = "LimitReachedError"
#: Marks a field that is omitted from a line if it is None or empty.
ABSENT = Field(exclude_if=lambda value: value is None)
NOT_EMPTY = Field(exclude_if=lambda value: not value)

Kind = TypeVar("Kind")

#: Title of a paragraph and number of a sentence in it, from 0.
Fact = tuple[str, int]
#: Subject, relation and object.
Triple = tuple[str, str, str]
#: Id of a passage and its score.
Hit = tuple[str, FiniteFloat]


@dataclass(frozen=True, slots=True)
class FailedAttempts:
    """Tokens and price of the failed attempts at a call, where their replies gave them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: FiniteFloat | None = None
    #: Requests whose reply was lost, which the server may have billed, and the most of each.
    unanswered: Annotated[int, NOT_EMPTY] = 0
    possible_tokens: Annotated[int, NOT_EMPTY] = 0
    possible_usd: Annotated[FiniteFloat | None, Field(exclude_if=lambda usd: usd == 0.0)] = 0.0

    def __add__(self, other: FailedAttempts) -> FailedAttempts:
        return FailedAttempts(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            _sum(self.cost_usd, other.cost_usd),
            self.unanswered + other.unanswered,
            self.possible_tokens + other.possible_tokens,
            _sum(self.possible_usd, other.possible_usd),
        )


def _sum(a: float | None, b: float | None) -> float | None:
    """Add two costs. The sum is unknown if one of them is."""
    if a is None or b is None:
        return None
    return a + b


@dataclass(frozen=True, slots=True)
class Call:
    """One call to a model.

    `latency_s` is the time of the call that reached the server, with retries and waits. A cached
    call has the latency of the call that filled the cache. `cost_usd` is the list price without
    the provider's prompt cache, or None if the price is unknown. `error` is the class of a failed
    call's error; its tokens are 0. A call of a `batch` costs half and has no latency.
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
    #: Amount paid, if the provider's prompt cache changed it.
    paid_usd: Annotated[FiniteFloat | None, ABSENT] = None
    #: Those of the prompt tokens that the provider read from its cache, and that it wrote there.
    cache_read_tokens: Annotated[int, NOT_EMPTY] = 0
    cache_write_tokens: Annotated[int, NOT_EMPTY] = 0
    #: Completion tokens that were reasoning.
    reasoning_tokens: Annotated[int, NOT_EMPTY] = 0
    #: Number of calls that it represents, if another system reported only totals.
    count: Annotated[int, Field(exclude_if=lambda count: count == 1)] = 1
    failed: Annotated[FailedAttempts | None, ABSENT] = None
    #: Seconds from the beginning of the question (or of what its ledger is of) to that of the call.
    started_s: Annotated[FiniteFloat, NOT_EMPTY] = field(default=0.0, compare=False)
    #: Ids of the messages sent, and of the reply, where the run keeps them; see `records.prompts`.
    prompt: Annotated[tuple[str, ...], NOT_EMPTY] = field(default=(), compare=False)
    reply: Annotated[str, NOT_EMPTY] = field(default="", compare=False)

    @property
    def paid(self) -> float | None:
        """US dollars paid for the reply, or None if the price is unknown."""
        if self.paid_usd is None:
            return self.cost_usd
        return self.paid_usd

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready form for `parse_call`."""
        dumped: dict[str, Any] = _adapter(Call).dump_python(self, warnings=False)
        return dumped


@cache
def _adapter(kind: type[Kind]) -> TypeAdapter[Kind]:  # made when used, for it takes 10 ms
    return TypeAdapter(kind)


def parse_call(row: Mapping[str, Any]) -> Call:
    """Read the call that `Call.to_dict` wrote; raise ValidationError if it is malformed."""
    parsed: Call = _adapter(Call).validate_python(row)
    return parsed


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over calls; a sum of prices is None if one is unknown.

    `calls`, `prompt_tokens` and `completion_tokens` count LMs. `others` and `other_tokens` count
    embedders and rerankers. The rest counts both. `cost_usd` is the list price or the paid price,
    see `total` and `billed`. `list_usd` is always the list price. `failed_tokens` are those of
    failed attempts, only in `billed`. `unanswered` counts requests whose reply was lost: they were
    possibly billed, with at most `possible_tokens` and `possible_usd`.
    """

    calls: int = 0
    others: int = 0
    failed: int = 0
    attempts: int = 0
    fallbacks: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float | None = 0.0
    latency_s: float = field(default=0.0, compare=False)
    list_usd: float | None = 0.0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    failed_tokens: int = 0
    other_tokens: int = 0
    unanswered: int = 0
    possible_tokens: int = 0
    possible_usd: float | None = 0.0

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens of LMs together."""
        return self.prompt_tokens + self.completion_tokens

    @property
    def all_tokens(self) -> int:
        """Tokens of LMs, embedders and rerankers."""
        return self.tokens + self.other_tokens

    def __add__(self, other: Totals) -> Totals:
        return add_up([self, other])


_values_of = attrgetter(*(field.name for field in fields(Totals)))
#: The sum of each field: `fsum` does not depend on the order.
_SUMS = [math.fsum if isinstance(field.default, float) else sum for field in fields(Totals)]


def add_up(totals: Iterable[Totals]) -> Totals:
    """Sum `totals` independent of their order; a price is None if one is unknown."""
    sums: list[Any] = []
    columns = zip(*map(_values_of, totals), strict=True)
    for column, add in zip(columns, _SUMS, strict=False):
        sums.append(None if None in column else add(column))
    return Totals(*sums)


def was_sent(call: Call) -> bool:
    """Return True if the call reached a server: not cached, and not done in this process."""
    own_work = call.kind not in LM_KINDS and call.cost_usd == 0.0
    return not call.cached and not own_work


_NOTHING_LOST = FailedAttempts(cost_usd=0.0)


def _totals_of(call: Call, *, billed: bool) -> Totals:
    """Return the totals of one call, see `total`."""
    lost = call.failed if billed and call.failed else _NOTHING_LOST
    cost: float | None = 0.0
    listed = cost
    if call.error is None:
        cost = call.paid if billed else call.cost_usd
        listed = call.cost_usd
    if cost is None or listed is None or lost.cost_usd is None:
        cost = listed = None
    else:
        cost += lost.cost_usd
        listed += lost.cost_usd
    sent = call.prompt_tokens + lost.prompt_tokens
    received = call.completion_tokens + lost.completion_tokens
    counts = {"others": call.count, "other_tokens": sent + received}
    if call.kind in LM_KINDS:
        counts = {"calls": call.count, "prompt_tokens": sent, "completion_tokens": received}
    return Totals(
        **counts,
        failed=int(call.error is not None),
        attempts=call.attempts * call.count,
        fallbacks=int(call.fallback),
        cost_usd=cost,
        latency_s=call.latency_s,
        list_usd=listed,
        cache_read_tokens=call.cache_read_tokens,
        cache_write_tokens=call.cache_write_tokens,
        failed_tokens=lost.prompt_tokens + lost.completion_tokens,
        unanswered=lost.unanswered,
        possible_tokens=lost.possible_tokens,
        possible_usd=lost.possible_usd,
    )


def total(calls: Iterable[Call], *, billed: bool = False) -> Totals:
    """Return the totals of calls.

    Args:
        calls: Calls.
        billed: Sum what servers billed. Otherwise, sum the list price without failed attempts.
    """
    return add_up(_totals_of(call, billed=billed) for call in calls if not (billed and call.cached))


def billed(calls: Iterable[Call]) -> Totals:
    """Sum those of `calls` that reached a server, as it billed them."""
    return total(calls, billed=True)


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
    """All calls of one question in the order in which they ended, and their critical path."""

    calls: list[Call]
    path: CriticalPath

    @property
    def as_if(self) -> Totals:
        """Totals as if nothing had been cached; the same on a cached re-run."""
        return total(self.calls)

    @property
    def billed(self) -> Totals:
        """Totals of what this run sent to a server."""
        return billed(self.calls)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a program: its thought, action, input and observation.

    `action` is a short verb: search, answer, gate, judge, plan, think, lookup, read, decompose,
    extract, ... `pids` are the passages that it used. `notes` holds scores and labels.
    """

    action: str
    input: str = ""
    thought: str = ""
    observation: str = ""
    pids: tuple[str, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)
    #: Places in the ledger, from 0, of the calls that were made for it.
    calls: Annotated[tuple[int, ...], NOT_EMPTY] = ()


@dataclass(frozen=True, slots=True)
class Search:
    """One search: query, depth, and the returned passages with scores, best first.

    `cached` marks a repeated query of the same question, which is free.
    """

    query: str
    k: int
    hits: tuple[Hit, ...]
    latency_s: FiniteFloat
    cached: bool = False

    @property
    def pids(self) -> tuple[str, ...]:
        """Ids of the passages that came back, best first."""
        return tuple(pid for pid, _ in self.hits)


@dataclass(frozen=True, slots=True)
class ShownPassage:
    """One passage in the LM's context; `sentences` if the data splits it.

    In an aligned chunk corpus, `holds` lists the paragraph sentences that it contains.
    """

    pid: str
    title: str
    text: str
    sentences: Annotated[tuple[str, ...], NOT_EMPTY] = ()
    holds: Annotated[tuple[Fact, ...] | None, ABSENT] = None


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
    """One question of a run: the question, the program's work and the result."""

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
    #: Pids of the passages in the LM's context, in order; None if unknown.
    in_context: Annotated[list[str] | None, ABSENT] = None
    counts: dict[str, int]
    ledger: Ledger
    latency_s: FiniteFloat
    failure: Failure | None
    scores: dict[str, FiniteFloat | None]
    #: Usage fields that an imported system did not report, such as calls or cost_usd.
    unknown: Annotated[list[str], NOT_EMPTY] = field(default_factory=list)
    citations: Annotated[Any, ABSENT] = None
    #: True if it cites sentences, even if it cites none, which is the worst score.
    cites_sentences: Annotated[bool, NOT_EMPTY] = False
    plan: Annotated[Any, ABSENT] = None
    facts: Annotated[Any, ABSENT] = None
    tree: Annotated[Any, ABSENT] = None
    #: Filled in when a run is scored, never stored with the record.
    attribution: Annotated[list[Fact] | None, ABSENT] = None
    attributed_triples: Annotated[list[Triple] | None, ABSENT] = None
    #: What metrics have worked out of this record; see `ragbench.metrics.base.once`.
    memo: Annotated[dict[object, Any], Field(exclude=True)] = field(
        init=False, default_factory=dict, repr=False, compare=False
    )

    def known(self, name: str, value: Kind) -> Kind | None:
        """Return `value` of the amount `name`; None if the amount is unknown.

        Args:
            name: Name of the amount.
            value: Value of the amount.
        """
        if name in self.unknown:
            return None
        return value

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
        """Return a JSON-ready form for `parse_record`."""
        dumped: dict[str, Any] = _adapter(Record).dump_python(self, warnings=False)
        return dumped

    def to_json(self) -> str:
        """Return JSON for `parse_record`, with a lone surrogate replaced by "?"."""
        try:
            return _adapter(Record).dump_json(self, warnings=False, fallback=str).decode()
        except ValueError:  # A lone surrogate
            text = json.dumps(self.to_dict(), ensure_ascii=False, default=str)
            return text.encode("utf-8", "replace").decode()


def parse_record(line: str | bytes) -> Record:
    """Read a record from a JSON object.

    Raises:
        ValidationError: A field is missing, unknown or of another type.
    """
    parsed: Record = _adapter(Record).validate_json(line, strict=True)
    return parsed
