"""Threads that answer the questions of a run.

DSPy's own executor waits over all questions that are left each time one ends, so its cost grows
with the square of their number; here it is the same for each.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import TypeVar

Item = TypeVar("Item")

_NONE = object()


def for_each(function: Callable[[Item], None], items: Iterable[Item], *, threads: int) -> None:
    """Call `function` of each item, in order, so many at once; the threads see DSPy's settings.

    After an error no item is begun; it is raised when those under way have ended. One that reaches
    the calling thread, such as Ctrl-C, is raised at once.
    """
    left, turn, over = iter(items), threading.Lock(), threading.Event()

    def work() -> None:
        while not over.is_set():
            with turn:
                item = next(left, _NONE)
            if item is _NONE:
                return
            try:
                function(item)  # type: ignore[arg-type]
            except BaseException:
                over.set()
                raise

    pool = ThreadPoolExecutor(threads, thread_name_prefix="question")
    # What is there by now stays: to look through it for garbage again and again took a sixth of
    # the time of a question.
    gc.freeze()
    try:
        workers = [pool.submit(copy_context().run, work) for _ in range(threads)]
        wait(workers)
        for worker in workers:
            worker.result()
    finally:
        over.set()
        pool.shutdown(wait=False)
        gc.unfreeze()
