"""What DSPy's optimizers do that no setting changes, and the parts of it that are not public.

Inside `logged_to` they write to a file instead of the terminal, and ask no slow question twice;
inside `lenient_proposals` an instruction that cannot be proposed is left out.
"""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dspy import AdapterParseError, LMError

from ragbench.dspy_private import private
from ragbench.redact import redact

_LOGGERS = ("dspy", "optuna", "gepa")


@contextlib.contextmanager
def logged_to(log_file: Path) -> Iterator[None]:
    """Inside the block, what optimizers print, log and draw goes to `log_file`, appended.

    Evaluate and Parallel resubmit a question that takes 120 s when few are left, again and again,
    and offer no setting for it; that is off inside the block.
    """
    with (
        _appending(log_file) as file,
        contextlib.nullcontext(_Redacted(file)) as stream,
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
    patched, feature = "ParallelExecutor", "compile"
    original = private("dspy.utils.parallelizer.ParallelExecutor", feature)
    names = ("dspy.evaluate.evaluate", "dspy.predict.parallel")
    modules = [private(name, feature) for name in names]

    @functools.wraps(original)
    def without_timeout(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **{**kwargs, "timeout": 0})

    for module in modules:
        setattr(module, patched, without_timeout)
    try:
        yield
    finally:
        for module in modules:
            setattr(module, patched, original)


@contextlib.contextmanager
def lenient_proposals(lost: Callable[[Exception], None]) -> Iterator[None]:
    """Inside the block, MIPRO keeps the present instruction where none can be proposed.

    DSPy's ends with the first proposal that fails, however late; here `lost` is told of it.
    """

    class Proposer(private("dspy.propose.GroundedProposer", "mipro")):  # type: ignore[misc]
        def propose_instruction_for_predictor(self, **given: Any) -> str:
            try:
                return str(super().propose_instruction_for_predictor(**given))
            except (AdapterParseError, LMError) as error:
                lost(error)
                return str(given["predictor"].signature.instructions)

    module = private("dspy.teleprompt.mipro_optimizer_v2", "mipro")
    original = module.GroundedProposer
    module.GroundedProposer = Proposer
    try:
        yield
    finally:
        module.GroundedProposer = original


def _appending(log_file: Path) -> io.FileIO:
    """`log_file`, to be appended to; nothing where it cannot be: no search fails for its log."""
    try:
        log_file.parent.mkdir(parents=True, exist_ok=True)
        return io.FileIO(log_file, "a")
    except OSError:
        return io.FileIO(os.devnull, "a")


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
