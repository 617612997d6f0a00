"""The work that all questions of a run share: its index, and other parts of its program."""

from collections.abc import Sequence
from functools import partial

import dspy

from ragbench.errors import LMUnavailableError
from ragbench.experiments.progress import SILENT, Forecast, ProgressListener
from ragbench.experiments.runs.context import RunContext
from ragbench.experiments.store import PREPARATION, Store
from ragbench.ledger import open_ledger
from ragbench.lms.calls import LimitReachedError, check_limits
from ragbench.programs.core.indexed import prepare_all
from ragbench.redact import redact
from ragbench.retrievers import IndexStore, PerQuestion
from ragbench.user_code import wrap_user_errors


def exhaustive_retrieval(run_context: RunContext) -> bool:
    """Return True if one search returns every passage for more than half of the questions."""
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
    store: Store,
    watch: ProgressListener = SILENT,
) -> None:
    """Build or load the index, and the parts of the program that all questions share.

    The folder records these calls separately from those of the questions.

    Args:
        run_context: The run.
        todo: Questions to run.
        store: Receiver of the calls.
        watch: The receiver of progress.

    Raises:
        StoppedError: A limit was reached before the preparation was complete.
        LMUnavailableError: An LM or an embedding server failed.
    """
    program = run_context.program
    ahead = [example.question for example in todo]
    try:
        also = partial(store.file_call, PREPARATION)
        with open_ledger(also) as ledger:
            progress = Forecast(watch, ledger.calls)
            run_context.retriever.build(IndexStore(), progress)
            with wrap_user_errors(program, f"the preparation of {program.name}"):
                prepare_all(program, ahead, progress)
    except LimitReachedError:
        check_limits()
    except dspy.LMError as error:
        raise LMUnavailableError(
            f"cannot build the index or shared parts: {type(error).__name__}: "
            f"{redact(str(error))}; finished calls are saved, and the same command continues"
        ) from error
