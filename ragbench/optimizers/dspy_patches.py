"""Changes to DSPy's optimizers that no setting makes, and their private parts.

Inside `logged_to`, optimizers write to a file instead of the terminal, and do not resubmit slow
questions. Both apply to the whole process until the block ends.
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
    """Redirect the output and logs of optimizers to `log_file` inside the block, in append mode.

    If the file cannot be written, the output is lost and the search continues. DSPy does not
    resubmit questions inside the block.
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
    """Stop `dspy.Evaluate` and `dspy.Parallel` from resubmitting slow questions inside the block.

    DSPy resubmits a question after 120 s if few are left. This costs twice, can outlive the run,
    and has no setting.
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
    """A text stream that writes to `file` without keys, which a provider may quote."""

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
