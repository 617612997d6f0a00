"""Runs a config: asks the questions that have no finished record yet.

Each question gets a ledger of its own and leaves exactly one record, written before the next
question starts on that thread. Whatever a question raises is its record's failure.
"""

import gc
import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import replace

import dspy

from ragbench import stopping
from ragbench.context import current, use
from ragbench.errors import LMUnavailableError, RunError
from ragbench.experiments.config import RunConfig
from ragbench.experiments.runs.card import card_for, make_card
from ragbench.experiments.runs.context import RunContext, ready
from ragbench.experiments.runs.evaluation import Evaluation
from ragbench.experiments.runs.question import ask
from ragbench.experiments.runs.shards import ask_in_shards, check_spread, collect, is_spread
from ragbench.experiments.runs.summary import SUMMARY
from ragbench.experiments.store import (
    PREPARATION,
    RunCard,
    Store,
    is_run,
    locked,
    read_card,
    read_records,
    replace_card,
    write_json,
)
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


def evaluate(
    config: RunConfig,
    *,
    like: RunContext | None = None,
    on_start: OnStart | None = None,
    on_record: OnRecord | None = None,
    on_prepare: OnPrepare | None = None,
) -> Evaluation:
    """Run `config`, or continue it, with data and retriever of `like` where they are the same."""
    run_context = ready(config, like=like)
    return run(run_context, on_start=on_start, on_record=on_record, on_prepare=on_prepare)


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
    config = run_context.config
    check_spread(config)
    folder = config.folder()
    with locked(folder):
        card = card_for(folder, run_context)
        finished = read_records(folder).finished
        if config.shard:  # what the whole run has is not asked again
            finished |= read_records(folder.parent.parent).finished
        elif collect(folder, card):  # shards that a command left which was killed
            finished = read_records(folder).finished
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
        if todo:
            numbers, telling = itertools.count(1), threading.Lock()

            def told(record: Record) -> None:
                with telling:
                    if on_record:
                        on_record(record, next(numbers), len(todo))

            with run_context.active():
                with Store(folder, card) as store:
                    stopped = _prepare(run_context, todo, store, card, on_prepare)
                    if not stopped and not is_spread(config):
                        stopped = _Asker(run_context, store, told).ask_all(todo)
                if not stopped and is_spread(config):
                    asked = ask_in_shards(run_context, len(todo), told)
                    if left := [e for e in todo if e.qid not in asked]:
                        with Store(folder, card) as store:
                            stopped = _Asker(run_context, store, told).ask_all(left)
        there = is_run(folder)  # a limit may have let nothing be begun
        repriced = there and read_card(folder).price != card.price
        if repriced:
            replace_card(folder, card)
        records = read_records(folder)
        if there:
            card = read_card(folder)  # what was made for all questions has been added
        whole = Evaluation.of(folder, card, records, stopped)
        if there and (todo or repriced or not (folder / SUMMARY).exists()):
            write_json(folder / SUMMARY, whole.stored())
        asked = {str(example.qid) for example in run_context.examples}
        if asked.issuperset(records):
            return whole
        chosen = records.only([qid for qid in records if qid in asked])
        return Evaluation.of(folder, card, chosen, stopped)


def _prepare(
    run_context: RunContext,
    todo: Sequence[dspy.Example],
    store: Store,
    card: RunCard,
    on_prepare: OnPrepare | None,
) -> str:
    """Make what all questions share: the index, loaded if it is stored, and the program's own.

    The calls that this took are no question's and are noted in the folder. Gives the limit of
    spending that kept it from its end, if one did.

    Raises:
        LMUnavailableError: an LM or a server of embeddings failed.
    """
    with open_ledger(store.calls_of(PREPARATION)):
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
            store.put_card(
                make_card(run_context).model_copy(update={"run": card.run, "price": card.price})
            )
    return ""


class _Asker:
    """Asks the questions of a run in the threads of this process, and writes their records."""

    def __init__(
        self, run_context: RunContext, store: Store, told: Callable[[Record], None]
    ) -> None:
        self._run_context, self._store, self._told = run_context, store, told
        self._billed, self._lock = Totals(), threading.Lock()
        self._broken: RunError | None = None
        self._stopped_by = ""

    def ask_all(self, todo: Sequence[dspy.Example]) -> str:
        """Ask `todo`; gives the limit of spending that left some of it unanswered, if one did.

        Raises:
            RunError: the disk is full.
        """
        config, left = self._run_context.config, iter(todo)
        threads = min(config.workers, len(todo))
        over = threading.Event()

        def work() -> None:
            while not (over.is_set() or stopping.stopped() or self._broken):
                with self._lock:
                    example = next(left, None)
                if example is None:
                    return
                try:
                    self._ask(example)
                except BaseException:
                    over.set()
                    raise

        pool = ThreadPoolExecutor(threads, thread_name_prefix="question")
        # What is there by now stays: to look through it for garbage again and again took a sixth of
        # the time of a question.
        gc.freeze()
        workers = [pool.submit(copy_context().run, work) for _ in range(threads)]
        try:
            wait(workers)
            for worker in workers:
                worker.result()
        finally:
            over.set()
            pool.shutdown(wait=False)
            wait(workers, timeout=_ENDING_S)  # after Ctrl-C
            gc.unfreeze()
        if self._broken is not None:
            raise self._broken
        return self._stopped_by

    def _ask(self, example: dspy.Example) -> None:
        """Ask one question and write its record, unless a limit lets nothing more be begun."""
        if limit := stopped_by():
            self._stopped_by = limit
            return
        keep = self._store.keep if self._run_context.config.prompts else None
        also = self._store.calls_of(example.qid)
        record = ask(self._run_context.program, example, also=also, keep=keep)
        with self._lock:
            self._billed += record.ledger.billed
        if record.cut_off:
            self._stopped_by = stopped_by()
            if not record.ledger.calls:  # nothing was spent, so there is nothing to keep
                return
        try:
            self._store.write(record)
        except RunError as error:
            # The disk is full: ask nothing that cannot be kept.
            spent = f"{self._billed.calls} calls, {self._billed.tokens} tokens"
            self._broken = RunError(f"{error}; billed by this command until then: {spent}")
            return
        if not record.cut_off:
            self._told(record)
