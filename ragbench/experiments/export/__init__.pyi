from .columns import (
    COLUMNS as COLUMNS,
    Column as Column,
    columns_of as columns_of,
    rows_of as rows_of,
)
from .source import (
    ExportedRun as ExportedRun,
    open_runs as open_runs,
)
from .targets import (
    TARGETS as TARGETS,
    export_runs as export_runs,
)
