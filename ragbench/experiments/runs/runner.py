"""Runs a config: asks the questions that have no finished record yet.

Each question gets a ledger of its own and leaves exactly one record, written before the next
question starts on that worker. Whatever a question raises is its record's failure.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import dspy

from ragbench import stopping
from ragbench.context import current, use
from ragbench.errors import LMUnavailableError, RunError
from ragbench.experiments.config import RunConfig
from ragbench.experiments.records import (
    PREPARATION_CALLS,
    PromptLog,
    RecordWriter,
    SentCalls,
    encode,
    locked,
    read_card,
    read_finished,
    read_records,
    settle,
    write_json,
)
from ragbench.experiments.runs.card import claim, note_preparation
from ragbench.experiments.runs.context import RunContext
from ragbench.experiments.runs.controls import ready
from ragbench.experiments.runs.evaluation import Evaluation
from ragbench.experiments.runs.question import ask
from ragbench.experiments.runs.spread import WorkerPool, check_spread, processes_of
from ragbench.experiments.runs.summary import SUMMARY, shown
from ragbench.experiments.runs.workers import for_each
from ragbench.ledger import open_ledger
from ragbench.lms.calls import LimitReachedError, stopped_by
from ragbench.logs import fields, get
from ragbench.own_code import blamed_on
from ragbench.record import Record, Totals
from ragbench.redact import redact
from ragbench.retrievers import IndexStore

_log = get(__name__)

#: Seconds that the questions under way have after Ctrl-C; what their calls took is recorded.
_ENDING_S = 1.5

#: Called after each record with the record, the number finished and the number in all.
OnRecord = Callable[[Record, int, int], None]
#: Called once before the first question with the run's title, the questions to ask and those done.
OnStart = Callable[[str, int, int], None]
#: Called with how much of the index, or of what else all questions share, is done, and of how much.
OnPrepare = Callable[[int, int], None]


def run(
    run_context: RunContext,
    *,
    on_start: OnStart | None = None,
    on_record: OnRecord | None = None,
    on_prepare: OnPrepare | None = None,
) -> Evaluation:
    """Answer every question of `run_context` that has no finished record, and write the summary.

    The folder may hold more questions, from a run with a larger limit: the summary that is written
    is of them all, what is given is of those of `run_context`. A run that a limit of spending ended
    is given as far as it came; see `stopped_by`.

    Raises:
        RunError: the folder holds a run of another config, is in use, or cannot be written.
        KeyboardInterrupt: the user stopped it; every finished question has its record.
    """
    check_spread(run_context)
    folder = run_context.config.folder()
    with locked(folder):
        card = claim(folder, run_context)
        finished, corrupt = read_finished(folder)
        todo = [e for e in run_context.examples if e.qid not in finished]
        if todo:
            run_context.check_lms()
        done = len(run_context.examples) - len(todo)
        _log.info(
            "run", extra=fields(to_ask=len(todo), done=done, card=card.model_dump(mode="json"))
        )
        if on_start:
            on_start(run_context.title, len(todo), done)
        stopped = ""
        with (
            _journals(folder, prompts=run_context.config.prompts) as journals,
            run_context.active(),
        ):
            if todo:
                stopped = _prepare(run_context, todo, folder, journals.sent, on_prepare)
            if todo and not stopped:
                stopped = _evaluate(run_context, todo, journals, on_record)
        settle(folder)
        loaded = read_records(folder, shown())
        loaded = replace(loaded, corrupt=sorted({*corrupt, *loaded.corrupt}))
        card = read_card(folder)  # the preparation has been added
        whole = Evaluation.of(folder, card, loaded, stopped)
        write_json(folder / SUMMARY, whole.stored())
        asked = {str(example.qid) for example in run_context.examples}
        if asked.issuperset(loaded.records):
            return whole
        return Evaluation.of(folder, card, loaded.only(asked), stopped)


def evaluate(
    config: RunConfig,
    *,
    like: RunContext | None = None,
    on_start: OnStart | None = None,
    on_record: OnRecord | None = None,
    on_prepare: OnPrepare | None = None,
) -> Evaluation:
    """Run `config`, or continue it; data and retriever are those of `like` where they are the same.

    Raises:
        RagbenchError: something the user can mend.
    """
    run_context = ready(config, like=like)
    return run(run_context, on_start=on_start, on_record=on_record, on_prepare=on_prepare)


@dataclass(frozen=True)
class _Journals:
    """The files that a run appends to."""

    records: RecordWriter
    sent: SentCalls
    prompts: PromptLog | None


@contextmanager
def _journals(folder: Path, *, prompts: bool) -> Iterator[_Journals]:
    with ExitStack() as stack:
        records = stack.enter_context(RecordWriter(folder))
        sent = stack.enter_context(SentCalls(folder))
        kept = stack.enter_context(PromptLog(folder)) if prompts else None
        yield _Journals(records, sent, kept)


def _prepare(
    run_context: RunContext,
    todo: Sequence[dspy.Example],
    folder: Path,
    sent: SentCalls,
    on_prepare: OnPrepare | None,
) -> str:
    """Make what all questions share: the index, loaded if it is stored, and the program's own.

    The calls that this took are no question's and are noted in the folder. Gives the limit of
    spending that kept it from its end, if one did.

    Raises:
        LMUnavailableError: an LM or a server of embeddings failed.
    """
    with open_ledger(sent.of(PREPARATION_CALLS)) as ledger:
        try:
            run_context.retriever.build(IndexStore(), on_prepare)
            with use(replace(current(), ahead=tuple(example.question for example in todo))):
                program = run_context.program
                with blamed_on(program, f"the preparation of {program.name}"):
                    program.prepare(on_prepare)
        except LimitReachedError:
            return stopped_by()
        except dspy.LMError as error:
            raise LMUnavailableError(
                f"what all questions share could not be made: {type(error).__name__}: "
                f"{redact(str(error))}; what was read is kept, and the same command continues"
            ) from error
        finally:
            note_preparation(folder, run_context, ledger)
    return ""


def _evaluate(
    run_context: RunContext,
    todo: Sequence[dspy.Example],
    journals: _Journals,
    on_record: OnRecord | None,
) -> str:
    """Ask `todo`; gives the limit of spending that left some of it unanswered, if one did."""
    threads = min(run_context.config.workers, len(todo))
    processes = processes_of(run_context.config, threads)
    workers = None
    with ExitStack() as stack:
        if processes is not None:
            workers = stack.enter_context(
                WorkerPool(
                    processes,
                    run_context,
                    threads=threads,
                    sent=journals.sent,
                    prompts=journals.prompts,
                )
            )
        answer = workers.ask if workers else _here(run_context.program, journals)
        asker = _Asker(answer, len(todo), journals.records, on_record)
        try:
            for_each(asker.ask, todo, threads=threads)
        except KeyboardInterrupt:
            if workers:
                workers.stop()
            asker.wait(_ENDING_S)
            raise
    if asker.broken is not None:
        raise asker.broken
    return asker.stopped_by


#: The record of a question, and its line.
_Answer = Callable[[dspy.Example], tuple[Record, bytes]]


def _here(program: dspy.Module, journals: _Journals) -> _Answer:
    """Answers a question in the thread that asks it."""
    keep = journals.prompts.keep if journals.prompts else None

    def answer(example: dspy.Example) -> tuple[Record, bytes]:
        record = ask(program, example, also=journals.sent.of(example.qid), keep=keep)
        return record, encode(record)

    return answer


class _Asker:
    """Has one question answered and writes the record, whatever happens."""

    def __init__(
        self,
        answer: _Answer,
        n: int,
        records: RecordWriter,
        on_record: OnRecord | None,
    ) -> None:
        self._answer, self._records = answer, records
        self._on_record, self._n, self._done = on_record, n, 0
        self._billed = Totals()
        self._under_way, self._idle = 0, threading.Condition()
        self.broken: RunError | None = None
        self.stopped_by = ""

    def ask(self, example: dspy.Example) -> None:
        """Ask one question, unless something stopped the run."""
        with self._idle:
            self._under_way += 1
        try:
            self._ask(example)
        finally:
            with self._idle:
                self._under_way -= 1
                self._idle.notify_all()

    def wait(self, seconds: float) -> None:
        """Return when no question is under way, but after `seconds` at the latest."""
        with self._idle:
            self._idle.wait_for(lambda: not self._under_way, seconds)

    def _ask(self, example: dspy.Example) -> None:
        # After `broken` the disk is full: ask nothing that cannot be kept.
        if stopping.stopped() or self.broken is not None:
            return
        if limit := stopped_by():
            self.stopped_by = limit
            return
        record, line = self._answer(example)
        with self._idle:
            self._billed += record.ledger.billed
        if record.cut_off:
            self.stopped_by = stopped_by()
            if not record.ledger.calls:  # nothing was spent, so there is nothing to keep
                return
        try:
            self._records.write(line)
        except RunError as error:
            spent = f"{self._billed.calls} calls, {self._billed.tokens} tokens"
            self.broken = RunError(f"{error}; billed by this command until then: {spent}")
            return
        with self._idle:
            self._done += 1
            done = self._done
        if self._on_record and not record.cut_off:
            self._on_record(record, done, self._n)
