"""Reading data files; whatever is wrong with one becomes one DataError line.

The line names the file, the record (its number, and its id where it has one) and the field.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NoReturn, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    StrictStr,
    ValidationError,
)

from ragbench.errors import DataError

LINE_SUFFIXES = {".jsonl", ".ndjson"}


def _printable(value: str) -> str:
    if "\x00" in value:
        raise ValueError("holds a NUL character")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("holds half of a surrogate pair, which is no character") from None
    return value


def _not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("is empty")
    return value.strip()


def _number_to_text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


#: Any text, stripped of nothing.
Text = Annotated[StrictStr, AfterValidator(_printable)]
#: Text that says something; stripped.
Said = Annotated[Text, AfterValidator(_not_blank)]
#: An id: text, or a whole number that becomes text.
Id = Annotated[Said, BeforeValidator(_number_to_text)]


class Record(BaseModel):
    """What one record of a file must have; fields that are not named are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Row(NamedTuple):
    """A record as read: where it stands, for messages, and its content.

    `held_out` says that it is of the data set's official evaluation part.
    """

    where: str
    data: Any
    held_out: bool = False


Model = TypeVar("Model", bound=Record)


def read_text(path: Path) -> str:
    """The text of a UTF-8 file.

    Raises:
        DataError: there is no such file, it cannot be read, is empty, not UTF-8, or holds NULs.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise DataError(f"no such file: {path}") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text at byte {error.start}") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path itself
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: cannot be read ({reason})") from None
    if not text.strip():
        raise DataError(f"{path}: the file is empty")
    if "\x00" in text:
        raise DataError(f"{path}: holds a NUL byte at character {text.index(chr(0))}")
    return text


def read_json(path: Path) -> Any:
    """The value in a JSON file.

    Raises:
        DataError: the file cannot be read or is not whole JSON.
    """
    return _parse(read_text(path), str(path))


def read_rows(path: Path) -> Iterator[Row]:
    """The records of a JSON list, or of JSON lines, in order; blank lines are skipped.

    Raises:
        DataError: the file cannot be read, or is neither.
    """
    text = read_text(path)
    if path.suffix.lower() in LINE_SUFFIXES or _is_lines(text):
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                yield Row(f"{path}: line {number}", _parse(line, f"{path}: line {number}"))
        return
    records = _parse(text, str(path))
    if not isinstance(records, list):
        raise DataError(f"{path}: must hold a list of records, not {_kind(records)}")
    if not records:
        raise DataError(f"{path}: the list of records is empty")
    for number, record in enumerate(records, start=1):
        yield Row(f"{path}: record {number}", record)


def validate(model: type[Model], row: Row) -> Model:
    """The row as `model`.

    Raises:
        DataError: a field is missing or of the wrong type; names the row and the field.
    """
    if not isinstance(row.data, dict):
        raise DataError(f"{row.where}: must be an object, not {_kind(row.data)}")
    try:
        return model.model_validate(row.data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "record"
        message = (
            first["msg"].removeprefix("Value error, ").replace("\n", " ").replace("tuple", "list")
        )
        if first["type"] == "missing":
            message = "is missing"
        elif first["type"].endswith("_type"):
            message = f"{message}, not {_kind(first['input'])}"
        fail(row, field, message)


def fail(row: Row, field: str, message: str) -> NoReturn:
    """Raise a DataError that names the row, its id if it has one, and the field."""
    found = row.data.get("id", row.data.get("_id")) if isinstance(row.data, dict) else None
    known = f" (id {str(found)[:60]!r})" if isinstance(found, str | int) else ""
    raise DataError(f"{row.where}{known}: field {field!r}: {message}")


def _parse(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated"):
            raise DataError(f"{where}: the JSON ends in the middle; is the file whole?") from None
        place = f"line {error.lineno}, column {error.colno}"
        raise DataError(f"{where}: not JSON at {place} ({error.msg})") from None
    except RecursionError:
        raise DataError(f"{where}: the JSON is nested too deeply") from None
    except ValueError as error:  # a number of thousands of digits
        raise DataError(f"{where}: not JSON ({error})") from None


def _is_lines(text: str) -> bool:
    """Whether the first line is a whole object and another follows."""
    first, _, rest = text.strip().partition("\n")
    if not (first.startswith("{") and rest.strip()):
        return False
    try:
        return isinstance(json.loads(first), dict)
    except (ValueError, RecursionError):
        return False


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a number"}
    return "null" if value is None else names.get(type(value), type(value).__name__)
