"""A call to a model, as the ledger has it, and the sums over calls.

Two totals come of them: what calls take *as if uncached*, at list price and without attempts that
failed, and what was *billed*. `ragbench.record` has the record that calls are kept in.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import Field, FiniteFloat, TypeAdapter

#: Kinds of call that count as LM calls; embedding and reranking servers are counted apart.
LM_KINDS = frozenset({"lm", "judge"})


def _is_none(value: object) -> bool:
    return value is None


#: Marks a field that is left out of a line where it is None.
ABSENT = Field(exclude_if=_is_none)
#: Likewise where it is empty.
NOT_EMPTY = Field(exclude_if=lambda value: not value)


@dataclass(frozen=True, slots=True)
class FailedAttempts:
    """Tokens and price of the failed attempts at a call, where their replies gave them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: FiniteFloat | None = None

    def __add__(self, other: FailedAttempts) -> FailedAttempts:
        known = self.cost_usd is not None and other.cost_usd is not None
        return FailedAttempts(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            (self.cost_usd or 0.0) + (other.cost_usd or 0.0) if known else None,
        )


@dataclass(frozen=True, slots=True)
class Call:
    """One call to a model.

    `latency_s` is the time of the call that reached the server, retries and waits included; a
    cached call carries that of the call that filled the cache. `cost_usd` is the list price, as if
    the provider had no cache of prompts, and None where no price is known. `error` is the class of
    error of a call that failed, whose tokens are then 0. A call of a `batch` costs half, and has no
    latency of its own.
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
    #: What was paid, where the provider's own cache of prompts made that another sum.
    paid_usd: Annotated[FiniteFloat | None, ABSENT] = None
    #: Those of the prompt tokens that the provider read from its cache, and that it wrote there.
    cache_read_tokens: Annotated[int, NOT_EMPTY] = 0
    cache_write_tokens: Annotated[int, NOT_EMPTY] = 0
    failed: Annotated[FailedAttempts | None, ABSENT] = None
    #: Seconds from the beginning of the question (or of what its ledger is of) to that of the call.
    started_s: Annotated[FiniteFloat, NOT_EMPTY] = field(default=0.0, compare=False)
    #: Ids of the messages sent, and of the reply, where the run keeps them; see `records.prompts`.
    prompt: Annotated[tuple[str, ...], NOT_EMPTY] = field(default=(), compare=False)
    reply: Annotated[str, NOT_EMPTY] = field(default="", compare=False)

    @property
    def paid(self) -> float | None:
        """US dollars paid for the reply, None where no price is known."""
        return self.cost_usd if self.paid_usd is None else self.paid_usd

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form; `parse_call` reads it back."""
        dumped: dict[str, Any] = _calls().dump_python(self, warnings=False)
        return dumped


@cache
def _calls() -> TypeAdapter[Call]:  # made when used, for it takes 10 ms
    return TypeAdapter(Call)


def parse_call(row: Mapping[str, Any]) -> Call:
    """The call that `Call.to_dict` wrote; fields it does not know are left out.

    Raises:
        ValidationError: it is no call.
    """
    return _calls().validate_python(row)


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over calls; a sum of prices is None as soon as one is unknown.

    `calls` counts those to an LM, `others` those to an embedder or a reranker; the rest is of both.
    `cost_usd` is the list price or what was paid, see `total` and `billed`; `list_usd` always the
    list price. `failed_tokens` are those of failed attempts, which only `billed` has.
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

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens together."""
        return self.prompt_tokens + self.completion_tokens

    def __add__(self, other: Totals) -> Totals:
        return Totals(*(_plus(getattr(self, n), getattr(other, n)) for n in _SUMS))


_SUMS = tuple(f.name for f in fields(Totals))


def _plus(a: Any, b: Any) -> Any:
    return None if a is None or b is None else a + b


def was_sent(call: Call) -> bool:
    """Whether a server was asked: not a cache, and no work done by this process itself."""
    own_work = call.kind not in LM_KINDS and call.cost_usd == 0.0
    return not call.cached and not own_work


class Sum:
    """Adds up calls one by one, at list price and without attempts that failed.

    `billed`: only those that were sent to a server, as it billed them, attempts that failed
    included where their replies told their tokens.
    """

    def __init__(self, *, billed: bool = False) -> None:
        self._billed = billed
        self._counts = Counter(dict.fromkeys(_SUMS, 0))
        #: What was paid, the list prices (no number where not known), and the latencies.
        self._sums = array("d"), array("d"), array("d")

    def add(self, call: Call) -> None:
        """Count `call`."""
        if self._billed and call.cached:
            return
        of_lm = call.kind in LM_KINDS
        self._counts.update(
            calls=of_lm,
            others=not of_lm,
            failed=call.error is not None,
            attempts=call.attempts,
            fallbacks=call.fallback,
            prompt_tokens=call.prompt_tokens,
            completion_tokens=call.completion_tokens,
            cache_read_tokens=call.cache_read_tokens,
            cache_write_tokens=call.cache_write_tokens,
        )
        self._sums[2].append(call.latency_s)
        if call.error is None:
            self._add_price(call.paid if self._billed else call.cost_usd, call.cost_usd)
        if self._billed and (lost := call.failed) is not None:
            sent, got = lost.prompt_tokens, lost.completion_tokens
            self._counts.update(prompt_tokens=sent, completion_tokens=got, failed_tokens=sent + got)
            self._add_price(lost.cost_usd, lost.cost_usd)

    def _add_price(self, *usd: float | None) -> None:
        for sums, one in zip(self._sums, usd, strict=False):
            sums.append(math.nan if one is None else one)

    def totals(self) -> Totals:
        """The sums over the calls so far, the same in any order."""
        cost, listed, latency_s = map(math.fsum, self._sums)
        usd: dict[str, Any] = {"cost_usd": cost, "list_usd": listed}
        if math.isnan(cost + listed):
            usd = dict.fromkeys(usd)
        return Totals(**{**self._counts, **usd, "latency_s": latency_s})


def total(calls: Iterable[Call]) -> Totals:
    """The sums over `calls`, at list price and without attempts that failed."""
    return _added(Sum(), calls)


def billed(calls: Iterable[Call]) -> Totals:
    """The sums over those of `calls` that were sent to a server, as it billed them."""
    return _added(Sum(billed=True), calls)


def _added(sums: Sum, calls: Iterable[Call]) -> Totals:
    for call in calls:
        sums.add(call)
    return sums.totals()
