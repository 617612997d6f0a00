"""JSON files of ours, written in one step, and folders, which one process at a time works in."""

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
    """What the JSON file `path` holds, as a `kind`: a model or a dataclass.

    Raises:
        RunError: it is missing, is no JSON or no `kind`.
    """
    try:
        return TypeAdapter(kind).validate_json(read_file(path))
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from None
    except ValidationError as error:
        raise RunError(f"cannot read {path}: {why_invalid(error)}") from None


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in `path`; raises RunError where it is missing or holds none."""
    return read_json(path, dict[str, Any])


def why_invalid(error: ValidationError) -> str:
    """The first thing that is wrong with a value, such as "model is missing or wrong"."""
    fault = error.errors(include_url=False, include_input=False)[0]
    if fault["type"] == "json_invalid":
        return fault["msg"][:200]
    where = ".".join(str(step) for step in fault["loc"] if not str(step).startswith("function-"))
    if where:
        return f"{where} is missing or wrong"
    return "it is not a JSON object of its kind"


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write `value` as JSON; see `write_whole`."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n"
    write_whole(path, text.encode("utf-8", "replace"))


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold `folder` for this process, making it if need be; the lock dies with the process.

    The lock is of the folder itself, so that there is no file that somebody could delete. Where a
    network's file system locks no folders, the database ends a writer that was taken over.

    What is logged meanwhile goes to `log.jsonl` in the folder. A folder that was made and in which
    nothing else was written is removed again.

    Raises:
        RunError: another process holds it, or it cannot be made.
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
                        path.rmdir()  # fails where there is something in it


def check_same(
    folder: Path, noun: str, old_fields: Mapping[str, Any], new_fields: Mapping[str, Any]
) -> None:
    """Raise RunError where `folder` holds `noun`, such as "a run", of other fields than the new.

    It names one difference, of a plain value if there is one.
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
    """Whether the file `path` marks its folder as of these `settings`; False where there is none.

    Raises:
        RunError: the file marks it as of something else, or cannot be read.
    """
    if path.is_file():
        check_same(path.parent, noun, read_object(path), settings)
    return path.is_file()
