"""Reading data files: JSON, JSON lines, CSV, Parquet and folders of documents.

Whatever is wrong with a file becomes one DataError line that names the file, the record (its
number, and its id where it has one) and the field.
"""

from ragbench.data.readers.documents import (
    read_documents,
)
from ragbench.data.readers.layouts import (
    LAYOUTS,
    describe_layout,
    detect_layout,
)
from ragbench.data.readers.records import (
    Answer,
    Id,
    NonBlank,
    Record,
    Row,
    Text,
    as_answers,
    fail,
    map_fields,
    same_length,
    validate,
)
from ragbench.data.readers.rows import (
    count_rows,
    is_streamed,
    read_json,
    read_rows,
)

__all__ = [
    "LAYOUTS",
    "Answer",
    "Id",
    "NonBlank",
    "Record",
    "Row",
    "Text",
    "as_answers",
    "count_rows",
    "describe_layout",
    "detect_layout",
    "fail",
    "is_streamed",
    "map_fields",
    "read_documents",
    "read_json",
    "read_rows",
    "same_length",
    "validate",
]
