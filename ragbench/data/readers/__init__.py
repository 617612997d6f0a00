"""Reading data files: JSON, JSON lines, CSV, Parquet and folders of documents.

Whatever is wrong with a file becomes one DataError line that names the file, the record (its
number, and its id where it has one) and the field.
"""

from ragbench.data.readers.documents import (
    read_documents as read_documents,
)
from ragbench.data.readers.layouts import (
    LAYOUTS as LAYOUTS,
    describe_layout as describe_layout,
    detect_layout as detect_layout,
)
from ragbench.data.readers.records import (
    Answer as Answer,
    Id as Id,
    NonBlank as NonBlank,
    Record as Record,
    Row as Row,
    Text as Text,
    as_answers as as_answers,
    fail as fail,
    map_fields as map_fields,
    same_length as same_length,
    validate as validate,
)
from ragbench.data.readers.rows import (
    count_rows as count_rows,
    is_streamed as is_streamed,
    read_json as read_json,
    read_rows as read_rows,
)
