"""Runs a config: `dspy.Evaluate` over the questions that have no finished record yet.

Each question gets a ledger of its own and leaves exactly one record, written before the next
question starts on that worker. Whatever a question raises is its record's failure, so Evaluate
sees no error and loses nothing.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import dspy
import dspy.evaluate.evaluate as dspy_evaluate
from dspy.utils.parallelizer import ParallelExecutor

from ragbench.errors import RunError
from ragbench.experiments.failures import Failure, classify
from ragbench.experiments.records import (
    CUT_OFF,
    Loaded,
    Record,
    RecordWriter,
    make_record,
    read_records,
    was_cut_off,
)
from ragbench.experiments.rundir import RunDir
from ragbench.experiments.sent import PREPARATION, SentCalls, settle
from ragbench.experiments.setup import Bench
from ragbench.experiments.summary import score_record
from ragbench.ledger import Call, Ledger, open_ledger
from ragbench.lms.deadline import question_time
from ragbench.lms.limits import LimitReachedError, stopped_by
from ragbench.logs import QID_KEY, fields, get
from ragbench.programs.base import done_so_far
from ragbench.retrievers.store import IndexStore

_log = get(__name__)

#: Called after each record with the record, the number finished and the number in all.
OnRecord = Callable[[Record, int, int], None]
#: Called once before the first question with the run's title, the questions to ask and those done.
OnStart = Callable[[str, int, int], None]
#: Called with how much of the index, or of what else all questions share, is done, and of how much.
OnPrepare = Callable[[int, int], None]


@dataclass(frozen=True)
class RunResult:
    """Where the run is, its records by question, and the lines that could not be read before it."""

    folder: RunDir
    loaded: Loaded
    stopped_by: str = ""  # the limit of spending that ended it, where one did


def run(
    bench: Bench,
    *,
    on_start: OnStart | None = None,
    on_record: OnRecord | None = None,
    on_prepare: OnPrepare | None = None,
) -> RunResult:
    """Answer every question of `bench` that has no finished record, and give all records.

    Raises:
        RunError: the folder holds a run of another config, is in use, or cannot be written.
        KeyboardInterrupt: the user stopped it; every finished question has its record.
    """
    folder = RunDir(bench.config.folder())
    with folder.locked():
        folder.claim(bench)
        before = read_records(folder.path)
        todo = [e for e in bench.examples if e.qid not in before.finished]
        if todo:
            bench.check_lms()
        done = len(bench.examples) - len(todo)
        _log.info("run", extra=fields(to_ask=len(todo), done=done, card=folder.config()))
        if on_start:
            on_start(bench.title, len(todo), done)
        stopped = ""
        with RecordWriter(folder.path) as writer, SentCalls(folder.path) as sent, bench.active():
            if todo:
                stopped = _prepare(bench, folder, sent, on_prepare)
            if todo and not stopped:
                stopped = _evaluate(bench, todo, writer, sent, on_record)
        settle(folder.path)
        loaded = read_records(folder.path)
        loaded.corrupt = before.corrupt
        return RunResult(folder, loaded, stopped)


def _prepare(bench: Bench, folder: RunDir, sent: SentCalls, on_prepare: OnPrepare | None) -> str:
    """Make what all questions share: the index, loaded if it is stored, and the program's own.

    The calls that this took are no question's and are noted in the folder. Gives the limit of
    spending that kept it from its end, if one did.
    """
    with open_ledger(sent.of(PREPARATION)) as ledger:
        try:
            bench.retriever.build(IndexStore(), on_prepare)
            bench.program.prepare(on_prepare)
        except LimitReachedError:
            return stopped_by()
        finally:
            folder.note_preparation(bench, ledger)
    return ""


def _evaluate(
    bench: Bench,
    todo: Sequence[dspy.Example],
    writer: RecordWriter,
    sent: SentCalls,
    on_record: OnRecord | None,
) -> str:
    """Ask `todo`; gives the limit of spending that left some of it unanswered, if one did."""
    asker = _Asker(bench.program, {e.qid: e for e in todo}, writer, sent, on_record)
    devset = [
        dspy.Example(qid=e.qid, question=e.question).with_inputs("qid", "question") for e in todo
    ]
    evaluate = dspy.Evaluate(
        devset=devset,
        metric=lambda example, prediction, trace=None: prediction.score,
        num_threads=bench.config.workers,
        display_progress=False,
        max_errors=10**9,
    )
    with _no_stragglers():
        evaluate(asker)
    if asker.broken is not None:
        raise asker.broken
    return asker.stopped_by


class _Asker(dspy.Module):
    """Asks the program one question and writes the record, whatever happens.

    Holds no predictor of its own and is never compiled: it hides errors and traces on purpose.
    """

    def __init__(
        self,
        program: dspy.Module,
        examples: dict[str, dspy.Example],
        writer: RecordWriter,
        sent: SentCalls,
        on_record: OnRecord | None,
    ) -> None:
        super().__init__()
        self._ask, self._examples, self._writer, self._sent = program, examples, writer, sent
        self._on_record, self._n, self._done = on_record, len(examples), 0
        self.broken: RunError | None = None
        self.stopped_by = ""

    def forward(self, qid: str, question: str) -> dspy.Prediction:
        if self.broken is not None:  # the disk is full: ask nothing that cannot be kept
            return dspy.Prediction(score=0.0)
        if limit := stopped_by():
            self.stopped_by = limit
            return dspy.Prediction(score=0.0)
        record = ask(self._ask, self._examples[qid], also=self._sent.of(qid))
        if was_cut_off(record):
            self.stopped_by = stopped_by()
            if not record["ledger"]["calls"]:  # nothing was spent, so there is nothing to keep
                return dspy.Prediction(score=0.0)
        try:
            self._writer.write(record)
        except RunError as error:
            self.broken = error
            return dspy.Prediction(score=0.0)
        self._done += 1
        if self._on_record and not was_cut_off(record):
            self._on_record(record, self._done, self._n)
        return dspy.Prediction(score=record["scores"].get("f1") or 0.0)


def ask(
    program: dspy.Module, example: dspy.Example, *, also: Callable[[Call], None] | None = None
) -> Record:
    """The scored record of `program` on `example`; an error becomes its failure.

    `also` gets every call as it ends.
    """
    prediction, failure = None, None
    with open_ledger(also) as ledger, dspy.context(trace=None, **{QID_KEY: example.qid}):
        _log.info("question started")
        start = time.perf_counter()
        try:
            with question_time():
                prediction = program(question=example.question)
        except Exception as error:  # failures are data; only this place catches them all
            failure = classify(error)
            prediction = done_so_far(error)
            if not ledger.refused:  # that is no failure of the question
                _log.warning("question failed", exc_info=True, extra=fields(failure=failure.name))
        latency = time.perf_counter() - start
    if ledger.refused:  # also where the program went on without the call that was refused
        failure = Failure("limit", CUT_OFF, f"stopped by {stopped_by() or 'an LM that is down'}")
    corpus = getattr(getattr(program, "retriever", None), "corpus", None)
    record = make_record(
        example,
        prediction,
        ledger,
        latency_s=latency,
        failure=failure,
        alignment=getattr(corpus, "alignment", None),
    )
    record["scores"] = score_record(record)
    with dspy.context(**{QID_KEY: example.qid}):
        _log.info("question ended", extra=fields(**_outcome(record, ledger)))
    return record


def _outcome(record: Record, ledger: Ledger) -> dict[str, Any]:
    spent = ledger.as_if
    return {
        "scores": record["scores"],
        "stop_reason": record["stop_reason"],
        "calls": spent.calls,
        "tokens": spent.tokens,
        "seconds": record["latency_s"],
    }


@contextmanager
def _no_stragglers() -> Iterator[None]:
    """Keep Evaluate from asking a slow question twice: it re-submits one after 120 s."""
    original: Any = dspy_evaluate.ParallelExecutor
    dspy_evaluate.ParallelExecutor = functools.partial(ParallelExecutor, timeout=0)
    try:
        yield
    finally:
        dspy_evaluate.ParallelExecutor = original
