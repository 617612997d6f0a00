"""The state of one question: its calls, searches, passages and cost.

Programs call models, search and record steps through it. It checks the budget before each call,
counts failures that have a fallback, and gives all programs the same kind of record.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import dspy
from dspy import AdapterParseError, ContextWindowExceededError

from ragbench.context import current, use
from ragbench.ledger import fan_out
from ragbench.lms.adapters import PartialReplyError
from ragbench.logs import fields as fields_of, get
from ragbench.programs.core.prompts import halved, pids_in_context, split_context
from ragbench.programs.core.question_state import Budget, BudgetSpentError, Log
from ragbench.programs.core.replies import NOT_STATED, StopReason, blank, tidied
from ragbench.programs.core.text import Passages, is_answer
from ragbench.record import Search, Step
from ragbench.retrievers import Passage, Retriever
from ragbench.signatures import AnswerStyle, OnMissing, styled
from ragbench.user_code import contained

_logger = get(__name__)

#: Maximum length of a query. Generated code can make queries of any length.
MAX_QUERY_CHARS = 4_000

Item = TypeVar("Item")
Result = TypeVar("Result")


def role_lm(role: str) -> Any:
    """Return the LM of `role`, or the current LM if the role has none."""
    return current().role_lms.get(role) or dspy.settings.lm


class Wording(NamedTuple):
    """Settings of the final answer's wording."""

    style: AnswerStyle = "brief"
    on_missing: OnMissing = "guess"


class Trace:
    """The state of one question. Local to one `forward`, and safe under `fan_out`.

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
        self._began = False  # True after the first search
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
        """Call `predictor`.

        Args:
            predictor: Predictor to call.
            otherwise: Values of the output fields that cannot be read. The default is blank.
            last: True for a forced answer, which may use the reserved call. If its prompt stays too
                long, the error is raised.
            inputs: Input fields. The default of `question` is the trace's question.

        Returns:
            The reply with stripped texts. If nothing could be read, it has `parse_fallback=True`,
            counted as `parse_fallback`. A partly read reply is counted as `partial_reply`. If the
            LM rejects a prompt as too long, ragbench shortens the inputs and sends it again
            (`context_cut`). If that is not enough, the reply is blank (`context_overflow`).

        Raises:
            BudgetSpentError: No call is left.
        """
        return self._ask(predictor, otherwise, last, inputs)[0]

    def answer(self, predictor: dspy.Module, *, last: bool = False, **inputs: Any) -> str:
        """Return the stripped `answer` of `predictor`, blank if it cannot be read. Record a step.

        Args:
            predictor: Predictor with an output field `answer`.
            last: True for a forced answer, as in `ask`.
            inputs: Input fields.
        """
        reply, read_inputs = self._ask(predictor, {}, last, inputs)
        text: str = reply.answer
        pids, notes = split_context(read_inputs)
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
        """Return the reply and the inputs that led to it, shortened if needed."""
        role = getattr(predictor, "rb_role", "")
        signature = inputs.get("signature")
        if signature is None:
            inner = predictor if isinstance(predictor, dspy.Predict) else predictor.predictors()[0]
            signature = inner.signature
        if "question" in signature.input_fields:
            inputs = {"question": self.question, **inputs}
        if self.wording != Wording():
            inputs = {**inputs, "signature": styled(signature, *self.wording)}
        blanks = blank(signature)
        otherwise = {**blanks, **otherwise}
        # A call that only grades a passage does not read it for the answer.
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
                    with self._lock:  # a rejected prompt has neither reply nor cost
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
        """Record the passages whose text `inputs` contain. See `prompts.pids_in_context`.

        Args:
            inputs: Inputs of a call.
            among: Passages to look for. None: the passages found so far.
        """
        log = self._log
        candidates = self.passages if among is None else among
        unseen = [passage for passage in candidates if passage.pid not in log.in_context]
        for pid in pids_in_context(inputs, unseen):
            log.in_context[pid] = None
        if among is not None:
            for passage in among:
                if passage.pid in log.in_context:
                    log.seen.setdefault(passage.pid, passage)

    def note_search(self, query: str, k: int, hits: Passages, seconds: float) -> None:
        """Record a search that did not go through this trace.

        Args:
            query: Query of the search.
            k: Requested number of passages.
            hits: Passages found, best first.
            seconds: Duration.
        """
        with self._lock:
            self._log.add(hits, query, k, seconds)

    def search(self, query: str, *, k: int) -> list[Passage]:
        """Search with the retriever and record the search.

        Args:
            query: Query. A repeated query costs nothing.
            k: Maximum number of passages.
        """
        return self.search_many([query], k=k)[0]

    def searched(self, query: str, k: int, *, thought: str = "") -> list[Passage]:
        """Search like `search`, and record a step.

        Args:
            query: Query.
            k: Maximum number of passages.
            thought: Thought that led to the search.
        """
        passages = self.search(query, k=k)
        self.step("search", input=query, thought=thought, of=passages)
        return passages

    def search_many(self, queries: Sequence[str], *, k: int) -> list[list[Passage]]:
        """Search for several queries.

        Args:
            queries: Queries. Longer ones are cut to `MAX_QUERY_CHARS` characters.
            k: Maximum number of passages per query.

        Returns:
            One list of passages per query, in order.

        Raises:
            BudgetSpentError: The budget has fewer searches left.
        """
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
        """Run a custom search, such as one of a program's own index, and record it.

        Args:
            find: Function that returns the passages, best first.
            query: Query for the record.
            k: Requested number of passages.
        """
        passages, seconds = self._timed(find, 1, k)
        with self._lock:
            self._log.add(passages, query[:MAX_QUERY_CHARS], k, seconds)
        return passages

    def _timed(
        self, find: Callable[[], Sequence[Item]], n: int, k: int
    ) -> tuple[list[Item], float]:
        """Run `find` for `n` searches. Return its results and the seconds per search.

        `exhaustive_retrieval` is counted if the first search can return the entire corpus.
        """
        with self._lock:
            is_first = not self._began
            self._began = True
        if is_first and k >= len(self.retriever.corpus):
            self.count("exhaustive_retrieval")
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
        """Apply `function` to the items concurrently, to as many as the budget allows.

        Args:
            function: Function of one item.
            items: Items.
            calls_each: Maximum number of LM calls per item. 0: unlimited.

        Returns:
            Results in input order, for as many items as the budget allows.

        Raises:
            BudgetSpentError: The budget does not allow a single item.
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

        With `on_missing=say_so`, a step that ends the loop without an answer states that the facts
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
        """Return the answer of `loop` and its stop reason. A spent budget ends the loop."""
        try:
            return loop()
        except BudgetSpentError:
            return "", "budget"

    def concluded(
        self, loop: Callable[[], tuple[str, StopReason]], reader: dspy.Module, notes: list[str]
    ) -> dspy.Prediction:
        """Return the prediction of a loop.

        Args:
            loop: Function that returns an answer and the stop reason.
            reader: Predictor that answers from `notes` if the loop has no answer.
            notes: Notes that the loop collects.
        """
        answer, reason = self.until_spent(loop)
        if not answer:
            answer = self.answer(reader, last=True, notes=notes)
        return self.prediction(answer, reason)

    def step(self, action: str, *, of: Iterable[Passage] = (), **fields: Any) -> None:
        """Record a step.

        Args:
            action: Name of the step.
            of: Passages of the step.
            **fields: Other fields of `Step`.
        """
        self._log.note(Step(action, **{"pids": tuple(p.pid for p in of), **fields}))

    def count(self, event: str, n: int = 1) -> None:
        """Count an event.

        Args:
            event: Name of the event.
            n: Number of times.
        """
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
        """Return the result of `forward`.

        Args:
            answer: Final answer.
            stop_reason: Reason for the end.
            passages: Ranking of the program. None: all passages found, in order.
            extra: Further fields, such as citations, plan, facts or tree.
        """
        log = self._log
        if log.steps and (unassigned := log.pending.take()):  # calls that completed the last step
            log.steps[-1] = replace(log.steps[-1], calls=(*log.steps[-1].calls, *unassigned))
        return dspy.Prediction(
            answer=answer,
            passages=self.passages if passages is None else list(passages),
            steps=list(log.steps),
            searches=list(log.searches),
            in_context=list(log.in_context),
            stop_reason=stop_reason,
            counts=self.counts,
            **extra,
        )
