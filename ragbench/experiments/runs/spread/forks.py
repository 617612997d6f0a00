"""Workers that are forks of this process: they have data, index and program as it made them."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Sequence
from multiprocessing import get_context
from multiprocessing.connection import wait

from ragbench.experiments.runs.spread.worker import Worker
from ragbench.lms.link import Address

#: Seconds that workers have to end by themselves when a run is over.
_LEAVING_S = 1.0


class Forks:
    """Worker processes as forks, one for each of `shares`: the number of its threads."""

    address: Address | None = None

    def __init__(self, shares: Sequence[int]) -> None:
        self._shares = shares

    def start(self, worker: Worker) -> None:
        """See `WorkerProcesses`."""
        made = get_context("fork").Process
        self._processes = [
            made(target=_work, args=(worker, share), daemon=True) for share in self._shares
        ]
        gc.freeze()  # what is there by now stays shared: a collection would write to all of it
        try:
            for process in self._processes:
                process.start()
        finally:
            gc.unfreeze()

    def wait(self) -> str:
        """See `WorkerProcesses`."""
        left = {process.sentinel for process in self._processes}
        while left:
            left -= set(wait(list(left)))
        return ""

    def end(self) -> None:
        """See `WorkerProcesses`."""
        for process in self._processes:
            process.join(_LEAVING_S)
            process.kill()
            process.join()


def _work(worker: Worker, threads: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it reaches all; the parent tells of it
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    worker.run(threads)
    os._exit(0)
