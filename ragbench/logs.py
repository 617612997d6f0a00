"""Logs: JSON lines in the folder of a run, and readable warnings on the terminal.

    log = logs.get(__name__)
    log.info("question ended", extra=logs.fields(calls=3, seconds=1.2))

A line has `time`, `level`, `event`, the `qid` of the question it belongs to (if any), its fields,
`logger`, and `traceback` where there is one. Keys are taken out of all of it. Libraries' warnings
go to the file and never to the terminal.
"""

import json
import logging
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from typing import Any

from ragbench.context import current
from ragbench.redact import each_text, redact

LOG = "log.jsonl"
LEVELS = ("debug", "info", "warning", "error")
#: The same event is shown on the terminal this often; the file has all of them.
SHOWN = 3

_ROOT = "ragbench"
_FIELDS = "ragbench_fields"
_LIBRARIES = (
    "LiteLLM", "anthropic", "bm25s", "datasets", "dspy", "filelock", "fsspec", "gepa", "httpcore",
    "httpx", "huggingface_hub", "openai", "optuna", "py.warnings", "urllib3",
)  # fmt: skip


def get(name: str) -> logging.Logger:
    """The logger called `name`, which must be below `ragbench`."""
    return logging.getLogger(name)


def fields(**values: Any) -> dict[str, Any]:
    """`values` as `extra=` of a log call: each is a field of the line."""
    return {_FIELDS: values}


def set_level(level: str) -> None:
    """Write lines of `level` (debug, info, warning, error) and above to log files."""
    logging.getLogger(_ROOT).setLevel(level.upper())


def get_level() -> str:
    """The level that is set, or the one of a command that sets none."""
    level = logging.getLogger(_ROOT).level
    return logging.getLevelName(level or logging.INFO).lower()


def quiet_libraries() -> None:
    """Keep libraries from writing to the terminal; a log file still gets their warnings."""
    for name in _LIBRARIES:
        logger = logging.getLogger(name)
        logger.setLevel(logging.WARNING)
        logger.propagate = True
        # Without any handler, the standard library would print warnings.
        logger.handlers[:] = [logging.NullHandler()]


def to_terminal() -> None:
    """Show warnings of ragbench on standard error, a line each."""
    logger = logging.getLogger(_ROOT)
    if not any(isinstance(handler, _Terminal) for handler in logger.handlers):
        logger.addHandler(_Terminal())


@contextmanager
def log_to(path: Path) -> Iterator[None]:
    """Inside the block, append what is logged to `path`, how the block ended included.

    A file that cannot be written costs one warning, never the run.
    """
    root = logging.getLogger()
    if logging.getLogger(_ROOT).level == logging.NOTSET:
        set_level("info")
    handler = _File(path)
    root.addHandler(handler)
    logging.captureWarnings(True)
    start = time.monotonic()
    try:
        yield
    except BaseException as error:
        event = "interrupted" if isinstance(error, KeyboardInterrupt) else "stopped by an error"
        get(__name__).info(event, exc_info=True, extra=fields(seconds=_since(start)))
        raise
    else:
        get(__name__).info("finished", extra=fields(seconds=_since(start)))
    finally:
        root.removeHandler(handler)
        handler.close()
        if not any(isinstance(other, _File) for other in root.handlers):
            logging.captureWarnings(False)


def _since(start: float) -> float:
    return round(time.monotonic() - start, 3)


def current_qid() -> str | None:
    """The id of the question that the calling thread works on, if any."""
    context = current()
    if context.qid is None and context.question is not None:
        return context.qids.get(context.question)
    return context.qid


_NO_LINK = getattr(os, "O_NOFOLLOW", 0)


class _File(logging.Handler):
    """Appends a JSON line per record; starts a new line after one that a kill cut short."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self._file: FileIO | None = None
        try:
            # A link in its place is not followed.
            handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | _NO_LINK, 0o666)
            self._file = FileIO(handle, "ab+")
            size = os.fstat(handle).st_size
            if size and os.pread(handle, 1, size - 1) != b"\n":
                self._file.write(b"\n")
        except OSError as error:
            self._give_up(error)

    def createLock(self) -> None:  # noqa: N802 - the name of the standard library
        # A line is one write to the end of the file: the system keeps lines apart. With a lock,
        # threads that wait for it took half of the time of a question whose calls are cached.
        self.lock = None

    def emit(self, record: logging.LogRecord) -> None:
        if (file := self._file) is None:
            return
        try:
            file.write(as_json(record))
        except OSError as error:
            if self._file is file:  # no other thread has given it up
                self._give_up(error)
        except ValueError:  # another thread has closed it
            pass

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()
        super().close()

    def _give_up(self, error: OSError) -> None:
        self.close()
        why = error.strerror or type(error).__name__
        get(__name__).warning("cannot write %s (%s); going on without it", self.path, why)


class _Terminal(logging.Handler):
    """Shows a record as one line on whatever standard error is at the time."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._seen: Counter[tuple[str, str]] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        event, text = (record.name, str(record.msg)), as_text(record)
        self._seen[event] += 1
        if self._seen[event] > SHOWN:
            return
        try:
            more = " (more of these go to the log alone)" if self._seen[event] == SHOWN else ""
            sys.stderr.write(text + more + "\n")
        except (OSError, ValueError):  # closed
            pass


def as_json(record: logging.LogRecord) -> bytes:
    """The line of `record` in a log file, newline included; no key is in it."""
    row: dict[str, Any] = {
        "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
        "level": record.levelname.lower(),
        "event": record.getMessage(),
        "qid": current_qid(),
        **getattr(record, _FIELDS, {}),
        "logger": record.name,
    }
    if row["qid"] is None:
        del row["qid"]
    if record.exc_info:
        row["traceback"] = "".join(traceback.format_exception(record.exc_info[1]))
    text = _dumped(row)
    if "\\" in text:  # in an escaped text, a key may not stand at the beginning of a word
        text = _dumped(each_text(redact, row))
    return redact(text).encode("utf-8", "replace") + b"\n"


def _dumped(row: Any) -> str:
    try:
        return json.dumps(row, ensure_ascii=False, default=lambda value: redact(str(value)))
    except Exception as error:  # a value that cannot even be shown
        kept = {name: row[name] for name in ("time", "level", "event", "logger")}
        return json.dumps({**kept, "unshown": type(error).__name__}, ensure_ascii=False)


def as_text(record: logging.LogRecord) -> str:
    """`record` for a person: level, message, fields, question; one line, no control characters."""
    qid = current_qid()
    given = getattr(record, _FIELDS, {})
    shown = [f"{name} {value}" for name, value in given.items() if name != "card"]
    shown += [f"question {qid}"] if qid is not None else []
    text = f"{record.levelname.lower()}: {record.getMessage()}"
    text += f" ({', '.join(shown)})" if shown else ""
    return "".join(c if c.isprintable() else " " for c in " ".join(redact(text).split()))
