"""Asks one shard of a run in a process of its own, or on a node of a cluster; see `shards`."""

import os
import pickle
import queue
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

from ragbench import __version__, stopping, user_code
from ragbench.errors import LMUnavailableError, MissingExtraError, RagbenchError, RunError
from ragbench.experiments.runs.runner import evaluate
from ragbench.experiments.runs.shards import ENDING_S, Ended, Job
from ragbench.experiments.runs.spend import limited
from ragbench.logs import quiet_libraries, set_level, to_terminal
from ragbench.record import Record


def ask_shard(job: Job) -> Iterator[Record | Ended]:
    """The records of the shard as they come, and how it ended."""
    stopping.reset()  # a process of Ray may have asked another shard before
    signal.signal(signal.SIGINT, lambda *_: stopping.stop_all())  # so Ray tells it to stop
    sent: queue.SimpleQueue[Record | Ended] = queue.SimpleQueue()
    threading.Thread(target=lambda: sent.put(_asked(job, sent)), daemon=True).start()
    while True:
        try:
            each = sent.get(timeout=stopping.POLL_S)  # between two, a signal is handled
        except queue.Empty:
            continue
        yield each
        if isinstance(each, Ended):
            return


def _asked(job: Job, sent: queue.SimpleQueue[Any]) -> Ended:
    """Ask the shard of `job`; whatever ends it is told by the command."""
    config = job.config
    sys.path += [place for place in job.path if place not in sys.path]
    quiet_libraries()
    set_level(job.log_level)
    if config.shard_of[0] == 1:  # the others meet the same
        to_terminal()
    try:
        if job.version != __version__:
            raise RunError(f"a node has ragbench {__version__}; the run is of {job.version}")
        if config.out is None or not config.out.is_dir():
            raise RunError(
                f"a node does not see {config.out}: --engine ray needs a folder that all nodes "
                "share; give --out"
            )
        user_code.allow(*job.allowed)
        with limited(job.limits, config.folder()):
            evaluate(config, on_record=lambda record, done, n: sent.put(record))
    except (LMUnavailableError, MissingExtraError) as error:
        return Ended(type(error)(str(error)))
    except RagbenchError as error:
        return Ended(RunError(str(error)))
    except BaseException as error:  # the command tells of it
        return Ended(RunError(f"a shard failed: {type(error).__name__}: {error}"))
    return Ended()


def main() -> None:
    """Ask the shard that standard input names, until that is closed; records go to the output."""
    with os.fdopen(os.dup(1), "wb") as output:
        os.dup2(2, 1)  # what the user's code prints is no record
        job = pickle.load(sys.stdin.buffer)

        def end_with_the_command() -> None:
            while os.read(0, 1):
                pass
            stopping.stop_all()
            threading.Event().wait(ENDING_S)
            os._exit(1)

        threading.Thread(target=end_with_the_command, daemon=True).start()
        for each in ask_shard(job):
            pickle.dump(each, output)
            output.flush()


if __name__ == "__main__":
    main()
