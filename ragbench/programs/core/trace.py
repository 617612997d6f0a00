"""The state of one question: what was asked, searched, found and spent.

Programs ask models, search and note steps through it, so that the budget is checked before each
call, failures that have a way out take it and are counted, and all leave the same kind of record.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeVar, get_origin

import dspy
from dspy import AdapterParseError, ContextWindowExceededError

from ragbench.context import current, use
from ragbench.ledger import PendingCalls, fan_out
from ragbench.lms.adapters import PartialReplyError
from ragbench.logs import fields as fields_of, get
from ragbench.programs.core.prompts import halved, shown_in, split_shown
from ragbench.programs.core.text import Passages, is_answer
from ragbench.record import Search, Step
from ragbench.retrievers import Passage, Retriever
from ragbench.signatures import AnswerStyle, OnMissing, styled
from ragbench.user_code import contained

_logger = get(__name__)

#: How a program ended; `no_answer`: what it found answers nothing, and it says so.
StopReason = Literal[
    "answered", "direct", "no_answer", "budget", "max_steps", "no_progress", "parse_fallback"
]

#: The answer of a model that leaves the field empty because the facts are missing.
NOT_STATED = "not stated"
#: Of a call that asks again because a reply only repeated what was there.
RESAMPLING = 0.7
#: Generated code can make a query of any length; the rest of it is left out.
MAX_QUERY_CHARS = 4_000

Item = TypeVar("Item")
Result = TypeVar("Result")


def sampling(sample: int, temperature: float = RESAMPLING) -> dict[str, Any]:
    """Settings of a call that is the `sample`-th again; 0 for the first, which has none.

    Each has a seed and a place in the cache of its own.
    """
    if sample:
        return {"temperature": temperature, "rollout_id": sample}
    return {}


def role_lm(role: str) -> Any:
    """The LM that answers the calls of `role`: its own, or the current one."""
    return current().role_lms.get(role) or dspy.settings.lm


class BudgetSpentError(Exception):
    """A limit of the question's budget is reached; what follows is a forced answer."""


@dataclass
class Budget:
    """Limits on one question; one call is always kept back for the forced answer."""

    max_calls: int
    max_retrievals: int
    calls: int = 0
    retrievals: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def spend_call(self, *, last: bool = False) -> None:
        """Count one LM call, or raise `BudgetSpentError`; only `last` may use the one kept back."""
        with self._lock:
            if self.calls + (not last) >= self.max_calls:
                raise BudgetSpentError("LM calls")
            self.calls += 1

    @property
    def calls_left(self) -> int:
        return self.max_calls - 1 - self.calls

    @property
    def retrievals_left(self) -> int:
        return self.max_retrievals - self.retrievals


def stalled(reply: dspy.Prediction) -> StopReason:
    """Returns why a loop ends with `reply`, which adds nothing to those before it."""
    if reply.get("parse_fallback"):
        return "parse_fallback"
    return "no_progress"


def blank(signature: type[dspy.Signature]) -> dict[str, Any]:
    """Returns a value for each output field that says nothing: no text, no items, no, 0."""
    values: dict[str, Any] = {}
    for name, declared in signature.output_fields.items():
        kind = get_origin(declared.annotation) or declared.annotation
        values[name] = kind() if kind in (bool, int, float, list) else ""
    return values


def tidied(reply: dspy.Prediction, blanks: Mapping[str, Any]) -> dspy.Prediction:
    """Returns `reply` with its texts stripped, and a blank for a field that is None or missing."""
    for name, nothing in blanks.items():
        value = reply.get(name)
        if value is None:
            reply[name] = nothing
        elif isinstance(value, str):
            reply[name] = value.strip()
    return reply


class Wording(NamedTuple):
    """How the final answer is asked for."""

    style: AnswerStyle = "brief"
    on_missing: OnMissing = "guess"


@dataclass
class Log:
    """What happened in a question, or in one item of a fan-out until it is merged, in order."""

    steps: list[Step] = field(default_factory=list)
    searches: list[Search] = field(default_factory=list)
    seen: dict[str, Passage] = field(default_factory=dict)
    #: Pids of the passages whose text a model was shown, in order; see `shown_in`.
    shown: dict[str, None] = field(default_factory=dict)
    #: Calls since the last step.
    pending: PendingCalls = field(default_factory=PendingCalls)

    def note(self, step: Step) -> None:
        self.steps.append(replace(step, calls=(*step.calls, *self.pending.take())))

    def add(
        self, hits: Passages, query: str, k: int, seconds: float, *, cached: bool = False
    ) -> None:
        """Note a search; NaN and infinity, which no record holds, count as no score."""
        scores = [hit.score if math.isfinite(hit.score) else 0.0 for hit in hits]
        pairs = tuple((hit.pid, score) for hit, score in zip(hits, scores, strict=True))
        self.searches.append(Search(query, k, pairs, seconds, cached))
        for hit in hits:
            self.seen.setdefault(hit.pid, hit)

    def merge(self, log: Log) -> None:
        for step in log.steps:
            self.note(step)
        self.pending.extend(log.pending.take())
        self.searches += log.searches
        self.shown.update(log.shown)
        self.seen = {**self.seen, **{k: v for k, v in log.seen.items() if k not in self.seen}}


class Trace:
    """What one question has done so far. Local to one `forward`; safe under `fan_out`.

    In a fan-out, `steps` and `searches` are those of the item.
    """

    def __init__(
        self,
        question: str,
        retriever: Retriever,
        budget: Budget,
        wording: Wording = Wording(),  # noqa: B008
    ) -> None:
        self.question = question
        self.retriever = retriever
        self.budget = budget
        self.wording = wording
        self.counts: Counter[str] = Counter()
        self.root = Log()
        self._began = False  # whether anything was searched
        self._cache: dict[tuple[str, int], list[Passage]] = {}
        self._lock = threading.Lock()

    @property
    def _log(self) -> Log:
        return current().get(Log) or self.root

    @property
    def steps(self) -> list[Step]:
        return self._log.steps

    @property
    def searches(self) -> list[Search]:
        return self._log.searches

    @property
    def passages(self) -> list[Passage]:
        return list({**self.root.seen, **self._log.seen}.values())

    def ask(
        self,
        predictor: dspy.Module,
        *,
        otherwise: Mapping[str, Any] = MappingProxyType({}),
        last: bool = False,
        **inputs: Any,
    ) -> dspy.Prediction:
        """Call `predictor`; what cannot be read of its reply is blank, or as `otherwise` has it.

        Where it takes a `question` and none is given, that is the trace's own.
        Counted as `parse_fallback` where nothing could be read (the reply then has
        `parse_fallback=True`), as `partial_reply` where something could. A prompt that the LM
        refuses as too long is cut and sent again, counted as `context_cut`. One that cannot be cut
        enough has no reply either, counted as `context_overflow`. `last` marks a forced answer,
        which may use the call that the budget keeps back, and has no such way out.
        """
        return self._ask(predictor, otherwise, last, inputs)[0]

    def answer(self, predictor: dspy.Module, *, last: bool = False, **inputs: Any) -> str:
        """The `answer` that `predictor` gives, stripped; blank where its reply cannot be parsed.

        Noted as a step: its input is the question, its pids the passages shown, and its notes what
        else was shown. `last` as in `ask`.
        """
        reply, read_inputs = self._ask(predictor, {}, last, inputs)
        text: str = reply.answer
        pids, notes = split_shown(read_inputs)
        question = str(read_inputs.get("question", ""))
        thought = reply.get("reasoning", "")
        self.step(
            "answer", input=question, thought=thought, observation=text, pids=pids, notes=notes
        )
        return text

    def _ask(
        self,
        predictor: dspy.Module,
        otherwise: Mapping[str, Any],
        last: bool,
        inputs: Mapping[str, Any],
    ) -> tuple[dspy.Prediction, Mapping[str, Any]]:
        """The reply, and the inputs that it is the reply to, cut where need be."""
        role = getattr(predictor, "rb_role", "")
        signature = inputs.get("signature") or predictor.predictors()[0].signature
        if "question" in signature.input_fields:
            inputs = {"question": self.question, **inputs}
        if self.wording != Wording():
            inputs = {**inputs, "signature": styled(signature, *self.wording)}
        blanks = blank(signature)
        otherwise = {**blanks, **otherwise}
        # What only grades a passage does not read it for the answer.
        reads = role != "judge" or "answer" in signature.output_fields
        caller = (getattr(predictor, "rb_signature", ""), role)
        with use(replace(current(), counts=self.counts, caller=caller), lm=role_lm(role)):
            while True:
                self.budget.spend_call(last=last)
                if reads:
                    self.show(inputs)
                try:
                    return tidied(predictor(**inputs), blanks), inputs
                except AdapterParseError as error:
                    if read := error.read if isinstance(error, PartialReplyError) else {}:
                        self.count("partial_reply")
                        mended = {**otherwise, **read}
                        return dspy.Prediction(**mended, partial_reply=True), inputs
                    self.count("parse_fallback")
                    break
                except ContextWindowExceededError:
                    with self._lock:  # a refused prompt has no reply and no cost
                        self.budget.calls -= 1
                    if (cut := halved(inputs)) is None:
                        if last:
                            raise
                        self.count("context_overflow")
                        break
                    self.count("context_cut")
                    inputs = cut
        return dspy.Prediction(**otherwise, parse_fallback=True), inputs

    def show(self, inputs: Mapping[str, Any], among: Passages | None = None) -> None:
        """Note the passages whose text stands in `inputs`: those found, or some of `among`.

        This is the one place that says what a model was shown; see `prompts.shown_in`.
        """
        log = self._log
        candidates = self.passages if among is None else among
        unseen = [passage for passage in candidates if passage.pid not in log.shown]
        for pid in shown_in(inputs, unseen):
            log.shown[pid] = None
        if among is not None:
            for passage in among:
                if passage.pid in log.shown:
                    log.seen.setdefault(passage.pid, passage)

    def note_search(self, query: str, k: int, hits: Passages, seconds: float) -> None:
        """Note a search that was made by something else than this trace."""
        with self._lock:
            self._log.add(hits, query, k, seconds)

    def search(self, query: str, *, k: int) -> list[Passage]:
        """The retriever's passages for `query`, noted as a search; a repeat costs nothing."""
        return self.search_many([query], k=k)[0]

    def searched(self, query: str, k: int, *, thought: str = "") -> list[Passage]:
        """As `search`, noted as a step too."""
        passages = self.search(query, k=k)
        self.step("search", input=query, thought=thought, of=passages)
        return passages

    def search_many(self, queries: Sequence[str], *, k: int) -> list[list[Passage]]:
        """One list of passages per query, in order; raises where not that many are left."""
        queries = [query[:MAX_QUERY_CHARS] for query in queries]
        new = [query for query in dict.fromkeys(queries) if (query, k) not in self._cache]
        rankings, seconds = self._timed(lambda: self.retriever.search_many(new, k=k), len(new), k)
        hits_of = dict(zip(new, rankings, strict=True))
        with self._lock:
            for query in queries:
                cached = (query, k) in self._cache
                hits = self._cache.setdefault((query, k), hits_of.get(query, []))
                self._log.add(hits, query, k, 0.0 if cached else seconds, cached=cached)
        return [list(self._cache[query, k]) for query in queries]

    def search_by(self, find: Callable[[], Passages], query: str, *, k: int) -> list[Passage]:
        """The passages that `find` gives, noted as a search for `query`, by an index of its own."""
        passages, seconds = self._timed(find, 1, k)
        with self._lock:
            self._log.add(passages, query[:MAX_QUERY_CHARS], k, seconds)
        return passages

    def _timed(
        self, find: Callable[[], Sequence[Item]], n: int, k: int
    ) -> tuple[list[Item], float]:
        """What `find` gives for `n` searches, and the seconds that each took.

        A first search that can give every passage there is, is counted: nothing is chosen then.
        """
        with self._lock:
            is_first = not self._began
            self._began = True
        if is_first and k >= len(self.retriever.corpus):
            self.count("reads_all")
        with self._lock:
            if n > self.budget.retrievals_left:
                raise BudgetSpentError("searches")
            self.budget.retrievals += n
        start = time.perf_counter()
        with contained("the retriever", "retriever"):
            results = list(find()) if n else []
        return results, (time.perf_counter() - start) / max(n, 1)

    def fan_out(
        self, function: Callable[[Item], Result], items: Sequence[Item], *, calls_each: int = 1
    ) -> list[Result]:
        """`function` of each item at once, in input order, for as many as the budget allows.

        The cut is made before anything runs, so that what is asked does not depend on timing.
        BudgetSpentError where not even one item is affordable.
        """
        if calls_each:
            affordable = self.budget.calls_left // calls_each
        else:
            affordable = len(items)
        if items and affordable < 1:
            raise BudgetSpentError("LM calls")
        if affordable < len(items):
            self.count("cut_by_budget", len(items) - affordable)
        outer = self._log
        logs = [Log() for _ in items[:affordable]]

        def run(pair: tuple[Log, Item]) -> Result:
            with use(current().plus(pair[0], pair[0].pending)):
                return function(pair[1])

        results = fan_out(run, list(zip(logs, items, strict=False)))
        for log in logs:
            outer.merge(log)
        return results

    def closing(self, reply: dspy.Prediction) -> str:
        """Return the answer that ends a loop whose step is `reply`, blank if the loop has none.

        With `on_missing=say_so`, a step that ends the loop without an answer says that the facts
        are missing. No further call asks for a guess.
        """
        answer = str(reply.answer)
        if is_answer(answer):
            return answer
        ends = reply.get("next_step") == "answer"
        if ends and self.wording.on_missing == "say_so":
            return answer or NOT_STATED
        return ""

    def until_spent(self, loop: Callable[[], tuple[str, StopReason]]) -> tuple[str, StopReason]:
        """The answer of `loop`, and why it ended; no answer where the budget ended it."""
        try:
            return loop()
        except BudgetSpentError:
            return "", "budget"

    def concluded(
        self, loop: Callable[[], tuple[str, StopReason]], reader: dspy.Module, notes: list[str]
    ) -> dspy.Prediction:
        """Returns what `loop` answers, else what `reader` answers from the `notes` of the loop."""
        answer, reason = self.until_spent(loop)
        if not answer:
            answer = self.answer(reader, last=True, notes=notes)
        return self.prediction(answer, reason)

    def step(self, action: str, *, of: Iterable[Passage] = (), **fields: Any) -> None:
        self._log.note(Step(action, **{"pids": tuple(p.pid for p in of), **fields}))

    def count(self, event: str, n: int = 1) -> None:
        with self._lock:
            self.counts[event] += n
        _logger.info("counted", extra=fields_of(what=event, n=n))

    def prediction(
        self,
        answer: str,
        stop_reason: StopReason | None = None,
        *,
        passages: Passages | None = None,
        **extra: Any,
    ) -> dspy.Prediction:
        """The result of `forward`; `extra` may hold citations, plan, facts, tree.

        `passages` are the program's own ranking, where it makes one; else all seen, in order.
        """
        log = self._log
        if log.steps and (unassigned := log.pending.take()):  # made to end what the last step began
            log.steps[-1] = replace(log.steps[-1], calls=(*log.steps[-1].calls, *unassigned))
        return dspy.Prediction(
            answer=answer,
            passages=self.passages if passages is None else list(passages),
            steps=list(log.steps),
            searches=list(log.searches),
            shown=list(log.shown),
            stop_reason=stop_reason,
            counts=self.counts,
            **extra,
        )
