"""Write logs: JSON lines in the folder of a run, and readable warnings on the terminal.

    log = logs.get(__name__)
    log.info("question ended", extra=logs.fields(calls=3, seconds=1.2))

A line has `time`, `level`, `event`, the `qid` of its question (if any), its fields, `logger`, and
`traceback` (if any). Keys are redacted. Warnings of libraries go only to the file.
"""

import json
import logging
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ragbench.context import current
from ragbench.paths import check_regular
from ragbench.redact import each_text, may_hold_key, redact

LOG = "log.jsonl"
LEVELS = ("debug", "info", "warning", "error")
#: Maximum number of times that the terminal shows an event. The file has all of them.
SHOWN = 3

#: A log file that is larger is not added to.
_MOST_LOG = 2**30
_FIELDS = "ragbench_fields"
_LIBRARIES = (
    "LiteLLM", "anthropic", "bm25s", "datasets", "dspy", "filelock", "fsspec", "gepa", "httpcore",
    "httpx", "huggingface_hub", "openai", "opentelemetry", "optuna", "py.warnings", "urllib3",
)  # fmt: skip
_ours = logging.getLogger("ragbench")
get = logging.getLogger


def fields(**values: Any) -> dict[str, Any]:
    """Return `values` as `extra=` of a log call: each becomes a field of the line."""
    return {_FIELDS: values}


def set_level(level: str) -> None:
    """Write lines of `level` (debug, info, warning, error) and above to log files."""
    _ours.setLevel(level.upper())


def get_level() -> str:
    """Return the current level, or the default level of a command."""
    return logging.getLevelName(_ours.level or logging.INFO).lower()


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
    if not any(isinstance(handler, _Terminal) for handler in _ours.handlers):
        _ours.addHandler(_Terminal())


@contextmanager
def log_to(path: Path) -> Iterator[None]:
    """Append log lines to `path` inside the block, including how the block ended.

    If the file cannot be written, ragbench logs one warning and continues.
    """
    if _ours.level == logging.NOTSET:
        set_level("info")
    handler: Any = logging.NullHandler()
    try:
        if path.is_symlink():
            raise OSError("it is a link")
        check_regular(path, _MOST_LOG)
        handler = _File(path, encoding="utf-8", errors="replace")
        if _is_cut_short(path):
            handler.stream.write("\n")
    except OSError as error:
        _ours.warning("cannot write %s (%s); continuing without it", path, error.strerror or error)
    logging.getLogger().addHandler(handler)
    logging.captureWarnings(True)
    start = time.monotonic()
    event = "finished"
    try:
        yield
    except KeyboardInterrupt:
        event = "interrupted"
        raise
    except BaseException:
        event = "stopped by an error"
        raise
    finally:
        seconds = round(time.monotonic() - start, 3)
        _ours.info(event, exc_info=event != "finished", extra=fields(seconds=seconds))
        logging.getLogger().removeHandler(handler)
        with suppress(OSError):
            handler.close()
        if not any(isinstance(handler, _File) for handler in logging.getLogger().handlers):
            logging.captureWarnings(False)


def _is_cut_short(path: Path) -> bool:
    """Return True if an interrupted process left an incomplete last line."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        return file.read(1) not in (b"", b"\n")


class _File(logging.FileHandler):
    """Appends a JSON line per record, after the end of one that a kill cut short.

    Once it is closed it stays so: a thread that is late would open the file again.
    """

    ended = False

    def close(self) -> None:
        self.ended = True
        super().close()

    def emit(self, record: logging.LogRecord) -> None:
        if not self.ended:
            super().emit(record)

    def format(self, record: logging.LogRecord) -> str:
        return as_json(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)
            return
        logging.getLogger().removeHandler(self)
        _ours.warning("cannot write %s; continuing without it", self.baseFilename)


class _Terminal(logging.Handler):
    """Shows a record as one line on whatever standard error is at the time."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._seen: Counter[tuple[str, str]] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        event = (record.name, str(record.msg))
        text = as_text(record)
        self._seen[event] += 1
        if self._seen[event] == SHOWN:
            text += " (more of these go to the log alone)"
        if self._seen[event] <= SHOWN:
            with suppress(OSError, ValueError):  # closed
                sys.stderr.write(text + "\n")


def as_json(record: logging.LogRecord) -> str:
    """Format `record` as a line of a log file, with keys redacted."""
    row: dict[str, Any] = {
        "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
        "level": record.levelname.lower(),
        "event": record.getMessage(),
        "qid": current().qid,
        **getattr(record, _FIELDS, {}),
        "logger": record.name,
    }
    if row["qid"] is None:
        del row["qid"]
    if record.exc_info:
        row["traceback"] = "".join(traceback.format_exception(record.exc_info[1]))
    line = json.dumps(row, ensure_ascii=False, default=str)
    if may_hold_key(line):
        row = each_text(redact, row)
        line = json.dumps(row, ensure_ascii=False, default=lambda value: redact(str(value)))
    return line


def as_text(record: logging.LogRecord) -> str:
    """Format `record` as a readable line: level, message, fields; no control characters."""
    row = json.loads(as_json(record))
    text = f"{row['level']}: {row['event']}"
    context = []
    for name in (*getattr(record, _FIELDS, {}), "qid"):
        if name in row:
            context.append(f"{'question' if name == 'qid' else name} {row[name]}")
    if context:
        text += f" ({', '.join(context)})"
    return "".join(c if c.isprintable() else " " for c in " ".join(text.split()))
