"""The ledger: every call that a question (or a compile) makes to a model, and what it cost.

An LM files its calls in the ledger that `dspy.settings` carries under `LEDGER_KEY`; DSPy hands that
setting to the threads of Evaluate and Parallel, and `fan_out` to its own, so one list collects all.
Two totals come out. *Billed* counts what this run sent to a server. *As if uncached* counts every
call with the tokens, price and latency it had when it was first answered, so it is the same on a
re-run that the cache answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeVar

import dspy

LEDGER_KEY = "rb_ledger"
PATH_KEY = "rb_path"
CALLER_KEY = "rb_caller"
FALLBACK_KEY = "rb_fallback"
#: A Counter of the question's events, such as `label_repair`.
COUNTS_KEY = "rb_counts"

#: Kinds of call that count as LM calls; embedding and reranking servers are counted apart.
LM_KINDS = frozenset({"lm", "judge"})

Item = TypeVar("Item")
Result = TypeVar("Result")


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
    cost_usd: float | None = None
    latency_s: float = 0.0
    attempts: int = 1
    cached: bool = False
    fallback: bool = False
    error: str | None = None
    batch: bool = False

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Call:
        """The call that `asdict` wrote; fields it does not know are left out."""
        known = cls.__dataclass_fields__
        return cls(**{name: value for name, value in data.items() if name in known})


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
        mine, theirs = asdict(self), asdict(other)
        sums: dict[str, Any] = {n: mine[n] + theirs[n] for n in mine if n != "cost_usd"}
        if self.cost_usd is None or other.cost_usd is None:
            return Totals(**sums, cost_usd=None)
        return Totals(**sums, cost_usd=self.cost_usd + other.cost_usd)


def total(calls: Iterable[Call]) -> Totals:
    """The sums over `calls`."""
    calls = list(calls)
    costs = [call.cost_usd for call in calls if call.error is None]
    known = [cost for cost in costs if cost is not None]
    return Totals(
        calls=sum(call.kind in LM_KINDS for call in calls),
        others=sum(call.kind not in LM_KINDS for call in calls),
        failed=sum(call.error is not None for call in calls),
        attempts=sum(call.attempts for call in calls),
        fallbacks=sum(call.fallback for call in calls),
        prompt_tokens=sum(call.prompt_tokens for call in calls),
        completion_tokens=sum(call.completion_tokens for call in calls),
        cost_usd=sum(known) if len(known) == len(costs) else None,
        latency_s=sum(call.latency_s for call in calls),
    )


@dataclass
class Path:
    """Length of the longest chain of calls that had to wait for each other.

    `cached_s` is the part of `latency_s` that the cache saved this time.
    """

    calls: int = 0
    latency_s: float = 0.0
    cached_s: float = 0.0


@dataclass
class Ledger:
    """All calls of one question, in the order in which they ended, and their critical path."""

    calls: list[Call] = field(default_factory=list)
    path: Path = field(default_factory=Path)
    #: Whether a limit of the command refused a call; not kept.
    refused: bool = False

    @property
    def as_if(self) -> Totals:
        """Totals as if nothing had been cached; the same on a cached re-run."""
        return total(self.calls)

    @property
    def billed(self) -> Totals:
        """Totals of what this run sent to a server."""
        return total(call for call in self.calls if not call.cached)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form; `from_dict` reads it back."""
        return {"calls": [asdict(call) for call in self.calls], "path": asdict(self.path)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Ledger:
        """The ledger that `to_dict` wrote; fields it does not know are left out."""
        known = Path.__dataclass_fields__
        path = Path(**{k: v for k, v in data["path"].items() if k in known})
        return cls(calls=[Call.from_dict(call) for call in data["calls"]], path=path)


class FiledCalls(list[Call]):
    """The calls of a ledger, each of which `also` gets as it is filed."""

    def __init__(self, also: Callable[[Call], None]) -> None:
        super().__init__()
        self._also = also

    def append(self, call: Call) -> None:
        """Add `call`, and pass it on."""
        super().append(call)
        self._also(call)


@contextmanager
def open_ledger(also: Callable[[Call], None] | None = None) -> Iterator[Ledger]:
    """A new ledger that collects every call made inside the block, in whatever thread.

    `also` gets every call as it is filed.
    """
    ledger = Ledger(FiledCalls(also) if also else [])
    with dspy.context(**{LEDGER_KEY: ledger, PATH_KEY: ledger.path}):
        yield ledger


def current_ledger() -> Ledger | None:
    """The ledger of the surrounding `open_ledger`, if any."""
    found = dspy.settings.get(LEDGER_KEY)
    return found if isinstance(found, Ledger) else None


def file_call(call: Call) -> None:
    """Add `call` to the current ledger and to the critical path; without a ledger, do nothing."""
    ledger = current_ledger()
    if ledger is None:
        return
    ledger.calls.append(call)
    path: Path = dspy.settings.get(PATH_KEY)
    path.calls += call.kind in LM_KINDS
    path.latency_s += call.latency_s
    if call.cached:
        path.cached_s += call.latency_s


@contextmanager
def calling(signature: str, role: str) -> Iterator[None]:
    """Calls made inside the block are filed under `signature` and `role`."""
    with dspy.context(**{CALLER_KEY: (signature, role)}):
        yield


def fan_out(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """`function` of each item, run at once, in input order.

    Keeps `dspy.context` in the threads, merges DSPy's trace in input order (so that what an
    optimizer sees does not depend on timing), and lengthens the critical path by the longest
    item's. The first error in input order is raised after all items have ended.
    """
    if not items:
        return []
    branches = [_Branch() for _ in items]
    with ThreadPoolExecutor(max_workers=min(len(items), 32), thread_name_prefix="fan-out") as pool:
        futures = [
            pool.submit(copy_context().run, branch.run, function, item)
            for branch, item in zip(branches, items, strict=True)
        ]
    for branch in branches:
        branch.join_trace()
    path = dspy.settings.get(PATH_KEY)
    if path is not None:
        longest = max((branch.path for branch in branches), key=lambda p: p.latency_s)
        path.calls += max(branch.path.calls for branch in branches)
        path.latency_s += longest.latency_s
        path.cached_s += longest.cached_s
    return [future.result() for future in futures]


@dataclass
class _Branch:
    """One item of a fan-out, with a trace and a path of its own."""

    path: Path = field(default_factory=Path)
    trace: list[Any] = field(default_factory=list)
    traced: bool = False

    def run(self, function: Callable[[Item], Result], item: Item) -> Result:
        settings: dict[str, Any] = {PATH_KEY: self.path}
        self.traced = dspy.settings.trace is not None
        if self.traced:
            settings["trace"] = self.trace
        with dspy.context(**settings):
            return function(item)

    def join_trace(self) -> None:
        if self.traced and dspy.settings.trace is not None:
            dspy.settings.trace.extend(self.trace)
