"""Passes: a model asked about the records of a finished run, once each, and never twice.

Every reply is a line of `judged.jsonl` in the run folder, written and fsynced as it comes: what was
asked (as a hash), what came of it, and every call with its price. A pass that was cut off goes on
where it stopped; one whose reply could not be used keeps that as its result; one that the provider
failed is asked again next time. Calls are filed with kind `judge`: they are no cost of answering.
An LM that `batched` made is asked through its provider's batches; see `experiments.batches`.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextvars import copy_context
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import dspy
from dspy.utils.exceptions import AdapterParseError, LMError

from ragbench.errors import RunError
from ragbench.experiments.failures import redact
from ragbench.experiments.journal_shape import is_of_batch, wrong_with_reply
from ragbench.experiments.mending import read_all
from ragbench.experiments.records import Record, RecordWriter
from ragbench.ledger import COUNTS_KEY, Call, Totals, open_ledger, total
from ragbench.lms.adapters import LenientChat, LenientJSON
from ragbench.lms.batch import wire_of
from ragbench.lms.limits import GIVE_PRICE, LimitReachedError, check_price
from ragbench.lms.lm import RagbenchLM
from ragbench.logs import QID_KEY, fields, get

JOURNAL = "judged.jsonl"

_log = get(__name__)

#: Temperature of what is asked again: of a retry, and of every repeat after the first.
AGAIN_TEMPERATURE = 0.7

#: Called after each reply with the number done and the number in all.
OnReply = Callable[[int, int], None]


class UnusableError(Exception):
    """A reply without a usable value, after the retry."""


@dataclass(frozen=True)
class Task:
    """One thing to ask of a record; `key` is a hash of all that decides the reply."""

    qid: str
    name: str  # of the pass, such as "judge"
    key: str
    ask: Callable[[], Any] = field(repr=False)  # JSON-ready; raises UnusableError


@dataclass(frozen=True)
class Result:
    """What came of a task: `value` is None where there is none, and `why` then says the reason."""

    value: Any
    why: str
    calls: tuple[Call, ...]


@dataclass
class PassResult:
    """The results by key, and how many were asked now rather than read from the journal.

    `earlier` are the calls of tries that the provider failed and that were made again since.
    """

    results: dict[str, Result]
    earlier: tuple[Call, ...] = ()
    asked: int = 0
    left: int = 0  # not asked, because a limit of the command was reached

    def totals(self) -> Totals:
        """What all of it took, as if uncached."""
        return total(call for result in self.results.values() for call in result.calls)

    def billed(self) -> Totals:
        """What was sent to a server, over all attempts at the pass."""
        calls = [call for result in self.results.values() for call in result.calls]
        return total(call for call in [*self.earlier, *calls] if not call.cached)


@dataclass(frozen=True)
class Pace:
    """Seconds between two looks at a batch: they grow from the first to the longest."""

    first_s: float = 2.0
    longest_s: float = 60.0
    sleep: Callable[[float], None] = time.sleep

    def waits(self) -> Iterator[float]:
        """The waits, one after another, without end."""
        wait = self.first_s
        while True:
            yield wait
            wait = min(1.5 * wait, self.longest_s)


@dataclass(frozen=True)
class Asking:
    """With what a pass asks: the model, and how many calls at once."""

    lm: RagbenchLM
    workers: int = 4
    on_reply: OnReply | None = None
    pace: Pace = Pace()  # of waiting for batches

    def check(self) -> None:
        """Do nothing if the pass can start.

        Raises:
            RagbenchError: the LM cannot be called, or its price is needed and not known.
        """
        check_price(self.lm.model, known=self.lm.pricing.known, cure=GIVE_PRICE)
        self.lm.check()


def key_of(*parts: Any) -> str:
    """A hash of `parts`, which must be JSON."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def run_pass(folder: Path, tasks: Sequence[Task], asking: Asking) -> PassResult:
    """The result of every task, from the journal of `folder` where it stands there.

    Raises:
        RagbenchError: the LM cannot be called at all, or the journal cannot be used.
        KeyboardInterrupt: the user stopped it; every reply so far is kept.
    """
    from ragbench.experiments.batches import BatchRunner, under_way

    wanted = {task.key for task in tasks}
    every = _rows(folder)
    rows = [row for row in every if row.get("key") in wanted]
    known = {row["key"]: _result(row) for row in rows if not row["provider_failed"]}
    lost = [call for row in rows if row["provider_failed"] for call in _result(row).calls]
    todo = list({task.key: task for task in tasks if task.key not in known}.values())
    found = PassResult(known, tuple(lost))
    if not todo:
        return found
    wire = wire_of(asking.lm)
    paid = 0 if wire else len(under_way(every) & {task.key for task in todo})
    if paid:
        raise RunError(f"a batch with {paid} of these questions is under way; give --batch")
    asking.check()
    with RecordWriter(folder, JOURNAL) as writer:
        if wire:
            BatchRunner(asking, wire, writer, found, every).run(todo)
        else:
            _Runner(asking, writer, found).run(todo)
    return found


def read_journal(folder: Path) -> list[Record]:
    """The replies in the journal of `folder`, oldest first.

    Raises:
        RunError: as for `run_pass`.
    """
    return [row for row in _rows(folder) if not is_of_batch(row)]


def _rows(folder: Path) -> list[Record]:
    """Every line of the journal that can be used; others are left out, so they are asked again.

    Raises:
        RunError: it cannot be read; or a line of a batch cannot be used, whose replies may be paid.
    """
    path = folder / JOURNAL
    rows, left_out = [], []
    for line in read_all(path):
        wrong = "" if line.row is None else wrong_with_reply(line.row)
        if line.row is not None and not wrong:
            rows.append(line.row)
        elif is_of_batch(line.row):
            raise RunError(
                f"{path} line {line.number} tells of a batch, and its {wrong} is missing or wrong; "
                f"put the file back, or `ragbench doctor {folder} --repair` gives the batch up"
            )
        elif not line.torn:
            left_out.append(line.number)
    if left_out:
        more = fields(file=str(path), lines=left_out[:20], cure=f"ragbench doctor {folder}")
        _log.warning("lines of a journal cannot be used and are left out", extra=more)
    return rows


class _Runner:
    """Asks tasks at once, up to the limit of spending, and writes each result as it comes."""

    def __init__(self, asking: Asking, writer: RecordWriter, found: PassResult) -> None:
        self.asking, self.writer, self.found = asking, writer, found
        self._lock = threading.Lock()
        self._stop = threading.Event()

    def run(self, todo: Sequence[Task]) -> None:
        with ThreadPoolExecutor(self.asking.workers, thread_name_prefix="judge") as pool:
            futures = [pool.submit(copy_context().run, self._one, task) for task in todo]
            try:
                for done, future in enumerate(as_completed(futures), start=1):
                    future.result()
                    if self.asking.on_reply:
                        self.asking.on_reply(done, len(todo))
            except BaseException:
                self._stop.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _one(self, task: Task) -> None:
        if self._stop.is_set():
            return
        reply = ask_once(task, self.asking.lm)
        try:
            with self._lock:
                file_reply(self.writer, self.found, task, reply)
        except RunError:
            self._stop.set()
            raise


@dataclass(frozen=True)
class Reply:
    """What came of asking once: a result, unless the provider `failed` or a limit `refused`."""

    result: Result
    model: str
    failed: bool = False
    refused: bool = False


def file_reply(writer: RecordWriter, found: PassResult, task: Task, reply: Reply) -> None:
    """Write what came of `task` to the journal, and count it in `found`.

    Of a task that a limit cut off only what it took until then is written.

    Raises:
        RunError: it cannot be written.
    """
    result = reply.result
    if not reply.refused or result.calls:
        row = {
            "qid": task.qid,
            "pass": task.name,
            "key": task.key,
            "model": reply.model,
            "value": result.value,
            "why": result.why,
            "provider_failed": reply.failed or reply.refused,
            "calls": [asdict(call) for call in result.calls],
        }
        writer.write(row)
    if reply.refused:
        found.left += 1
        found.earlier += result.calls
    else:
        found.results[task.key] = result
        found.asked += 1


def ask_once(task: Task, lm: RagbenchLM) -> Reply:
    """What comes of `task` with `lm`."""
    value, why, failed, refused = None, "", False, False
    with open_ledger() as ledger, dspy.context(lm=lm, trace=None, **{QID_KEY: task.qid}):
        try:
            value = task.ask()
        except UnusableError as error:
            why = str(error)
        except LimitReachedError as error:
            why, refused = str(error), True
        except LMError as error:
            why, failed = redact(f"{type(error).__name__}: {error}")[:500], True
    batch = {"batch": True, "latency_s": 0.0} if wire_of(lm) else {}
    calls = tuple(
        replace(call, kind="judge", **batch) if call.kind == "lm" else call  # type: ignore[arg-type]
        for call in ledger.calls
    )
    return Reply(Result(value, why, calls), lm.model, failed, refused)


def ask_strictly(
    predictor: dspy.Module,
    lm: RagbenchLM,
    *,
    wrong: Callable[[dspy.Prediction], str] | None = None,
    **inputs: Any,
) -> dspy.Prediction:
    """The reply of `predictor`, read as it stands; one that cannot be read is asked for once more.

    Nothing is mended: a label that a lenient reader would guess at counts as unreadable here.
    `wrong` says why a reply that could be read cannot be used, or nothing.

    Raises:
        UnusableError: neither reply could be read.
        dspy.LMError: the provider failed.
    """
    adapter: dspy.Adapter = LenientJSON() if lm.supports_response_schema else _chat()
    why = ""
    for one in (lm, again(lm, 1)):
        counts: Counter[str] = Counter()
        with dspy.context(lm=one, adapter=adapter, **{COUNTS_KEY: counts}):
            try:
                reply = predictor(**inputs)
            except AdapterParseError as error:
                why = str(error.message if hasattr(error, "message") else error)
                continue
        why = "the reply had to be mended" if counts["label_repair"] else ""
        why = why or (wrong(reply) if wrong else "")
        if not why:
            return reply
    raise UnusableError(why.strip().partition("\n")[0][:200] or "unreadable")


def again(lm: RagbenchLM, number: int) -> RagbenchLM:
    """`lm` for asking the same once more: another seed, some temperature, other cached replies."""
    settings: dict[str, Any] = {"rollout_id": (lm.kwargs.get("rollout_id") or 1000) + number}
    if lm.kwargs.get("temperature") is not None:  # some models refuse it
        settings["temperature"] = AGAIN_TEMPERATURE
    copied = lm.copy(**settings)
    assert isinstance(copied, RagbenchLM)
    return copied


def _chat() -> dspy.Adapter:
    return LenientChat(use_json_adapter_fallback=False)


def _result(row: Record) -> Result:
    return Result(row["value"], row["why"], tuple(map(Call.from_dict, row["calls"])))


def not_failed(records: Iterable[Record]) -> list[Record]:
    """The records that have an answer, by qid."""
    answered = (r for r in records if r["failure"] is None and r["answer"] is not None)
    return sorted(answered, key=lambda record: str(record["qid"]))
