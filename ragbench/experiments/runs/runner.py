"""Runs a config: asks the questions that have no finished record yet, and makes their records.

Each question gets a ledger of its own and leaves exactly one record, written before the next
question starts on that thread. Whatever a question raises is its record's failure, filed by the
boundary that failed:

    the question
    ├── limit        a limit of the run or of the question refused its next call
    ├── provider     the LM's server: refused, timed out, out of quota, context too long
    ├── parse        a reply that no adapter could read
    ├── retriever    a search: an index, or a server of embeddings or rerankings
    ├── tool         a tool that the model used: page, chunk, sandbox
    └── program      anything else that left `forward`: a defect of ours or of a third party

The class of the error decides where it says enough, else the innermost boundary that it crossed.
"""

import gc
import itertools
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import dspy
from dspy import AdapterParseError, CodeInterpreterError, LMError

from ragbench import stopping
from ragbench.context import current, use
from ragbench.data.base import as_json, jsonable
from ragbench.errors import (
    ConfigError,
    DataError,
    LMUnavailableError,
    MissingExtraError,
    NoAnswerError,
    RunError,
    StoppedError,
)
from ragbench.experiments.config import RunConfig
from ragbench.experiments.runs.context import RunContext, card_for, may_bring_lms, ready
from ragbench.experiments.runs.reuse import reuse_line
from ragbench.experiments.runs.shards import ask_in_shards, check_spread, is_spread
from ragbench.experiments.runs.summary import HEADLINE, SUMMARY, Evaluation
from ragbench.experiments.store import (
    DATABASE,
    PREPARATION,
    RunCard,
    RunFolder,
    Store,
    is_run,
    locked,
    put_price,
    write_json,
)
from ragbench.experiments.watch import SILENT, Forecast, Watch
from ragbench.ledger import open_ledger
from ragbench.lms.calls import (
    CallRefusedError,
    LimitReachedError,
    active,
    check_limits,
    limit_reached,
    question_time,
)
from ragbench.lms.unmetered import keeps_limits, unmetered_reason
from ragbench.logs import fields, get
from ragbench.metrics import get_metric
from ragbench.programs.core.asked import Asked
from ragbench.programs.core.indexed import index_facts, prepare_all
from ragbench.programs.core.program import done_so_far
from ragbench.record import CUT_OFF, Call, Fact, Failure, Ledger, Record, ShownPassage
from ragbench.redact import redact
from ragbench.retrievers import IndexStore, PerQuestion
from ragbench.user_code import blamed_on, contained, message_of

_log = get(__name__)

#: Seconds that the questions under way have after Ctrl-C; what their calls took is recorded.
_ENDING_S = 1.5
#: The longest message of a failure.
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
_OPTIONAL_FIELDS = ("shown", "citations", "plan", "facts", "tree")


class Writer(Protocol):
    """A `Store`, or what stands for one in a shard: it sends what is to be written."""

    def write(self, record: Record) -> None: ...
    def file_call(self, qid: str, call: Call) -> None: ...
    def keep(self, text: str) -> str: ...


def evaluate(
    config: RunConfig,
    *,
    like: RunContext | None = None,
    watch: Watch = SILENT,
    title: str | None = None,
) -> Evaluation:
    """Run `config`, or continue it, with data and retriever of `like` where they are the same."""
    return run(ready(config, like=like), watch=watch, title=title)


def run(run_context: RunContext, *, watch: Watch = SILENT, title: str | None = None) -> Evaluation:
    """Answer every question of `run_context` that has no finished record, and write the summary.

    The folder may hold more questions, from a run with a larger limit: the summary that is written
    is of them all, what is given is of those of `run_context`. A run that a limit of spending ended
    is given as far as it came; see `stopped_by`. `watch` is told of it under `title`.

    Raises:
        RunError: the folder holds a run of another config, is in use, or cannot be written.
        KeyboardInterrupt: the user stopped it; every finished question has its record.
    """
    config = run_context.config
    check_spread(config)
    folder = config.folder()
    stopped: str | None = None
    with locked(folder):
        card = card_for(folder, run_context)
        opened = RunFolder(folder, check=True)
        written = (folder / DATABASE).stat().st_mtime if opened.reader.exists else 0.0
        if opened.reader.exists and opened.card.price != card.price:
            put_price(folder, card)  # it holds for what was answered from now on
        finished = opened.records.finished
        todo = [example for example in run_context.examples if example.qid not in finished]
        if todo:
            run_context.check_lms()
        done = len(run_context.examples) - len(todo)
        _log.info(
            "run", extra=fields(to_ask=len(todo), done=done, card=card.model_dump(mode="json"))
        )
        watch.start(run_context.title if title is None else title, len(todo), done)
        line = reuse_line(config, f"{done} answers", written) if done else ""
        if line:
            watch.say(line)
        if finished and (todo or not line):
            watch.say(
                f"{folder} is taken up again: {done} of {len(run_context.examples)} answers "
                f"stand, {len(todo)} questions are asked"
            )
        if todo:
            try:
                _answer(run_context, todo, card, watch)
            except StoppedError as stop:
                stopped = stop.by
        opened = RunFolder(folder)
        if not is_run(folder):  # a limit may have let nothing begin
            return Evaluation(opened, card=card, stopped_by=stopped)
        qids = [str(example.qid) for example in run_context.examples]
        asked = Evaluation(opened, opened.records.only(qids), stopped_by=stopped)
        everything = asked
        if not set(qids).issuperset(opened.records):
            everything = Evaluation(opened)
        write_json(folder / SUMMARY, everything.stored())
        return asked


def _answer(
    run_context: RunContext, todo: Sequence[dspy.Example], card: RunCard, watch: Watch
) -> None:
    """Ask `todo`, here or in shards; raises StoppedError where a limit of spending ended it."""
    numbers = itertools.count(1)
    telling = threading.Lock()

    def told(record: Record) -> None:
        with telling:
            watch.update(record, next(numbers), n)

    n = len(todo)
    with run_context.active(), Store(run_context.config.folder(), card) as store:
        try:
            prepare(run_context, todo, store, watch)
        finally:  # what was made for all questions is known now
            card = card.model_copy(update={
                "index": {**card.index, **index_facts(run_context.program)},
                "retriever": run_context.retriever.card(),
            })  # fmt: skip
            store.put_card(card)
        check_limits()
        if reads_all(run_context):  # once nothing is missing: an error is one line
            if run_context.dataset.setting == "pooled":
                cure = "give a smaller k, or more documents"
            else:
                cure = "--setting pooled asks over all passages"
            watch.say(
                f"k={run_context.program.knobs.k} can give every passage that a question has, so "
                f"that scores do not show how {run_context.program.name} searches; {cure}"
            )
        store.run()  # makes the database, before any question is asked
        try:
            if todo and keeps_limits() and may_bring_lms(run_context.config):
                # An LM that passes ragbench is found here, before the others begin.
                ask_all(run_context, todo[:1], store, told)
                todo = todo[1:]
            if is_spread(run_context.config):
                todo = ask_in_shards(run_context, todo, store, told)
            if todo:
                ask_all(run_context, todo, store, told)
        finally:
            negotiated = run_context.negotiated()
            if negotiated:
                store.put_card(card.model_copy(update={"negotiated": negotiated}))


def reads_all(run_context: RunContext) -> bool:
    """Whether one search gives most questions every passage that they have."""
    program = run_context.program
    retriever = run_context.retriever
    if not program.chooses or "k" in program.unread:
        return False
    sizes = [len(retriever.corpus)]
    if isinstance(retriever, PerQuestion):
        sizes = list(map(len, retriever.corpus.contexts.values()))
    reached = sum(0 < size <= program.knobs.k for size in sizes)
    return 2 * reached > len(sizes)


def prepare(
    run_context: RunContext,
    todo: Sequence[dspy.Example],
    store: Writer,
    watch: Watch = SILENT,
) -> None:
    """Make what all questions share: the index, loaded if it is stored, and the program's own.

    The calls that this took are no question's and are noted in the folder.

    Raises:
        StoppedError: a limit of spending kept it from its end.
        LMUnavailableError: an LM or a server of embeddings failed.
    """
    program = run_context.program
    ahead = [example.question for example in todo]
    try:
        also = partial(store.file_call, PREPARATION)
        with open_ledger(also) as ledger:
            progress = Forecast(watch, ledger.calls)
            run_context.retriever.build(IndexStore(), progress)
            with blamed_on(program, f"the preparation of {program.name}"):
                prepare_all(program, ahead, progress)
    except LimitReachedError:
        check_limits()
    except dspy.LMError as error:
        raise LMUnavailableError(
            f"what all questions share could not be made: {type(error).__name__}: "
            f"{redact(str(error))}; what was read is kept, and the same command continues"
        ) from error


def ask_all(
    run_context: RunContext,
    todo: Sequence[dspy.Example],
    store: Writer,
    on_record: Callable[[Record], None] = lambda record: None,
) -> None:
    """Ask `todo` in the threads of this process and write the records.

    Raises:
        StoppedError: a limit of spending left some of it unanswered.
        RunError: the disk is full: nothing is asked that cannot be kept.
    """
    config = run_context.config
    waiting = iter(todo)
    lock = threading.Lock()
    keep = store.keep if config.prompts else None
    threads = min(config.workers, len(todo))
    over = threading.Event()

    def ask_one(example: dspy.Example) -> None:
        check_limits()
        also = partial(store.file_call, example.qid)
        record = ask(run_context.program, example, also=also, keep=keep)
        if record.cut_off and not record.ledger.calls:
            check_limits()  # nothing was spent, so there is nothing to keep
            return
        try:
            store.write(record)
        except RunError as error:
            spent = "".join(f"; spent until then: {limit.words()}" for limit in active()[-1:])
            raise RunError(f"{error}{spent}") from None
        if record.cut_off:
            check_limits()
        else:
            on_record(record)

    def work() -> None:
        while not (over.is_set() or stopping.stopped()):
            with lock:
                example = next(waiting, None)
            if example is None:
                return
            try:
                ask_one(example)
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
        errors = filter(None, map(Future.exception, workers))
        # A limit is the last that is told: what else went wrong would be lost.
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
    """The scored record of `program` on `example`; an error becomes its failure.

    `also` gets every call as it ends; `keep` stores a text and gives its id.

    Raises:
        MissingExtraError: the program, or what it searches, needs a package that is not installed.
        NoAnswerError: what a module of a person's own returns can be no answer.
    """
    prediction = None
    failure = None
    with (
        open_ledger(also, keep) as ledger,
        use(replace(current(), qid=example.qid).plus(Asked(example)), trace=None),
    ):
        _log.info("question started")
        start = time.perf_counter()
        try:
            with question_time(), contained("the program"):
                prediction = program(question=example.question)
        except (MissingExtraError, NoAnswerError):  # which are of no single question
            raise
        except Exception as error:  # failures are data; only this place catches them all
            failure = classify(error)
            prediction = done_so_far(error)
            if not (ledger.refused or ledger.interrupted):  # no failure of the question
                _log.warning("question failed", exc_info=True, extra=fields(failure=failure.name))
        latency = time.perf_counter() - start
    if reason := unmetered_reason():
        raise ConfigError(reason)
    if ledger.refused or ledger.interrupted:  # also if the program went on without the call
        why = ledger.interrupted or f"stopped by {limit_reached() or 'an LM that is down'}"
        failure = Failure("limit", CUT_OFF, why)
    corpus = getattr(getattr(program, "retriever", None), "corpus", None)
    alignment = getattr(corpus, "alignment", None)
    record = make_record(
        example, prediction, ledger, latency_s=latency, failure=failure, alignment=alignment
    )
    spent = record.ledger.as_if
    log_fields = fields(
        scores=record.scores, stop_reason=record.stop_reason, calls=spent.calls,
        tokens=spent.tokens, seconds=record.latency_s,
    )  # fmt: skip
    with use(replace(current(), qid=example.qid)):
        _log.info("question ended", extra=log_fields)
    return record


def classify(error: BaseException) -> Failure:
    """The failure that `error` is."""
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
    """The scored record of one question.

    `alignment` says which sentences of the paragraphs each chunk of the corpus holds. `prediction`
    of a failed question holds what it did before it failed, if that is known. `latency_s` is wall
    time; the record adds the time that the cache saved.
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
        optional[name] = jsonable(prediction.get(name))
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
    record.scores.update({name: get_metric(name).score(record) for name in HEADLINE})
    record.memo.clear()  # which no other process can be sent
    return record


def _extra(example: dspy.Example, prediction: dspy.Prediction) -> dict[str, Any]:
    """What one data set alone has of a question, and what a person's own module gave beside it."""
    extra: dict[str, Any] = {}
    for name, value in example.items():
        if name not in _EXAMPLE_FIELDS:
            extra[name] = value
    extra = json.loads(as_json(extra))
    if outputs := prediction.get("outputs"):
        extra["outputs"] = jsonable(outputs)
    return extra
