"""Read data files record by record: JSON, JSON lines, CSV, TSV, Excel and Parquet.

Each problem of a file becomes a one-line DataError that names the file and the record.
"""

import contextlib
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ragbench.data.tables import Rows, excel_rows, parquet_rows, text_rows
from ragbench.data.text_files import check_regular, first_line, opened, read_text
from ragbench.errors import DataError

#: Endings of unsupported files -> advice.
_OTHER = {
    ".xls": "save it as .xlsx",
    ".ods": "save it as .xlsx or .csv",
    ".gz": "unpack it by `gunzip -k FILE`",
    ".bz2": "unpack it by `bunzip2 -k FILE`",
    ".xz": "unpack it by `unxz -k FILE`",
    ".zst": "unpack it by `unzstd FILE`",
    ".zip": "unpack it by `unzip FILE`",
    ".arrow": "write it by `Dataset.to_parquet`",
}
_KINDS = {
    "dict": "an object",
    "list": "a list",
    "str": "text",
    "bool": "true or false",
    "int": "a number",
    "float": "a number",
    "NoneType": "null",
}
#: Endings of the files that `read_rows` streams.
STREAMED = frozenset({".jsonl", ".ndjson", ".csv", ".tsv", ".tab", ".parquet"})


class Row(NamedTuple):
    """Record as it was read.

    Attributes:
        where: Position in the file, for messages.
        data: Content.
        split: Split of the record, if the data set or the user assigns one.
    """

    where: str
    data: Any
    split: Literal["train", "validation", "test"] | None = None


def kind_of(value: Any) -> str:
    """Return the JSON type of `value`, for messages."""
    name = "str" if isinstance(value, str) else type(value).__name__
    return _KINDS.get(name, name)


def read_rows(path: Path, encoding: str = "") -> Iterator[Row]:
    """Yield the records of a JSON list, of lines or of a table, in order.

    JSON lines and tables are streamed, so a file may have gigabytes.

    Args:
        path: File.
        encoding: Encoding of a text that is neither UTF-8 nor UTF-16 with its mark.

    Raises:
        DataError: The file cannot be read, is malformed, or changed while it was read.
    """
    suffix = path.suffix.lower()
    if suffix in _OTHER:
        raise DataError(f"{path}: {suffix} files are not supported; {_OTHER[suffix]}")
    before = check_regular(path)
    empty = True
    for place, record in _READERS.get(suffix, _json_rows)(path, encoding):
        empty = False
        yield Row(f"{path}: {place}", record)
    if empty:
        raise DataError(f"{path}: the file has no records")
    if check_regular(path) != before:
        raise DataError(f"{path}: changed while it was read; run this again when it is whole")


def read_json(path: Path, encoding: str = "") -> Any:
    """Return the value in a JSON file.

    Args:
        path: File to read.
        encoding: Encoding of the file. Empty: detected.

    Raises:
        DataError: The file is not complete JSON.
    """
    check_regular(path)
    return _parse(read_text(path, encoding), str(path))


def _json_rows(path: Path, encoding: str) -> Rows:
    text = read_text(path, encoding)
    if not text.strip() or _is_lines(text):
        return _line_rows(path, encoding)
    records = _parse(text, str(path))
    if isinstance(records, dict):  # A single list of objects may be within an object.
        lists = [value for value in records.values() if isinstance(value, list) and value]
        if len(lists) == 1 and isinstance(lists[0][0], dict):
            records = lists[0]
    if not isinstance(records, list):
        raise DataError(f"{path}: must hold a list of records, not {kind_of(records)}")
    return ((f"record {n}", record) for n, record in enumerate(records, start=1))


def _is_lines(text: str) -> bool:
    """Return True if the first line is a complete object and another line follows."""
    line, _, remainder = text.strip().partition("\n")
    with contextlib.suppress(ValueError, RecursionError):
        return bool(remainder.strip()) and isinstance(json.loads(line), dict)
    return False


def _line_rows(path: Path, encoding: str) -> Rows:
    with opened(path, encoding, "\n") as file:
        for number, line in enumerate(file, start=1):
            where = f"{path}: line {number}"
            if "\x00" in line:
                raise DataError(f"{where}: holds a NUL byte")
            text = line.removeprefix("\ufeff") if number == 1 else line
            if text.strip():
                yield f"line {number}", _parse(text, where)


def _parse(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # RecursionError: nested too deeply
        raise DataError(f"{where}: not whole JSON ({first_line(error)})") from None


#: Ending -> function of a file and its encoding. Files with other endings are read as JSON.
_READERS: dict[str, Callable[[Path, str], Rows]] = {
    ".jsonl": _line_rows,
    ".ndjson": _line_rows,
    ".csv": partial(text_rows, separator=","),
    ".tsv": partial(text_rows, separator="\t"),
    ".tab": partial(text_rows, separator="\t"),
    ".parquet": parquet_rows,
    ".xlsx": excel_rows,
    ".xlsm": excel_rows,
}
