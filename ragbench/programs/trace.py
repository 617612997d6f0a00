"""The state of one question: what was asked, searched, found and spent.

A `Trace` lives for one `forward`. Programs ask models, search and note steps through it, so that
the budget is checked before each call, parse failures take their declared default and are counted,
and every program leaves the same kind of record.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import dspy
from dspy.utils.exceptions import AdapterParseError, ContextWindowExceededError

from ragbench.errors import crossing
from ragbench.ledger import COUNTS_KEY, calling, fan_out
from ragbench.logs import fields as fields_of
from ragbench.logs import get
from ragbench.programs.fitting import shortened
from ragbench.programs.references import split_shown
from ragbench.retrievers.base import Passage, Retriever

_log = get(__name__)

StopReason = Literal["answered", "direct", "budget", "max_steps", "no_progress", "parse_fallback"]

#: role -> LM, for programs whose roles use different LMs.
ROLE_LMS_KEY = "rb_role_lms"
#: Set while every reply is made up, to count calls: nothing that is kept may be made of them.
REHEARSAL_KEY = "rb_rehearsal"

Item = TypeVar("Item")
Result = TypeVar("Result")


def role_lm(role: str) -> Any:
    """The LM that answers the calls of `role`: its own, or the current one."""
    return (dspy.settings.get(ROLE_LMS_KEY) or {}).get(role) or dspy.settings.lm


class BudgetSpentError(Exception):
    """A limit of the question's budget is reached; `forward` turns it into a forced answer."""


@dataclass
class Budget:
    """Limits on one question; one call is always kept back for the forced answer."""

    max_calls: int
    max_retrievals: int
    calls: int = 0
    retrievals: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def spend_call(self, *, last: bool = False) -> None:
        """Count one LM call; only `last` may use the one kept back.

        Raises:
            BudgetSpentError: the limit is reached.
        """
        with self._lock:
            if self.calls + (not last) >= self.max_calls:
                raise BudgetSpentError("LM calls")
            self.calls += 1

    def give_call_back(self) -> None:
        """Undo one `spend_call`: the LM refused the call, so nothing was said or billed."""
        with self._lock:
            self.calls -= 1

    def spend_retrievals(self, n: int) -> None:
        """Count `n` searches.

        Raises:
            BudgetSpentError: the limit would be passed.
        """
        with self._lock:
            if self.retrievals + n > self.max_retrievals:
                raise BudgetSpentError("searches")
            self.retrievals += n

    @property
    def calls_left(self) -> int:
        """LM calls left beside the one kept back."""
        return self.max_calls - 1 - self.calls


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class Search:
    """One search: query, depth, and what came back, best first."""

    query: str
    k: int
    hits: tuple[tuple[str, float], ...]
    latency_s: float
    cached: bool = False


@dataclass
class _Log:
    """What happened, in order; each item of a fan-out has one of its own until it is merged."""

    steps: list[Step] = field(default_factory=list)
    searches: list[Search] = field(default_factory=list)
    seen: dict[str, Passage] = field(default_factory=dict)

    def merge(self, other: _Log) -> None:
        self.steps += other.steps
        self.searches += other.searches
        for pid, passage in other.seen.items():
            self.seen.setdefault(pid, passage)


#: The trace that a fan-out's item belongs to, and that item's log.
_LOG: ContextVar[tuple[Trace, _Log] | None] = ContextVar("rb_log", default=None)


class Trace:
    """What one question has done so far. Local to one `forward`; safe under `fan_out`."""

    def __init__(self, question: str, retriever: Retriever, budget: Budget) -> None:
        self.question, self.retriever, self.budget = question, retriever, budget
        self.counts: Counter[str] = Counter()
        self._root = _Log()
        self._cache: dict[tuple[str, int], list[Passage]] = {}
        self._lock = threading.Lock()

    @property
    def _log(self) -> _Log:
        owner, log = _LOG.get() or (self, self._root)
        return log if owner is self else self._root  # a program inside another's fan-out

    @property
    def steps(self) -> list[Step]:
        """The steps noted so far (inside a fan-out: this item's own)."""
        return self._log.steps

    @property
    def searches(self) -> list[Search]:
        """The searches made so far (inside a fan-out: this item's own)."""
        return self._log.searches

    @property
    def passages(self) -> list[Passage]:
        """Every passage seen, once each, in the order first seen."""
        return list({**self._root.seen, **self._log.seen}.values())

    def ask(
        self,
        predictor: dspy.Module,
        *,
        otherwise: Mapping[str, Any] | None = None,
        last: bool = False,
        **inputs: Any,
    ) -> dspy.Prediction:
        """Call `predictor`; where its reply cannot be parsed, take `otherwise` and count it.

        A prompt that the LM refuses as too long is cut and sent again, counted as `context_cut`.
        One that cannot be cut enough takes `otherwise` too, counted as `context_overflow`.
        `last` marks a forced answer, which may use the call that the budget keeps back, and has no
        such way out.

        Raises:
            BudgetSpentError: no call is left.
            dspy.LMError: the provider failed; a window too small for a `last` call is one.
        """
        return self._ask(predictor, otherwise, last, inputs)[0]

    def answer(self, predictor: dspy.Module, *, last: bool = False, **inputs: Any) -> str:
        """The `answer` that `predictor` gives, stripped; blank where its reply cannot be parsed.

        Noted as a step: its input is the question, its pids the passages shown, and its notes what
        else was shown. `last` as in `ask`.
        """
        reply, shown = self._ask(predictor, {"answer": ""}, last, inputs)
        text = str(reply.answer or "").strip()
        pids, notes = split_shown(shown, self.passages)
        thought = str(reply.get("reasoning", "") or "")
        question = str(shown.get("question", ""))
        self.step(
            "answer", input=question, thought=thought, observation=text, pids=pids, notes=notes
        )
        return text

    def _ask(
        self,
        predictor: dspy.Module,
        otherwise: Mapping[str, Any] | None,
        last: bool,
        inputs: Mapping[str, Any],
    ) -> tuple[dspy.Prediction, Mapping[str, Any]]:
        """The reply, and the inputs that it is the reply to."""
        role = getattr(predictor, "rb_role", "")
        lm = role_lm(role)
        named = calling(getattr(predictor, "rb_signature", ""), role)
        with dspy.context(lm=lm, **{COUNTS_KEY: self.counts}), named:
            for attempt in itertools.count():
                self.budget.spend_call(last=last)
                try:
                    return predictor(**inputs), inputs
                except AdapterParseError:
                    self.count("parse_fallback")
                    break
                except ContextWindowExceededError as error:
                    self.budget.give_call_back()
                    refusal = "" if attempt else str(error)  # words that did not help: halve
                    room = int(lm.kwargs.get("max_tokens") or 0)
                    cut = shortened(inputs, refusal=refusal, reply_tokens=room)
                    if cut is None and (last or otherwise is None):
                        raise
                    if cut is None:
                        self.count("context_overflow")
                        break
                    self.count("context_cut")
                    inputs = cut
        return dspy.Prediction(**(otherwise or {}), parse_fallback=True), inputs

    def search(self, query: str, *, k: int) -> list[Passage]:
        """The retriever's passages for `query`, noted as a search; a repeat costs nothing.

        Raises:
            BudgetSpentError: no search is left.
        """
        return self.search_many([query], k=k)[0]

    def search_many(self, queries: Sequence[str], *, k: int) -> list[list[Passage]]:
        """One list of passages per query, in order; each is noted as a search.

        Raises:
            BudgetSpentError: not that many searches are left.
        """
        new = [q for q in dict.fromkeys(queries) if (q, k) not in self._cache]
        self.budget.spend_retrievals(len(new))
        start = time.perf_counter()
        with crossing("retriever"):
            hits_of = self.retriever.search_many(new, k=k) if new else []
        found = dict(zip(new, hits_of, strict=True))
        each = (time.perf_counter() - start) / max(len(new), 1)
        with self._lock:
            for query in queries:
                fresh = query in found and (query, k) not in self._cache
                hits = self._cache.setdefault((query, k), found.get(query, []))
                pairs = tuple((p.pid, p.score) for p in hits)
                self.searches.append(Search(query, k, pairs, each if fresh else 0.0, not fresh))
                for passage in hits:
                    self._log.seen.setdefault(passage.pid, passage)
        return [list(self._cache[query, k]) for query in queries]

    def search_by(
        self, find: Callable[[], Sequence[Passage]], query: str, *, k: int
    ) -> list[Passage]:
        """The passages that `find` gives, noted as a search for `query`; for a program's own index.

        Raises:
            BudgetSpentError: no search is left, and `find` is not called.
        """
        self.budget.spend_retrievals(1)
        start = time.perf_counter()
        with crossing("retriever"):
            found = list(find())
        elapsed = time.perf_counter() - start
        with self._lock:
            pairs = tuple((passage.pid, passage.score) for passage in found)
            self.searches.append(Search(query, k, pairs, elapsed))
            for passage in found:
                self._log.seen.setdefault(passage.pid, passage)
        return found

    def fan_out(
        self, function: Callable[[Item], Result], items: Sequence[Item], *, calls_each: int = 1
    ) -> list[Result]:
        """`function` of each item at once, in input order, for as many as the budget allows.

        The cut is made before anything runs, so that what is asked does not depend on timing.

        Raises:
            BudgetSpentError: not even one item is affordable.
        """
        affordable = self.budget.calls_left // calls_each if calls_each else len(items)
        if items and affordable < 1:
            raise BudgetSpentError("LM calls")
        if affordable < len(items):
            self.count("cut_by_budget", len(items) - affordable)
        outer, logs = self._log, [_Log() for _ in items[:affordable]]

        def run(pair: tuple[_Log, Item]) -> Result:
            _LOG.set((self, pair[0]))  # each item runs in a context of its own
            return function(pair[1])

        results = fan_out(run, list(zip(logs, items[:affordable], strict=True)))
        for log in logs:
            outer.merge(log)
        return results

    def step(self, action: str, **fields: Any) -> None:
        """Note one step; see `Step` for the fields."""
        self.steps.append(Step(action, **fields))

    def count(self, event: str, n: int = 1) -> None:
        """Count an event of the question, such as `parse_fallback` or `label_repair`."""
        with self._lock:
            self.counts[event] += n
        _log.info("counted", extra=fields_of(what=event, n=n))

    def prediction(
        self,
        answer: str,
        stop_reason: StopReason | None = None,
        *,
        passages: Sequence[Passage] | None = None,
        **extra: Any,
    ) -> dspy.Prediction:
        """The result of `forward`; `extra` may hold citations, plan, facts, tree.

        `passages` are the program's own ranking, where it makes one; else all seen, in order.
        """
        return dspy.Prediction(
            answer=answer,
            passages=self.passages if passages is None else list(passages),
            steps=list(self.steps),
            searches=list(self.searches),
            stop_reason=stop_reason,
            counts=self.counts,
            **extra,
        )


def estimate_tokens(text: str) -> int:
    """Tokens of `text`, estimated as a quarter of its characters, rounded up."""
    return -(-len(text) // 4)


def render(passages: Sequence[Passage], *, max_tokens: int) -> list[str]:
    """Passages as a prompt shows them, "[n] title | text" with n from 1, in `max_tokens` in all.

    The passage that crosses the limit is cut at a word; later ones are left out. The first is
    always shown, cut if need be.
    """
    lines: list[str] = []
    left = max_tokens
    for number, passage in enumerate(passages, start=1):
        line = f"[{number}] {passage}"
        size = estimate_tokens(line)
        if size > left:
            if left >= 30 or not lines:
                lines.append(line[: left * 4].rsplit(" ", 1)[0] + " ...")
            break
        lines.append(line)
        left -= size
    return lines
