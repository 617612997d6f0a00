"""Read tables record by record: CSV, TSV, Excel, Parquet.

pandas infers a type for each column and changes texts such as 007, so `csv` reads text tables.
"""

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ragbench.data.text_files import first_line, opened, reading
from ragbench.data.values import Cell, plain
from ragbench.errors import DataError, needs_extra

#: Position of a record in its file, and the record.
Rows = Iterator[tuple[str, dict[str, Any]]]

_ROWS_AT_ONCE = 500
#: Limits of the unpacked size: in bytes, and as a multiple of the file size.
_MOST_UNPACKED, _MOST_TIMES = 256 << 20, 1000


def text_rows(path: Path, encoding: str, separator: str) -> Rows:
    """Yield the records of a text table. Skips blank rows; an empty cell is None.

    Args:
        path: File with column names in the first row.
        encoding: Encoding of a text that is not UTF-8.
        separator: Default separator. The file may declare another by `sep=;` in its first line, or
            by column names that only semicolons or tabs separate.
    """
    csv.field_size_limit(2**31 - 1)  # a cell may hold a whole document
    quoting: Any = csv.QUOTE_MINIMAL
    try:
        with opened(path, encoding) as file:
            head = file.readline()
            if head.lower().startswith("sep=") and len(head.strip()) == 5:
                separator = head[4]
            else:
                file.seek(0)
                if separator not in head:
                    separator = next((mark for mark in ";\t" if mark in head), separator)
            if separator == "\t" and not _is_quoted(path, encoding):
                quoting = csv.QUOTE_NONE
            table = csv.reader(
                file, delimiter=separator, strict=True, quoting=quoting, skipinitialspace=True
            )
            columns = [name.strip() for name in next(table, [])]
            _check_names(path, columns)
            blank = [""] * len(columns)
            for number, cells in enumerate(filter(_has_text, table), start=1):
                if _has_text(cells[len(columns) :]):
                    raise DataError(f"{path}: record {number} has more cells than the head")
                texts = zip(columns, [*cells, *blank], strict=False)
                yield f"record {number}", {k: Cell(v) if v.strip() else None for k, v in texts}
    except csv.Error as error:
        why = first_line(error).replace("\t", "\\t")
        raise DataError(f"{path}: not a table ({why})") from None


def _has_text(cells: Sequence[str]) -> bool:
    return any(map(str.strip, cells))


def _is_quoted(path: Path, encoding: str) -> bool:
    """Return True if a tab-separated file quotes cells, as spreadsheets do.

    In files of retrieval projects a quotation mark is an ordinary character. A file is quoted if
    all of its rows can be read as quoted cells with the width of the header, and the header is
    quoted, a mark is doubled, or a cell holds a tab or a line break.
    """
    try:
        with opened(path, encoding) as file:
            evidence = file.readline().startswith('"')
            file.seek(0)
            width = 0
            for cells in csv.reader(file, delimiter="\t", strict=True):
                width = width or len(cells)
                if cells and len(cells) != width:
                    return False
                evidence = evidence or any("\t" in cell or "\n" in cell for cell in cells)
            file.seek(0)
            return evidence or any('""' in line for line in file)
    except csv.Error:
        return False


def excel_sheets(path: Path) -> Iterator[tuple[str, Rows]]:
    """Yield the title and the records of each sheet, with the last computed values."""
    with needs_extra(str(path)):
        import openpyxl
    try:
        with path.open("rb") as file:
            book = openpyxl.load_workbook(file, read_only=True, data_only=True)
            for sheet in book.worksheets:
                sheet.reset_dimensions()  # A file may claim any size.
                yield sheet.title, _sheet_rows(path, sheet.iter_rows(values_only=True))
    except DataError:
        raise
    except Exception as error:  # openpyxl raises errors of many kinds on damaged files
        raise DataError(f"{path}: not an Excel file ({first_line(error)})") from None


def _sheet_rows(path: Path, rows: Iterator[Sequence[Any]]) -> Rows:
    columns = [str(name).strip() if name is not None else "" for name in next(rows, ())]
    _check_names(path, columns)
    for number, cells in enumerate(rows, start=2):
        record = {k: plain(cell) for k, cell in zip(columns, cells, strict=False) if k}
        if any(value is not None for value in record.values()):
            yield f"row {number}", record


def excel_rows(path: Path, encoding: str) -> Rows:
    """Yield the records of the first sheet.

    Args:
        path: File to read.
        encoding: Not used: the format has its own encoding.
    """
    for _, rows in excel_sheets(path):
        yield from rows
        break


def parquet_rows(path: Path, encoding: str) -> Rows:
    """Yield the records of a Parquet file.

    Args:
        path: File to read.
        encoding: Not used: the format has its own encoding.
    """
    with needs_extra(str(path)):
        import pyarrow as pa
        import pyarrow.parquet as pq

    try:
        with reading(path), pq.ParquetFile(path) as file:
            _check_names(path, file.schema_arrow.names)
            yield from _records(path, file.iter_batches(batch_size=_ROWS_AT_ONCE))
    except pa.ArrowException as error:
        raise DataError(f"{path}: not a Parquet file ({first_line(error)})") from None


def _records(path: Path, batches: Iterable[Any]) -> Rows:
    """Yield the rows of Arrow batches. Rejects a file that unpacks to far more than its size."""
    size = path.stat().st_size
    most = max(_MOST_UNPACKED, _MOST_TIMES * size)
    unpacked = 0
    number = 0
    for batch in batches:
        for start in range(0, len(batch), _ROWS_AT_ONCE):
            rows = batch.slice(start, _ROWS_AT_ONCE)
            unpacked += rows.nbytes
            for record in rows.to_pylist():
                # A batch holds a repeated text once, so that its own size says little.
                unpacked += sum(len(value) for value in record.values() if isinstance(value, str))
                if unpacked > most:
                    raise DataError(
                        f"{path}: unpacks to more than {most >> 20:,} MB from {size >> 10:,} kB; "
                        "check the source of the file"
                    )
                number += 1
                yield f"record {number}", plain(record)


def _check_names(path: Path, columns: Iterable[str]) -> None:
    for name, uses in Counter(filter(None, columns)).most_common(1):
        if uses > 1:
            raise DataError(f"{path}: has two columns named {name[:80]!r}; rename or remove one")
