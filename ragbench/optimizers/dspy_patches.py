"""What DSPy's optimizers do that no setting changes, and the parts of it that are not public.

Inside `logged_to` they write to a file instead of the terminal, and ask no slow question twice.
Both hold for the process while a compile searches, and end with the block.
"""

import contextlib
import functools
import io
import logging
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ragbench.dspy_private import private
from ragbench.redact import redact

_LOGGERS = ("dspy", "optuna", "gepa")


@contextlib.contextmanager
def logged_to(log_file: Path) -> Iterator[None]:
    """Inside the block, what optimizers print, log and draw goes to `log_file`, appended.

    Where that cannot be written it is lost: no search fails for its log. DSPy asks no question a
    second time inside the block.
    """
    try:
        log_file.parent.mkdir(parents=True, exist_ok=True)
        file = io.FileIO(log_file, "a")
    except OSError:
        file = io.FileIO(os.devnull, "a")
    stream = _Redacted(file)
    with (
        file,
        contextlib.redirect_stdout(stream),
        contextlib.redirect_stderr(stream),
        warnings.catch_warnings(),
        _logging_to(stream),
        _without_resubmission(),
    ):
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def _without_resubmission() -> Iterator[None]:
    """Inside the block, `dspy.Evaluate` and `dspy.Parallel` ask no slow question a second time.

    They resubmit one that takes 120 s when few are left, which spends twice and can outlive the
    run, and offer no setting for it.
    """

    def without_timeout(executor: Any, *args: Any, **kwargs: Any) -> Any:
        return executor(*args, **{**kwargs, "timeout": 0})

    with contextlib.ExitStack() as replaced:
        for path in ("dspy.evaluate.evaluate", "dspy.predict.parallel"):
            module = private(path, "compile")
            executor = functools.partial(without_timeout, module.ParallelExecutor)
            replaced.enter_context(_replaced(module, "ParallelExecutor", executor))
        yield


@contextlib.contextmanager
def _replaced(module: Any, name: str, value: Any) -> Iterator[None]:
    original = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, original)


class _Redacted(io.TextIOBase):
    """Writes to `file` what is written to it, without keys: a provider may quote one."""

    def __init__(self, file: io.FileIO) -> None:
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):  # the disk is full
            self._file.write(redact(text).encode("utf-8", "replace"))
        return len(text)


@contextlib.contextmanager
def _logging_to(stream: Any) -> Iterator[None]:
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    with contextlib.ExitStack() as replaced:
        for log in map(logging.getLogger, _LOGGERS):
            replaced.enter_context(_replaced(log, "handlers", [handler]))
            replaced.enter_context(_replaced(log, "propagate", False))
            replaced.callback(log.setLevel, log.level)
            log.setLevel(logging.INFO)
        yield
