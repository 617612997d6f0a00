"""Asks one shard of a run in a process of its own, or on a node of a cluster; see `shards`."""

import os
import pickle
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.managers import BaseManager
from typing import Any

from ragbench import __version__, stopping, user_code
from ragbench.errors import LMUnavailableError, MissingExtraError, RagbenchError, RunError
from ragbench.experiments.runs.runner import evaluate
from ragbench.experiments.runs.shards import ENDING_S, LOOK_S, Job, Outcome, as_limits
from ragbench.experiments.runs.spend import limited
from ragbench.lms.calls import Spent
from ragbench.logs import quiet_libraries, set_level, to_terminal


class _Boards(BaseManager):
    """Reaches the board of the command."""


_Boards.register("board")


def ask_shard(job: Job) -> None:
    """Ask the shard of `job` in this process, and tell the board how it ended."""
    manager = _Boards(address=job.address, authkey=job.key)
    manager.connect()
    board: Any = manager.board()  # type: ignore[attr-defined]  # registered above
    stopping.reset()  # a process of Ray may have asked another shard before
    sys.path += [place for place in job.path if place not in sys.path]
    quiet_libraries()
    set_level(job.log_level)
    if job.number == 1:  # the others meet the same
        to_terminal()
    try:
        outcome = _asked(job, board)
    except (LMUnavailableError, MissingExtraError) as error:
        outcome = Outcome(error=type(error)(str(error)))
    except RagbenchError as error:
        outcome = Outcome(error=RunError(str(error)))
    except Exception as error:  # the command, whose process has no part in it, tells of it
        outcome = Outcome(error=RunError(f"a shard failed: {type(error).__name__}: {error}"))
    board.done(job.number, outcome)


def _asked(job: Job, board: Any) -> Outcome:
    whole = job.config.out
    if job.version != __version__:
        raise RunError(f"a node has ragbench {__version__}; the run is of {job.version}")
    if whole is None or not whole.is_dir():
        raise RunError(
            f"a node does not see {whole}: --engine ray needs a folder that all nodes share; "
            "give --out"
        )
    user_code.allow(*job.allowed)
    with limited(job.limits, job.folder) as spent, _following(board, job.number, spent):
        found = evaluate(job.config, on_record=lambda record, done, n: board.record(record))
    return Outcome(found.stopped_by)


@contextmanager
def _following(board: Any, number: int, spent: Spent) -> Iterator[None]:
    """Inside the block, spend what the board grants, and stop when it says so or is gone."""
    over = threading.Event()

    def follow() -> None:
        while not over.wait(LOOK_S):
            try:
                granted = board.granted(number)
            except (EOFError, OSError):  # the command was killed
                stopping.stop_all()
                if not over.wait(ENDING_S):
                    os._exit(1)
                return
            if granted is None:
                stopping.stop_all()
            else:
                spent.limits = as_limits(granted, spent.limits.minutes)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


if __name__ == "__main__":
    ask_shard(pickle.load(sys.stdin.buffer))
