"""Reading data files: JSON, JSON lines, CSV, TSV and Parquet, record by record.

Whatever is wrong with a file becomes one DataError line that names the file, the record (its
number, and its id where it has one) and the field.
"""

import contextlib
import csv
import html
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, NoReturn, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    StrictStr,
    ValidationError,
)

from ragbench.errors import DataError, needs_extra

_LINES = {".jsonl", ".ndjson"}
_TABLES = {".csv": ",", ".tsv": "\t"}
#: Endings of the files that `read_rows` reads piece by piece.
STREAMED = frozenset({*_LINES, *_TABLES, ".parquet"})
_ROWS_AT_ONCE = 5_000
#: Characters of a message: what it quotes may be of any length.
_LONGEST = 500
_ENTITY = re.compile(r"&(?:#\d+|#[xX][0-9a-fA-F]+|\w+);")


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


def decoded(text: str) -> str:
    """`text` with its HTML entities as characters: `&amp;` as `&`. `&amp;lt;` becomes `&lt;`."""
    return _ENTITY.sub(lambda entity: html.unescape(entity[0]), text)


def _whole_number_to_text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _value_to_text(value: Any) -> Any:
    """A number as people write it, true and false as yes and no."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"is {value}, which is no answer")
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e15
    return str(int(value) if whole else value) if isinstance(value, int | float) else value


def as_answers(value: Any) -> Any:
    """A single answer as a list of one; an absent one as none."""
    if value is None:
        return ()
    return value if isinstance(value, list | tuple) else (value,)


_Plain = Annotated[StrictStr, AfterValidator(_printable)]
#: Any text, stripped of nothing, HTML entities decoded.
Text = Annotated[_Plain, AfterValidator(decoded)]
#: Text with something in it; stripped.
NonBlank = Annotated[Text, AfterValidator(_not_blank)]
#: An id: text as it stands, or a whole number that becomes text.
Id = Annotated[_Plain, AfterValidator(_not_blank), BeforeValidator(_whole_number_to_text)]
#: An answer: text, a number, or true or false, which becomes yes or no.
Answer = Annotated[NonBlank, BeforeValidator(_value_to_text)]
Answers = Annotated[tuple[Answer, ...], BeforeValidator(as_answers)]


class Record(BaseModel):
    """What one record of a file must have; fields that are not named are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    #: Whether the user can name another field to read one from (`--field`).
    renamed: ClassVar[bool] = False


Model = TypeVar("Model", bound=Record)


class Row(NamedTuple):
    """A record as read: its place in the file, for messages, and its content.

    `split` is the split that the record belongs to, where the data set or the user says so.
    """

    where: str
    data: Any
    split: Literal["train", "validation", "test"] | None = None


def validate(model: type[Model], row: Row) -> Model:
    """The row as `model`; a DataError names a field that is missing or of the wrong type."""
    if not isinstance(row.data, dict):
        raise DataError(f"{row.where}: must be an object, not {kind_of(row.data)}")
    try:
        return model.model_validate(row.data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
    field = ".".join(str(part) for part in first["loc"]) or "record"
    message = first["msg"].removeprefix("Value error, ").replace("\n", " ").replace("tuple", "list")
    if first["type"] == "missing":
        message = "is missing"
        if model.renamed and "." not in field:
            known = ", ".join(map(str, row.data))[:200]
            message += f"; there are {known}: give --field {field}=NAME to read one of these"
    elif first["type"].endswith("_type"):
        message = f"{message}, not {kind_of(first['input'])}"
    fail(row, field, message)


def fail(row: Row, field: str, message: str) -> NoReturn:
    """Raise a DataError that names the row, its id if it has one, and the field."""
    given = row.data.get("id", row.data.get("_id")) if isinstance(row.data, dict) else None
    known = f" (id {str(given)[:60]!r})" if isinstance(given, str | int) else ""
    if len(message) > _LONGEST:
        message = f"{message[:_LONGEST]}..."
    raise DataError(f"{row.where}{known}: field {field!r}: {message}")


def map_fields(row: Row, names: Mapping[str, str]) -> Row:
    """The row with our fields taken from the user's: `names` maps ours to theirs.

    A dot in a name steps into an object: `answer.value`. A field that is taken from is not read
    under its own name too. DataError where the record has no such field.
    """
    if not names or not isinstance(row.data, dict):
        return row
    taken = {ours: _get(row, theirs) for ours, theirs in names.items()}
    used = {part for name in names.values() for part in (name, name.partition(".")[0])}
    rest = {name: value for name, value in row.data.items() if name not in used}
    return row._replace(data={**rest, **taken})


def _get(row: Row, name: str) -> Any:
    if name in row.data:
        return row.data[name]
    value: Any = row.data
    for part in name.split("."):
        if not isinstance(value, dict) or part not in value:
            known = ", ".join(sorted(map(str, row.data)))[:200]
            raise DataError(f"{row.where}: has no field {name!r}; it has {known}")
        value = value[part]
    return value


def kind_of(value: Any) -> str:
    """The JSON type of `value`, for people."""
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false"}
    names |= {int: "a number", float: "a number", type(None): "null"}
    return names.get(type(value), type(value).__name__)


def read_rows(path: Path) -> Iterator[Row]:
    """The records of a file, in order: of a JSON list, of lines, or of a table.

    JSON lines and tables are read piece by piece, so a file of gigabytes will do. Blank lines are
    skipped. In a table an empty cell is an absent field, and a cell that begins with a bracket and
    is JSON is that list or object. DataError where the file cannot be read or is malformed.
    """
    check_regular(path)
    suffix = path.suffix.lower()
    if suffix in _TABLES:
        records = _table_rows(path, _TABLES[suffix])
    elif suffix == ".parquet":
        records = _parquet_rows(path)
    else:
        records = _line_rows(path) if suffix in _LINES else _json_rows(path)
    empty = True
    for row in records:
        empty = False
        yield row
    if empty:
        raise DataError(f"{path}: is empty: it holds no record")


def read_json(path: Path) -> Any:
    """The value in a JSON file; DataError where it cannot be read or is not whole JSON."""
    check_regular(path)
    return _parse(read_text(path), str(path))


def read_text(path: Path) -> str:
    """The text of a UTF-8 file; DataError where it cannot be read."""
    with _reading(path):
        text = path.read_bytes().decode("utf-8-sig")
    if "\x00" in text:
        raise DataError(f"{path}: holds a NUL byte at character {text.index(chr(0))}")
    return text


def check_regular(path: Path) -> None:
    """DataError where `path` is no regular file: a pipe or a device would be waited for."""
    with _reading(path):
        path.stat()
    if not path.is_file():
        what = "a folder" if path.is_dir() else "no regular file"
        raise DataError(f"{path}: cannot be read (it is {what})")


def _json_rows(path: Path) -> Iterator[Row]:
    text = read_text(path)
    if not text.strip() or _is_lines(text):
        return _line_rows(path)
    records = _parse(text, str(path))
    if not isinstance(records, list):
        raise DataError(f"{path}: must hold a list of records, not {kind_of(records)}")
    return (Row(f"{path}: record {n}", record) for n, record in enumerate(records, start=1))


def _is_lines(text: str) -> bool:
    """Whether the first line is a whole object and another follows."""
    first, _, rest = text.strip().partition("\n")
    with contextlib.suppress(ValueError, RecursionError):
        return bool(rest.strip()) and isinstance(json.loads(first), dict)
    return False


def _line_rows(path: Path) -> Iterator[Row]:
    with _reading(path), path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            where = f"{path}: line {number}"
            if b"\x00" in line:
                raise DataError(f"{where}: holds a NUL byte")
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            if text.strip():
                yield Row(where, _parse(text, where))


def _table_rows(path: Path, separator: str) -> Iterator[Row]:
    csv.field_size_limit(2**31 - 1)  # a cell may hold a whole document
    try:
        with _reading(path), path.open(encoding="utf-8-sig", newline="") as file:
            head = file.readline()
            if ";" in head and separator not in head:
                separator = ";"  # as spreadsheets write it where the comma is a decimal point
            file.seek(0)
            table = csv.DictReader(file, delimiter=separator, strict=True)
            _check_names(path, table.fieldnames or ())
            for number, record in enumerate(table, start=1):
                if None in record:
                    raise DataError(f"{path}: record {number} has more cells than the head")
                cells = {name: _cell(value) for name, value in record.items() if value}
                yield Row(f"{path}: record {number}", cells)
    except csv.Error as error:
        raise DataError(f"{path}: not a table ({_first_line(error)})") from None


def _cell(text: str) -> Any:
    if text[:1] in ("[", "{"):
        with contextlib.suppress(ValueError, RecursionError):
            return json.loads(text)
    return text


def _parquet_rows(path: Path) -> Iterator[Row]:
    with needs_extra(str(path)):
        import pyarrow as pa
        import pyarrow.parquet as pq

    try:
        with _reading(path), pq.ParquetFile(path) as file:
            _check_names(path, file.schema_arrow.names)
            batches = (each.to_pylist() for each in file.iter_batches(batch_size=_ROWS_AT_ONCE))
            for number, record in enumerate(chain.from_iterable(batches), start=1):
                known = {name: value for name, value in record.items() if value is not None}
                yield Row(f"{path}: record {number}", known)
    except pa.ArrowException as error:
        raise DataError(f"{path}: not a Parquet file ({_first_line(error)})") from None


def _check_names(path: Path, names: Iterable[str]) -> None:
    for name, uses in Counter(filter(None, names)).most_common(1):
        if uses > 1:
            raise DataError(f"{path}: has two columns named {name[:80]!r}; rename or remove one")


def _parse(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # RecursionError: nested too deeply
        raise DataError(f"{where}: not whole JSON ({_first_line(error)})") from None


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn what reading raises into one line."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(
            f"no such file: {path}; paths are of the working folder, {Path.cwd()}"
        ) from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text at byte {error.start}") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path itself
        reason = getattr(error, "strerror", None) or _first_line(error)
        raise DataError(f"{path}: cannot be read ({reason})") from None


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:160]
