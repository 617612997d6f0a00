"""Runner of a config: runs the questions without a finished record and writes the summary."""

import itertools
import threading
from collections.abc import Sequence

import dspy

from ragbench.errors import StoppedError
from ragbench.experiments.config import RunConfig
from ragbench.experiments.progress import SILENT, ProgressListener
from ragbench.experiments.runs.asking import ask_all
from ragbench.experiments.runs.context import RunContext, card_for, may_bring_lms, ready
from ragbench.experiments.runs.preparation import exhaustive_retrieval, prepare
from ragbench.experiments.runs.reuse import reuse_line
from ragbench.experiments.runs.shards import ask_in_shards, check_spread, is_spread
from ragbench.experiments.runs.summary import SUMMARY, Evaluation
from ragbench.experiments.store import (
    DATABASE,
    RunCard,
    RunFolder,
    Store,
    is_run,
    locked,
    put_price,
    write_json,
)
from ragbench.lms.calls import check_limits, keeps_limits
from ragbench.logs import fields, get
from ragbench.programs.core.indexed import index_facts
from ragbench.record import Record

_log = get(__name__)


def evaluate(
    config: RunConfig,
    *,
    like: RunContext | None = None,
    watch: ProgressListener = SILENT,
    title: str | None = None,
) -> Evaluation:
    """Run or continue a run.

    Args:
        config: Config of the run.
        like: Context whose data and retriever are reused if they are the same.
        watch: Listener of progress.
        title: Title of the run in the progress.
    """
    return run(ready(config, like=like), watch=watch, title=title)


def run(
    run_context: RunContext, *, watch: ProgressListener = SILENT, title: str | None = None
) -> Evaluation:
    """Answer every question without a finished record, and write the summary.

    The folder may have more questions, from a run with a larger limit. The written summary covers
    all of them. The result covers the questions of `run_context`.

    Args:
        run_context: The run.
        watch: The receiver of progress.
        title: Title of the progress. None uses that of `run_context`.

    Returns:
        The run, incomplete if a limit stopped it. `stopped_by` names the limit.

    Raises:
        RunError: The folder has a run of another config, is in use, or cannot be written.
        KeyboardInterrupt: The user stopped it. Every finished question has its record.
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
            put_price(folder, card)  # The new price applies to later questions.
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
                f"Resuming {folder}: {done} of {len(run_context.examples)} questions answered, "
                f"{len(todo)} to run"
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
        evaluation = Evaluation(opened, opened.records.only(qids), stopped_by=stopped)
        everything = evaluation
        if not set(qids).issuperset(opened.records):
            everything = Evaluation(opened)
        write_json(folder / SUMMARY, everything.stored())
        return evaluation


def _answer(
    run_context: RunContext, todo: Sequence[dspy.Example], card: RunCard, watch: ProgressListener
) -> None:
    """Run `todo`, here or in shards. Raises StoppedError if a limit ended the run."""
    numbers = itertools.count(1)
    telling = threading.Lock()

    def told(record: Record) -> None:
        with telling:
            watch.update(record, next(numbers), n)

    n = len(todo)
    with run_context.active(), Store(run_context.config.folder(), card) as store:
        try:
            prepare(run_context, todo, store, watch)
        finally:  # The shared parts are known only now.
            card = card.model_copy(update={
                "index": {**card.index, **index_facts(run_context.program)},
                "retriever": run_context.retriever.card(),
            })  # fmt: skip
            store.put_card(card)
        check_limits()
        if exhaustive_retrieval(run_context):  # once nothing is missing: an error is one line
            if run_context.dataset.setting == "pooled":
                cure = "give a smaller k, or more documents"
            else:
                cure = "--setting pooled asks over all passages"
            watch.say(
                f"k={run_context.program.knobs.k} can give every passage that a question has, so "
                f"that scores do not show how {run_context.program.name} searches; {cure}"
            )
        store.run()  # Create the database before the first question.
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
