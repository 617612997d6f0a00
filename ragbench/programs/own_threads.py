"""Threads that a module of a person's own starts: its LM, ledger and limits are there too.

DSPy keeps its settings in a context variable, which Python hands to no new thread. In plain DSPy a
thread finds what `dspy.configure` set for the whole process; here each question has its own.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import cache
from typing import Any

import dspy

from ragbench.lms.lm import OWN


@cache
def follow_threads() -> None:
    """From now on, threads that such a module starts, or gives work, have its settings."""
    start = threading.Thread.start
    submit = ThreadPoolExecutor.submit

    def start_with_settings(thread: threading.Thread) -> None:
        if dspy.settings.get(OWN):
            context = copy_context()
            run = thread.run
            thread.run = lambda: context.run(run)  # type: ignore[method-assign]
        start(thread)

    def submit_with_settings(
        pool: ThreadPoolExecutor, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Future[Any]:
        if dspy.settings.get(OWN):
            return submit(pool, copy_context().run, function, *args, **kwargs)
        return submit(pool, function, *args, **kwargs)

    kinds: list[Any] = [threading.Thread, ThreadPoolExecutor]
    kinds[0].start = start_with_settings
    kinds[1].submit = submit_with_settings
