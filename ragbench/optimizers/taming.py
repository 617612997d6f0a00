"""Keeps DSPy's optimizers from writing to the terminal and from asking slow questions twice."""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import dspy.evaluate.evaluate as dspy_evaluate
import dspy.predict.parallel as dspy_parallel
from dspy.utils.parallelizer import ParallelExecutor

from ragbench.redact import redact

_LOGGERS = ("dspy", "optuna", "gepa")


@contextlib.contextmanager
def tamed(log_file: Path) -> Iterator[None]:
    """Inside the block, what optimizers print, log and draw goes to `log_file`, appended.

    Evaluate and Parallel resubmit a question that takes 120 s when few are left, again and again,
    and offer no setting for it; that is off inside the block.
    """
    log_file.parent.mkdir(parents=True, exist_ok=True)
    with (
        log_file.open("a", encoding="utf-8", errors="replace", buffering=1) as file,
        contextlib.nullcontext(_Redacted(file)) as stream,
        contextlib.redirect_stdout(stream),
        contextlib.redirect_stderr(stream),
        warnings.catch_warnings(),
        _logging_to(stream),
        _no_stragglers(),
    ):
        warnings.simplefilter("ignore")
        yield


class _Redacted(io.TextIOBase):
    """Writes to `file` what is written to it, without keys: a provider may quote one."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self._file.write(redact(text))
        return len(text)

    def flush(self) -> None:
        self._file.flush()


@contextlib.contextmanager
def _logging_to(stream: Any) -> Iterator[None]:
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    before = [(log.handlers[:], log.level, log.propagate) for log in loggers]
    for log in loggers:
        log.handlers[:], log.propagate = [handler], False
        log.setLevel(logging.INFO)
    try:
        yield
    finally:
        for log, (handlers, level, propagate) in zip(loggers, before, strict=True):
            log.handlers[:], log.propagate = handlers, propagate
            log.setLevel(level)


@contextlib.contextmanager
def _no_stragglers() -> Iterator[None]:
    modules: list[Any] = [dspy_evaluate, dspy_parallel]
    before = [module.ParallelExecutor for module in modules]
    for module in modules:
        module.ParallelExecutor = _without_timeout
    try:
        yield
    finally:
        for module, original in zip(modules, before, strict=True):
            module.ParallelExecutor = original


@functools.wraps(ParallelExecutor)
def _without_timeout(*args: Any, **kwargs: Any) -> ParallelExecutor:
    return ParallelExecutor(*args, **{**kwargs, "timeout": 0})
