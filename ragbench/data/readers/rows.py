"""The records of a file, by its ending: JSON, JSON lines, CSV, TSV or Parquet."""

from __future__ import annotations

import contextlib
import csv
import json
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ragbench.data.readers.records import Row, kind_of
from ragbench.errors import DataError, needs_extra

LINE_SUFFIXES = {".jsonl", ".ndjson"}
TABLE_SUFFIXES = {".csv": ",", ".tsv": "\t"}
_ROWS_AT_ONCE = 5_000


def read_rows(path: Path) -> Iterator[Row]:
    """The records of a file, in order: of a JSON list, of lines, or of a table.

    JSON lines and tables are read piece by piece, so a file of gigabytes will do. Blank lines are
    skipped. In a CSV file an empty cell is an absent field, and a cell that begins with a bracket
    and is JSON is that list or object.

    Raises:
        DataError: the file cannot be read, or is not of its format.
    """
    check_regular(path)
    suffix = path.suffix.lower()
    if suffix in TABLE_SUFFIXES:
        return _csv_rows(path, TABLE_SUFFIXES[suffix])
    if suffix == ".parquet":
        return _parquet_rows(path)
    if suffix in LINE_SUFFIXES:
        return _line_rows(path)
    return _json_rows(path)


def is_streamed(path: Path) -> bool:
    """Whether `read_rows` reads a file of this ending piece by piece."""
    suffix = path.suffix.lower()
    return suffix in LINE_SUFFIXES or suffix in TABLE_SUFFIXES or suffix == ".parquet"


def count_rows(path: Path) -> int | None:
    """About how many records a file has, by its lines or by its own count; None where unknown.

    Raises:
        DataError: the file cannot be read.
    """
    suffix = path.suffix.lower()
    with _reading(path):
        if suffix == ".parquet":
            with needs_extra(str(path)):
                import pyarrow.parquet
            return int(pyarrow.parquet.read_metadata(path).num_rows)
        if suffix in LINE_SUFFIXES:
            with path.open("rb") as file:
                return sum(part.count(b"\n") for part in iter(lambda: file.read(1 << 20), b""))
    return None


def read_json(path: Path) -> Any:
    """The value in a JSON file.

    Raises:
        DataError: the file cannot be read or is not whole JSON.
    """
    check_regular(path)
    return _parse(_read_text(path), str(path))


def check_regular(path: Path) -> None:
    """Do nothing if `path` is a file; a pipe or a device would be waited for.

    Raises:
        DataError: it is not.
    """
    with _reading(path):
        path.stat()
    if path.is_dir():
        raise DataError(f"{path}: cannot be read (it is a folder)")
    if not path.is_file():
        raise DataError(f"{path}: cannot be read (it is no regular file)")


def _read_text(path: Path) -> str:
    with _reading(path):
        text = path.read_bytes().decode("utf-8-sig")
    if not text.strip():
        raise DataError(f"{path}: the file is empty")
    if "\x00" in text:
        raise DataError(f"{path}: holds a NUL byte at character {text.index(chr(0))}")
    return text


def _json_rows(path: Path) -> Iterator[Row]:
    text = _read_text(path)
    if _is_lines(text):
        yield from _line_rows(path)
        return
    records = _parse(text, str(path))
    if not isinstance(records, list):
        raise DataError(f"{path}: must hold a list of records, not {kind_of(records)}")
    if not records:
        raise DataError(f"{path}: the list of records is empty")
    for number, record in enumerate(records, start=1):
        yield Row(f"{path}: record {number}", record)


def _line_rows(path: Path) -> Iterator[Row]:
    empty = True
    with _reading(path), path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            where = f"{path}: line {number}"
            if b"\x00" in line:
                raise DataError(f"{where}: holds a NUL byte")
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            if text.strip():
                empty = False
                yield Row(where, _parse(text, where))
    if empty:
        raise DataError(f"{path}: the file is empty")


def _csv_rows(path: Path, separator: str) -> Iterator[Row]:
    with needs_extra(str(path)):
        import pandas as pd  # half a second, and only tables need it

    with path.open("rb") as file:
        head = file.readline()
    if b";" in head and separator.encode() not in head:
        separator = ";"  # as spreadsheets write it where the comma is a decimal point
    with contextlib.suppress(csv.Error):  # a name of more than 128 KB
        names = csv.reader([head.decode("utf-8-sig", "replace")], delimiter=separator)
        _check_names(path, next(names, []))
    settings = {"sep": separator, "dtype": str, "keep_default_na": False, "na_values": [""]}
    settings |= {"index_col": False, "encoding": "utf-8-sig", "chunksize": _ROWS_AT_ONCE}
    number = 0
    try:
        with _reading(path), pd.read_csv(path, **settings) as table:
            while (part := _next_part(table)) is not None:
                for record in part.to_dict("records"):
                    number += 1
                    cells = {name: _cell(v) for name, v in record.items() if isinstance(v, str)}
                    yield Row(f"{path}: record {number}", cells)
    except pd.errors.EmptyDataError:
        raise DataError(f"{path}: the file is empty") from None
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        raise DataError(f"{path}: not a table ({_first_line(error)})") from None
    if not number:
        raise DataError(f"{path}: has a head and no records")


def _check_names(path: Path, names: Sequence[str]) -> None:
    if twice := _doubled(filter(None, names)):
        raise DataError(f"{path}: has two columns named {twice[:80]!r}; rename or remove one")


def _doubled(names: Iterable[str]) -> str:
    """The first name that comes a second time; empty where none does."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return ""


def _next_part(table: Any) -> Any:
    """The next rows of a table, None after the last; a row that is too long is an error."""
    import pandas as pd

    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        return next(table, None)


def _parquet_rows(path: Path) -> Iterator[Row]:
    with needs_extra(str(path)):
        import pyarrow as pa
        import pyarrow.parquet as pq

    number = 0
    try:
        with _reading(path), pq.ParquetFile(path) as file:
            _check_names(path, file.schema_arrow.names)
            for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE):
                for record in batch.to_pylist():
                    number += 1
                    known = {name: value for name, value in record.items() if value is not None}
                    yield Row(f"{path}: record {number}", known)
    except pa.ArrowException as error:
        raise DataError(f"{path}: not a Parquet file ({_first_line(error)})") from None
    if not number:
        raise DataError(f"{path}: has no records")


def _cell(text: str) -> Any:
    if text[:1] in ("[", "{"):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    return text


def _parse(text: str, where: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_fields)
    except json.JSONDecodeError as error:
        if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated"):
            raise DataError(f"{where}: the JSON ends in the middle; is the file whole?") from None
        place = f"line {error.lineno}, column {error.colno}"
        raise DataError(f"{where}: not JSON at {place} ({error.msg})") from None
    except RecursionError:
        raise DataError(f"{where}: the JSON is nested too deeply") from None
    except ValueError as error:  # a number of thousands of digits, or from `_fields`
        raise DataError(f"{where}: not JSON ({error})") from None


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        twice = _doubled(name for name, _ in pairs)
        raise ValueError(f"the field {twice[:80]!r} stands twice in an object")
    return fields


def _is_lines(text: str) -> bool:
    """Whether the first line is a whole object and another follows."""
    first, _, rest = text.strip().partition("\n")
    if not (first.startswith("{") and rest.strip()):
        return False
    try:
        return isinstance(json.loads(first), dict)
    except (ValueError, RecursionError):
        return False


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn what reading raises into one line."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"no such file: {path}") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text at byte {error.start}") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path itself
        reason = getattr(error, "strerror", None) or _first_line(error)
        raise DataError(f"{path}: cannot be read ({reason})") from None


def _first_line(error: Exception | Warning) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:160]
