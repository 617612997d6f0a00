"""Questions of a run in threads: each is answered by the program and leaves a scored record.

Each question gets its own ledger and leaves exactly one record, written before the thread starts
its next question. An error of a question becomes the failure of its record, named after the
boundary that failed:

    the question
    ├── limit        a limit of the run or of the question refused its next call
    ├── provider     the LM's server: refused, timed out, out of quota, context too long
    ├── parse        a reply that no adapter could read
    ├── retriever    a search: an index, or a server of embeddings or rerankings
    ├── tool         a tool that the model used: page, chunk, sandbox
    └── program      any other error of `forward`: a defect of ragbench or of a third party

The class of the error determines the boundary if it is specific. Otherwise the innermost boundary
that the error crossed determines it.
"""

import gc
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from typing import Any

import dspy
from dspy import AdapterParseError, CodeInterpreterError, LMError

from ragbench.context import current, stopped, use
from ragbench.data.base import as_json
from ragbench.errors import (
    DataError,
    LimitsError,
    MissingExtraError,
    NoAnswerError,
    RunError,
    StoppedError,
)
from ragbench.experiments.runs.context import RunContext
from ragbench.experiments.runs.summary import HEADLINE_SCORES
from ragbench.experiments.store import Store
from ragbench.ledger import OpenLedger
from ragbench.lms.calls import (
    CallRefusedError,
    active,
    check_limits,
    limit_reached,
    question_deadline,
    unmetered_reason,
)
from ragbench.logs import fields, get
from ragbench.programs.core.program import done_so_far
from ragbench.programs.core.question_state import CurrentExample
from ragbench.record import CUT_OFF, Call, Fact, Failure, Ledger, Record, ShownPassage
from ragbench.redact import jsonable, redact
from ragbench.user_code import contained, message_of

_log = get(__name__)

#: Grace period in seconds for running questions after Ctrl-C, so that their calls are recorded.
_ENDING_S = 1.5
#: Maximum length of a failure message, in characters.
_LONGEST = 2000
#: Classes of error that name their boundary; the first that fits counts.
_BY_CLASS: tuple[tuple[type[BaseException], str], ...] = (
    (CallRefusedError, "limit"),
    (LMError, "provider"),
    (AdapterParseError, "parse"),
    (CodeInterpreterError, "tool"),
    (DataError, "retriever"),
)
#: Fields of an example that a record has under their own names.
_EXAMPLE_FIELDS = (
    "qid", "question", "answer", "answers", "qtype", "hops", "support", "gold_pids",
    "decomposition",
)  # fmt: skip
#: Fields of a prediction that not every program fills.
_OPTIONAL_FIELDS = ("in_context", "citations", "plan", "facts", "tree")


def ask_all(
    run_context: RunContext,
    todo: Sequence[dspy.Example],
    store: Store,
    on_record: Callable[[Record], None] = lambda record: None,
) -> None:
    """Run `todo` in the threads of this process and write the records.

    Args:
        run_context: The run.
        todo: Questions to run.
        store: Receiver of the records, calls and texts.
        on_record: The receiver of each finished record.

    Raises:
        StoppedError: A limit was reached before all questions were answered.
        RunError: A record cannot be written, for example because the disk is full.
    """
    config = run_context.config
    waiting = iter(todo)
    lock = threading.Lock()
    keep = store.keep if config.prompts else None
    threads = min(config.workers, len(todo))
    over = threading.Event()

    def ask_one(example: dspy.Example) -> Record | None:
        """Write and return the record of one question, or None if nothing was spent."""
        check_limits()
        also = partial(store.file_call, example.qid)
        record = ask(run_context.program, example, also=also, keep=keep)
        if record.cut_off and not record.ledger.calls:
            check_limits()  # Nothing was spent, so nothing is recorded.
            return None
        try:
            store.write(record)
        except RunError as error:
            spent = "".join(f"; spent until then: {limit.words()}" for limit in active()[-1:])
            raise RunError(f"{error}{spent}") from None
        if record.cut_off:
            check_limits()
        return record

    def work() -> None:
        while not (over.is_set() or stopped()):
            with lock:
                example = next(waiting, None)
            if example is None:
                return
            try:
                record = ask_one(example)
                if record is not None:
                    _log.info("question ended", extra=_summary(record))
                    if not record.cut_off:
                        on_record(record)
            except BaseException:
                over.set()
                raise

    pool = ThreadPoolExecutor(threads, thread_name_prefix="question")
    # Exclude the existing objects from garbage collection: scanning them repeatedly took a sixth
    # of the time of a question.
    gc.freeze()
    workers = [pool.submit(copy_context().run, work) for _ in range(threads)]
    try:
        wait(workers)
        errors = filter(None, map(Future.exception, workers))
        # Raise other errors before a limit, which would hide them.
        for error in sorted(errors, key=lambda error: isinstance(error, StoppedError)):
            raise error
    finally:
        over.set()
        pool.shutdown(wait=False)
        wait(workers, timeout=_ENDING_S)  # after Ctrl-C
        gc.unfreeze()


def ask(
    program: dspy.Module,
    example: dspy.Example,
    *,
    also: Callable[[Call], None] | None = None,
    keep: Callable[[str], str] | None = None,
) -> Record:
    """Run `program` on `example` and return the scored record. An error becomes its failure.

    Args:
        program: The program.
        example: The question.
        also: Receiver of every call when it ends.
        keep: Stores a text and returns its id.

    Raises:
        MissingExtraError: The program or its retriever needs a package that is not installed.
        NoAnswerError: A user's module returned a value that cannot be an answer.
        LimitsError: The program calls an LM that ragbench cannot meter.
    """
    prediction = None
    failure = None
    ledger = OpenLedger(also, keep)
    parts = (*ledger.parts(), CurrentExample(example))
    context = replace(current(), qid=example.qid, deadline=question_deadline())
    with use(context.plus(*parts), trace=None):
        _log.debug("question started")
        start = time.perf_counter()
        try:
            with contained("the program"):
                prediction = program(question=example.question)
        except (MissingExtraError, NoAnswerError):  # These concern every question.
            raise
        except Exception as error:  # failures are data; only this place catches them all
            failure = classify(error)
            prediction = done_so_far(error)
            if not (ledger.refused or ledger.interrupted):  # The question did not fail.
                _log.warning("question failed", exc_info=True, extra=fields(failure=failure.name))
        latency = time.perf_counter() - start
        if reason := unmetered_reason():
            raise LimitsError(reason)
        if ledger.refused or ledger.interrupted:  # even if the program continued without the call
            why = ledger.interrupted or f"stopped by {limit_reached() or 'an LM that is down'}"
            failure = Failure("limit", CUT_OFF, why)
        corpus = getattr(getattr(program, "retriever", None), "corpus", None)
        alignment = getattr(corpus, "alignment", None)
        record = make_record(
            example, prediction, ledger, latency_s=latency, failure=failure, alignment=alignment
        )
    return record


def _summary(record: Record) -> dict[str, Any]:
    """Return the fields of `record` in the log."""
    spent = record.ledger.as_if
    return fields(
        qid=record.qid, scores=record.scores, stop_reason=record.stop_reason, calls=spent.calls,
        tokens=spent.tokens, seconds=record.latency_s,
    )  # fmt: skip


def classify(error: BaseException) -> Failure:
    """Return the failure for `error`: its boundary, class and message."""
    marked = getattr(error, "ragbench_boundary", None)
    by_class = (boundary for kind, boundary in _BY_CLASS if isinstance(error, kind))
    boundary = next(by_class, marked or "program")
    return Failure(boundary, type(error).__name__, redact(message_of(error))[:_LONGEST])


def make_record(
    example: dspy.Example,
    prediction: dspy.Prediction | None,
    ledger: Ledger,
    *,
    latency_s: float,
    failure: Failure | None = None,
    alignment: Mapping[str, Sequence[Fact]] | None = None,
) -> Record:
    """Build the scored record of one question.

    Args:
        example: The question.
        prediction: Output of the program. For a failed question, its output until then, if known.
        ledger: Calls of the question.
        latency_s: Wall time in seconds. The record adds the time that the cache saved.
        failure: Error of the question, if any.
        alignment: Sentences of the original paragraphs in each chunk of the corpus, by chunk id.
    """
    if prediction is None:
        prediction = dspy.Prediction(
            answer=None, stop_reason=None, steps=[], searches=[], passages=[], counts={}
        )
    passages = []
    for p in prediction.passages:
        holds = (alignment or {}).get(p.pid)
        if holds is not None:
            holds = tuple(holds)
        passages.append(ShownPassage(p.pid, p.title, p.text, tuple(p.sentences), holds))
    optional: dict[str, Any] = {}
    for name in _OPTIONAL_FIELDS:
        value = prediction.get(name)
        optional[name] = None if value is None else jsonable(value)
    record = Record(
        qid=example.qid,
        question=example.question,
        answers=list(example.answers),
        qtype=example.get("qtype", ""),
        hops=example.get("hops"),
        support=list(map(tuple, example.get("support", []))),
        gold_pids=list(example.get("gold_pids", [])),
        decomposition=list(example.get("decomposition", [])),
        extra=_extra(example, prediction),
        ledger=Ledger(list(ledger.calls), replace(ledger.path)),
        latency_s=round(latency_s + ledger.path.cached_s, 6),
        failure=failure,
        scores={},
        answer=None if failure else str(prediction.answer),
        stop_reason=prediction.stop_reason,
        steps=list(prediction.steps),
        searches=list(prediction.searches),
        passages=passages,
        counts=dict(sorted(prediction.counts.items())),
        **optional,
    )
    record.scores.update({name: score(record) for name, score in HEADLINE_SCORES.items()})
    return record


def _extra(example: dspy.Example, prediction: dspy.Prediction) -> dict[str, Any]:
    """Return the fields of this data set only, and the extra outputs of a user's module."""
    extra: dict[str, Any] = {}
    for name, value in example.items():
        if name not in _EXAMPLE_FIELDS:
            extra[name] = value
    try:
        text = json.dumps(extra, sort_keys=True)
    except (TypeError, ValueError):  # values of other libraries
        text = as_json(extra)
    extra = json.loads(text)
    if outputs := prediction.get("outputs"):
        extra["outputs"] = jsonable(outputs)
    return extra
