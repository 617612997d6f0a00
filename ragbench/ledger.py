"""The ledger: the model calls of a question or a compile, with their cost.

An LM files its calls in the ledger that `ragbench.context` carries. DSPy passes that context to the
threads of Evaluate and Parallel, and `fan_out` passes it to its own, so one list collects all
calls.

There are two totals. *Billed* counts the calls that this run sent to a server. *Uncached*
counts every call with the tokens, price and latency of its first answer, so that a re-run from the
cache has the same total.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, TypeVar

import dspy

from ragbench.context import current, use
from ragbench.logs import fields, get
from ragbench.record import LM_KINDS, Call, CriticalPath, Ledger

_log = get(__name__)
_counting = threading.Lock()

Item = TypeVar("Item")
Result = TypeVar("Result")


class PendingCalls(list[int]):
    """Positions in the ledger of the calls of one line of work that no step has named yet."""

    def take(self) -> tuple[int, ...]:
        """Return the pending places and empties the list."""
        taken = tuple(self)
        self.clear()
        return taken


@dataclass
class Meter:
    """Counts the calls and tokens of what runs while it is a part of the context."""

    calls: int = 0
    tokens: int = 0

    def add(self, call: Call) -> None:
        """Count `call`."""
        self.calls += call.kind in LM_KINDS
        self.tokens += call.prompt_tokens + call.completion_tokens


class OpenLedger(Ledger):
    """A ledger that still collects calls.

    Attributes:
        refused: True if a limit of the command refused a call.
        interrupted: Text of a refusal that may concern the account and not the question.
    """

    def __init__(
        self, also: Callable[[Call], None] | None = None, keep: Callable[[str], str] | None = None
    ) -> None:
        super().__init__([], CriticalPath())
        self._also = also
        self._keep = keep
        self._lock = threading.Lock()
        self._last: dict[int, int] = {}  # thread -> place of its last call
        self._begun = time.perf_counter()
        self.refused = False
        self.interrupted = ""

    def file(self, call: Call) -> None:
        """Add `call`, which has just ended, also to the step and the path that it belongs to."""
        latency_s = 0.0 if call.cached else call.latency_s
        started = time.perf_counter() - self._begun - latency_s
        call = replace(call, started_s=round(max(0.0, started), 6))
        context = current()
        with self._lock:
            place = len(self.calls)
            self.calls.append(call)
            self._last[threading.get_ident()] = place
            if (meter := context.get(Meter)) is not None:
                meter.add(call)
        if self._also:
            self._also(call)
        if (pending := context.get(PendingCalls)) is not None:
            pending.append(place)
        path = context.get(CriticalPath) or self.path
        path.calls += call.kind in LM_KINDS
        path.latency_s += call.latency_s
        path.cached_s += call.latency_s if call.cached else 0.0

    def parts(self) -> tuple[object, ...]:
        """Return the parts of a context in which calls are filed here."""
        # Places in this ledger mean nothing to the steps of whatever keeps another.
        return self, self.path, PendingCalls()

    @property
    def keeps_texts(self) -> bool:
        """Return True if the texts of calls are stored."""
        return self._keep is not None

    def keep_texts(self, messages: Iterable[str], reply: str) -> None:
        """Store the prompt and the reply of this thread's last call, if texts are stored.

        Args:
            messages: Texts of the messages of the prompt.
            reply: Text of the reply.
        """
        place = self._last.get(threading.get_ident())
        if self._keep is None or place is None:
            return
        prompt = tuple(map(self._keep, messages))
        self.calls[place] = replace(self.calls[place], prompt=prompt, reply=self._keep(reply))


@contextmanager
def open_ledger(
    also: Callable[[Call], None] | None = None, keep: Callable[[str], str] | None = None
) -> Iterator[OpenLedger]:
    """Collect every call made inside the block in a new ledger.

    Args:
        also: Function that receives every call when it is filed.
        keep: Function that stores a text and returns its id. Without it, texts are not stored.

    Yields:
        The ledger.
    """
    ledger = OpenLedger(also, keep)
    with use(current().plus(*ledger.parts())):
        yield ledger


def current_ledger() -> OpenLedger | None:
    """Return the ledger of the surrounding `open_ledger`, if any."""
    return current().get(OpenLedger)


class RetryContext:
    """Part of the context of a call that repeats one whose reply could not be read."""


@dataclass(frozen=True)
class CompilePhase:
    """A part of a compile that spends, such as student or zero_shot. Carried by the context."""

    name: str


def file_call(call: Call) -> None:
    """Add `call` to the current ledger. Without one, do nothing."""
    if (ledger := current_ledger()) is not None:
        ledger.file(call)


def file_lm_call(model: str, **fields: Any) -> None:
    """Record a call of an LM under the signature, role and fallback mark of the calling context.

    Without an open ledger, nothing is recorded.

    Args:
        model: Model of the call.
        **fields: Other fields of `Call`.
    """
    if (ledger := current_ledger()) is None:
        return
    context = current()
    signature, role = context.caller or ("", "")
    # A module that was not made by `predict` or `chain_of_thought`, such as one of DSPy's own.
    for module in reversed(dspy.settings.get("caller_modules") or []):
        signature = signature or getattr(getattr(module, "signature", None), "__name__", "")
    fallback = context.get(RetryContext) is not None
    ledger.file(Call(model, signature=signature, role=role, fallback=fallback, **fields))


def count(event: str) -> None:
    """Count one event of the question, such as `label_repair`. Outside of one, do nothing."""
    counts = current().counts
    if counts is not None:
        with _counting:
            counts[event] += 1
    _log.info("counted", extra=fields(what=event))


@contextmanager
def calling(signature: str, role: str) -> Iterator[None]:
    """File the calls made inside the block under `signature` and `role`.

    Args:
        signature: Name of the signature.
        role: Role of the LM.
    """
    with use(replace(current(), caller=(signature, role))):
        yield


def fan_out(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Apply `function` to each item concurrently and return the results in input order.

    The threads keep `dspy.context`. DSPy's trace is merged in input order, so that an
    optimizer's view does not depend on timing. The critical path grows by that of the longest
    item. The first error in input order is raised after all items have ended.

    Args:
        function: Function of one item.
        items: Items. At most 32 run at the same time.

    Returns:
        The result of each item.
    """
    if not items:
        return []
    traced = dspy.settings.trace is not None
    paths = [CriticalPath() for _ in items]
    traces: list[list[Any]] = [[] for _ in items]

    def run(place: int) -> Result:
        with use(current().plus(paths[place]), **({"trace": traces[place]} if traced else {})):
            return function(items[place])

    with ThreadPoolExecutor(max_workers=min(len(items), 32), thread_name_prefix="fan-out") as pool:
        futures = [pool.submit(copy_context().run, run, place) for place in range(len(items))]
    if traced:
        dspy.settings.trace.extend(entry for trace in traces for entry in trace)
    path = current().get(CriticalPath)
    if path is not None:
        longest = max(paths, key=attrgetter("latency_s"))
        path.calls += max(fanned.calls for fanned in paths)
        path.latency_s += longest.latency_s
        path.cached_s += longest.cached_s
    return [future.result() for future in futures]
