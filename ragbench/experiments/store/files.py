"""JSON files of ours: read into a type, written in one step."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from ragbench.errors import RunError
from ragbench.paths import sync

_SUM = "sum"

T = TypeVar("T")

#: A new file, which nothing may stand in the place of; its mode follows the umask.
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)


def check_output(path: Path) -> None:
    """Do nothing unless `path` is a file of a run or of a compiled program: no place for output.

    Raises:
        RunError: it is one.
    """
    cards = (path.with_name(name) for name in ("card.json", "sidecar.json"))
    if path.suffix in (".json", ".db") and path.exists() and any(map(Path.is_file, cards)):
        raise RunError(f"{path} is a file of {path.parent}; write to another")


def read_json(path: Path, kind: type[T]) -> T:
    """What the JSON file `path` holds, as a `kind`: a model or a dataclass.

    Raises:
        RunError: it is missing, is no JSON, was changed after it was sealed, or lacks what a `kind`
            has.
    """
    try:
        content = path.read_bytes()
        value = TypeAdapter(kind).validate_json(content)
        if not _is_sealed(content):
            raise RunError(
                f"{path} was changed after it was written; put it back, or see what "
                f"`ragbench doctor {path.parent}` advises"
            )
        return value
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from None
    except ValidationError as error:
        raise RunError(f"cannot read {path}: {why_invalid(error)}") from None


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in `path`.

    Raises:
        RunError: it is missing or holds none.
    """
    return read_json(path, dict[str, Any])


def why_invalid(error: ValidationError) -> str:
    """The first thing that is wrong with a value, such as "model is missing or wrong"."""
    first = error.errors(include_url=False, include_input=False)[0]
    if first["type"] == "json_invalid":
        return first["msg"][:200]
    where = ".".join(str(part) for part in first["loc"] if not str(part).startswith("function-"))
    return f"{where} is missing or wrong" if where else "it is not a JSON object of its kind"


def _is_sealed(content: bytes) -> bool:
    """Whether the checksum of a JSON object is right; one without a checksum passes."""
    if _SUM.encode() not in content[-64:]:
        return True
    value = json.loads(content)
    return not isinstance(value, dict) or value.pop(_SUM, None) == _digest(value)


def _digest(value: Mapping[str, Any]) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of `value` as JSON with sorted keys."""
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def write_json(path: Path, value: Mapping[str, Any], *, sealed: bool = False) -> None:
    """Write `value` as JSON in one step: a reader sees the old file or the new one.

    With `sealed` it ends with a checksum, which `read_json` compares.

    Raises:
        RunError: the folder cannot be written.
    """
    content = as_json(value)
    if sealed:
        content = as_json({**value, _SUM: _digest(json.loads(content))})
    write_whole(path, content)


def as_json(value: Mapping[str, Any]) -> bytes:
    """The bytes of a JSON file that holds `value`."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n"
    return text.encode("utf-8", "replace")


def write_whole(path: Path, content: bytes | Iterable[bytes]) -> None:
    """Write `content`, or its parts, in one step: a reader sees the old file or the new one.

    What was written is fsynced. A link in the place of `path` is replaced, never followed.

    Raises:
        RunError: the folder cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(os.open(temporary, _NEW, 0o666), "wb") as file:
            file.writelines([content] if isinstance(content, bytes) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync(path.parent)
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}") from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
