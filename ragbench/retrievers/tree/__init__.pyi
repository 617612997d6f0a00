from .index import (
    SummaryTree as SummaryTree,
)
