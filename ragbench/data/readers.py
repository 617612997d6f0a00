"""Reading data files: JSON, JSON lines, CSV, TSV, Excel and Parquet, record by record.

Whatever is wrong with a file becomes one DataError line that names the file and the record.
"""

import codecs
import contextlib
import csv
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple, TextIO

from ragbench.data.values import Cell, plain
from ragbench.errors import DataError, needs_extra

_LINES = {".jsonl", ".ndjson"}
_TABLES = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
_EXCEL = {".xlsx", ".xlsm"}
#: Endings of files of tables that are not read, and what to make of them.
_OTHER_TABLES = {".xls": "save it as .xlsx", ".ods": "save it as .xlsx or .csv"}
_KINDS = {
    "dict": "an object",
    "list": "a list",
    "str": "text",
    "bool": "true or false",
    "int": "a number",
    "float": "a number",
    "NoneType": "null",
}
#: Endings of the files that `read_rows` reads piece by piece.
STREAMED = frozenset({*_LINES, *_TABLES, ".parquet"})
_ROWS_AT_ONCE = 5_000
#: Bytes of a file that its likely coding is judged by.
_JUDGED_BYTES = 200_000


class Row(NamedTuple):
    """A record as read: its place in the file, for messages, and its content.

    `split` is the split that the record belongs to, where the data set or the user says so.
    """

    where: str
    data: Any
    split: Literal["train", "validation", "test"] | None = None


def kind_of(value: Any) -> str:
    """Returns the JSON type of `value`, for people."""
    name = "str" if isinstance(value, str) else type(value).__name__
    return _KINDS.get(name, name)


def read_rows(path: Path, encoding: str = "") -> Iterator[Row]:
    """Yields the records of a file, in order: of a JSON list, of lines, or of a table.

    JSON lines and tables are read piece by piece, so a file of gigabytes will do. Blank lines are
    skipped; in a table an empty cell is None. A text is UTF-8, or in `encoding` where it is not.

    Raises:
        DataError: the file cannot be read, is malformed, or changed while it was read.
    """
    before = check_regular(path)
    if encoding and _is_utf8(path):
        encoding = ""
    suffix = path.suffix.lower()
    if suffix in _OTHER_TABLES:
        raise DataError(f"{path}: {suffix} files are not read; {_OTHER_TABLES[suffix]}")
    if suffix in _TABLES:
        records = _table_rows(path, _TABLES[suffix], encoding)
    elif suffix == ".parquet":
        records = _parquet_rows(path)
    elif suffix in _EXCEL:
        records = _excel_rows(path)
    elif suffix in _LINES:
        records = _line_rows(path, encoding)
    else:
        records = _json_rows(path, encoding)
    empty = True
    for row in records:
        empty = False
        yield row
    if empty:
        raise DataError(f"{path}: is empty: it holds no record")
    if check_regular(path) != before:
        raise DataError(f"{path}: changed while it was read; run this again when it is whole")


def _is_utf8(path: Path) -> bool:
    with _reading(path), path.open("rb") as file:
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            while block := file.read(1 << 20):
                if b"\x00" in block:  # as texts in UTF-16 have
                    return False
                decoder.decode(block)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return False
    return True


def read_json(path: Path, encoding: str = "") -> Any:
    """Returns the value in a JSON file; DataError where it cannot be read or is not whole JSON."""
    check_regular(path)
    return _parse(read_text(path, encoding), str(path))


def read_text(path: Path, encoding: str = "") -> str:
    """Returns a file's text, in UTF-8 or else `encoding`. Raises DataError if it is unreadable."""
    if encoding and _is_utf8(path):
        encoding = ""
    with _reading(path, encoding):
        text = path.read_bytes().decode(encoding or "utf-8-sig")
    if "\x00" in text:
        raise DataError(f"{path}: holds a NUL byte at character {text.index(chr(0))}")
    return text.removeprefix("\ufeff")


def check_regular(path: Path) -> tuple[int, int]:
    """Returns the size in bytes and the time of the last change in nanoseconds.

    Raises:
        DataError: it is no regular file: a pipe or a device would be waited for.
    """
    with _reading(path):
        status = path.stat()
    if not path.is_file():
        kind = "a folder" if path.is_dir() else "no regular file"
        raise DataError(f"{path}: cannot be read (it is {kind})")
    return status.st_size, status.st_mtime_ns


def _json_rows(path: Path, encoding: str) -> Iterator[Row]:
    text = read_text(path, encoding)
    if not text.strip() or _is_lines(text):
        return _line_rows(path, encoding)
    records = _parse(text, str(path))
    if isinstance(records, dict):
        lists = list(filter(is_records, records.values()))
        records = lists[0] if len(lists) == 1 else records
    if not isinstance(records, list):
        raise DataError(f"{path}: must hold a list of records, not {kind_of(records)}")
    return (Row(f"{path}: record {n}", record) for n, record in enumerate(records, start=1))


def is_records(value: Any) -> bool:
    """Returns whether `value` is a list of objects, and not an empty one."""
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def _is_lines(text: str) -> bool:
    """Returns whether the first line is a whole object and another follows."""
    line, _, remainder = text.strip().partition("\n")
    with contextlib.suppress(ValueError, RecursionError):
        return bool(remainder.strip()) and isinstance(json.loads(line), dict)
    return False


def _line_rows(path: Path, encoding: str) -> Iterator[Row]:
    with _opened(path, encoding, "\n") as file:
        for number, line in enumerate(file, start=1):
            where = f"{path}: line {number}"
            if "\x00" in line:
                raise DataError(f"{where}: holds a NUL byte")
            text = line.removeprefix("\ufeff") if number == 1 else line
            if text.strip():
                yield Row(where, _parse(text, where))


def _table_rows(path: Path, separator: str, encoding: str) -> Iterator[Row]:
    csv.field_size_limit(2**31 - 1)  # a cell may hold a whole document
    quoting: Any = csv.QUOTE_MINIMAL
    if separator == "\t" and not _is_quoted(path, encoding):
        quoting = csv.QUOTE_NONE
    try:
        with _opened(path, encoding) as file:
            head = file.readline()
            if ";" in head and separator not in head:
                separator = ";"  # as spreadsheets write it where the comma is a decimal point
            file.seek(0)
            table = csv.DictReader(file, delimiter=separator, strict=True, quoting=quoting)
            _check_names(path, table.fieldnames or ())
            for number, record in enumerate(table, start=1):
                if None in record:
                    raise DataError(f"{path}: record {number} has more cells than the head")
                cells = {name: Cell(text) if text else None for name, text in record.items()}
                yield Row(f"{path}: record {number}", cells)
    except csv.Error as error:
        why = _first_line(error).replace("\t", "\\t")
        raise DataError(f"{path}: not a table ({why})") from None


def _is_quoted(path: Path, encoding: str) -> bool:
    """Returns whether a file of tabs has cells in quotation marks, as spreadsheets write it.

    The files of search and of this trade have none: a mark is a character there. Quoted are files
    that can be read so whole, all rows as wide as the head, in which the head is quoted, or a mark
    is doubled, or a cell holds a tab or the end of a line.
    """
    try:
        with _opened(path, encoding) as file:
            evidence = file.readline().startswith('"')
            file.seek(0)
            width = 0
            for cells in csv.reader(file, delimiter="\t", strict=True):
                width = width or len(cells)
                if cells and len(cells) != width:
                    return False
                evidence = evidence or any("\t" in cell or "\n" in cell for cell in cells)
            if evidence:
                return True
            file.seek(0)
            return any('""' in line for line in file)
    except csv.Error:
        return False


def _excel_rows(path: Path) -> Iterator[Row]:
    """Yields the rows of the first sheet by its header row; formulas as last computed."""
    with needs_extra(str(path)):
        import openpyxl
    try:
        with path.open("rb") as file:
            book = openpyxl.load_workbook(file, read_only=True, data_only=True)
            sheet = book.worksheets[0]
            rows = iter(sheet.iter_rows(values_only=True))
            columns = [str(name) if name is not None else "" for name in next(rows, ())]
            _check_names(path, columns)
            for number, cells in enumerate(rows, start=2):
                record = {}
                for name, value in zip(columns, cells, strict=False):
                    if name:
                        record[name] = plain(value)
                if any(value is not None for value in record.values()):
                    yield Row(f"{path}: row {number}", record)
    except DataError:
        raise
    except Exception as error:  # openpyxl raises errors of many kinds on damaged files
        raise DataError(f"{path}: not an Excel file ({_first_line(error)})") from None


def _parquet_rows(path: Path) -> Iterator[Row]:
    with needs_extra(str(path)):
        import pyarrow as pa
        import pyarrow.parquet as pq

    try:
        with _reading(path), pq.ParquetFile(path) as file:
            _check_names(path, file.schema_arrow.names)
            batches = (batch.to_pylist() for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE))
            for number, record in enumerate(chain.from_iterable(batches), start=1):
                yield Row(f"{path}: record {number}", plain(record))
    except pa.ArrowException as error:
        raise DataError(f"{path}: not a Parquet file ({_first_line(error)})") from None


def _check_names(path: Path, columns: Iterable[str]) -> None:
    for name, uses in Counter(filter(None, columns)).most_common(1):
        if uses > 1:
            raise DataError(f"{path}: has two columns named {name[:80]!r}; rename or remove one")


def _parse(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # RecursionError: nested too deeply
        raise DataError(f"{where}: not whole JSON ({_first_line(error)})") from None


@contextlib.contextmanager
def _reading(path: Path, encoding: str = "") -> Iterator[None]:
    """Turn what reading raises into one line."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(
            f"no such file: {path}; paths are of the working folder, {Path.cwd()}"
        ) from None
    except UnicodeError:
        raise DataError(_wrong_coding(path, encoding)) from None
    except LookupError:
        raise DataError(
            f"--encoding {encoding!r} is no text coding; choose one such as latin-1 or utf-16"
        ) from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path itself
        reason = getattr(error, "strerror", None) or _first_line(error)
        raise DataError(f"{path}: cannot be read ({reason})") from None


@contextlib.contextmanager
def _opened(path: Path, encoding: str, newline: str = "") -> Iterator[TextIO]:
    with (
        _reading(path, encoding),
        path.open(encoding=encoding or "utf-8-sig", newline=newline) as file,
    ):
        yield file


def _wrong_coding(path: Path, encoding: str) -> str:
    """Returns the message for a file of another encoding: the byte and the likely encoding."""
    from charset_normalizer import from_bytes  # slow to import, and rarely needed

    content = path.read_bytes()
    place = 0
    try:
        content.decode(encoding or "utf-8-sig")
    except UnicodeError as error:
        place = getattr(error, "start", 0)
    start = max(0, place - _JUDGED_BYTES // 2)
    best = from_bytes(content[start : start + _JUDGED_BYTES]).best()
    likely = best.encoding if best is not None else ""
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        likely = "utf-16"
    coding = encoding or "UTF-8"
    if not likely or likely in ("ascii", "utf_8"):
        return f"{path}: not {coding} text at byte {place}; save it as UTF-8, or give --encoding"
    return (
        f"{path}: not {coding} text at byte {place}; it may be {likely}: "
        f"give --encoding {likely}, or save it as UTF-8"
    )


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:160]
