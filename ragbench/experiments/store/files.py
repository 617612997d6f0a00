"""JSON files that are written in one step, and folders locked by one process at a time."""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from ragbench.errors import RunError
from ragbench.experiments.config import differing
from ragbench.logs import LOG, log_to
from ragbench.outputs import write_whole
from ragbench.paths import check_locks, make_folder, read_file

T = TypeVar("T")


def read_json(path: Path, kind: type[T]) -> T:
    """Read a JSON file as a model or a dataclass.

    Args:
        path: The file.
        kind: Expected type.

    Raises:
        RunError: The file is missing, not JSON, or not a `kind`.
    """
    try:
        return TypeAdapter(kind).validate_json(read_file(path))
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from None
    except ValidationError as error:
        raise RunError(f"cannot read {path}: {why_invalid(error)}") from None


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in `path`, or raise RunError."""
    return read_json(path, dict[str, Any])


def why_invalid(error: ValidationError) -> str:
    """Return the first fault of a value, such as "model is missing or wrong"."""
    fault = error.errors(include_url=False, include_input=False)[0]
    if fault["type"] == "json_invalid":
        return fault["msg"][:200]
    where = ".".join(str(step) for step in fault["loc"] if not str(step).startswith("function-"))
    if where:
        return f"{where} is missing or wrong"
    return "it is not a JSON object of its kind"


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a value as JSON in one step. See `write_whole`.

    Args:
        path: File to write.
        value: Value to store.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n"
    write_whole(path, text.encode("utf-8", "replace"))


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold `folder` for this process, creating it if necessary. The lock ends with the process.

    The folder itself is locked, so no lock file can be deleted. If a network file system does not
    lock folders, the database stops a writer that was taken over.

    Log lines go to `log.jsonl` in the folder. On exit, a newly created folder without other files
    is removed.

    Raises:
        RunError: Another process holds the folder, or it cannot be created.
    """
    created = []
    for path in (folder, *folder.parents):
        if not path.exists():
            created.append(path)
    with contextlib.ExitStack() as stack:
        try:
            make_folder(folder)
            handle = os.open(folder, os.O_RDONLY)
        except OSError as error:
            raise RunError(f"cannot use the run folder {folder}: {error.strerror}") from None
        stack.callback(os.close, handle)
        try:
            check_locks(folder)
        except OSError as error:
            raise RunError(
                f"cannot lock files in {folder}: {error.strerror}. Give --out on a file system "
                "with locks, such as a local disk"
            ) from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(
                f"{folder} is in use by another process; wait for it or give --out"
            ) from None
        except OSError:
            pass
        try:
            with log_to(folder / LOG):
                yield
        finally:
            with contextlib.suppress(OSError):
                if created and {path.name for path in folder.iterdir()} <= {LOG}:
                    (folder / LOG).unlink(missing_ok=True)
                    for path in created:
                        path.rmdir()  # Fails if the folder is not empty.


def check_same(
    folder: Path, noun: str, old_fields: Mapping[str, Any], new_fields: Mapping[str, Any]
) -> None:
    """Raise an error if a folder belongs to other settings. It names one difference.

    Args:
        folder: The folder.
        noun: Content of the folder, such as "a run".
        old_fields: Settings of the folder.
        new_fields: Settings of this command.

    Raises:
        RunError: The settings differ.
    """
    if changed := differing(old_fields, new_fields):
        key, old, new = min(changed, key=lambda change: isinstance(change[1], dict | list))
        if len(changed) > 1:
            further = f" (and {len(changed) - 1} more)"
        else:
            further = ""
        values = f"{key}={repr(old)[:80]}, not {repr(new)[:80]}"
        raise RunError(f"{folder} holds {noun} with {values}{further}; give another --out")


def is_claimed(path: Path, settings: Mapping[str, Any], noun: str) -> bool:
    """Return True if a file exists and marks its folder as one of these settings.

    Args:
        path: The marker file.
        settings: Settings of this command.
        noun: Content of the folder, such as "a run".

    Raises:
        RunError: The file has other settings or cannot be read.
    """
    if path.is_file():
        check_same(path.parent, noun, read_object(path), settings)
    return path.is_file()
