from .check import (
    check_spread as check_spread,
    processes_of as processes_of,
)
from .pool import (
    WorkerPool as WorkerPool,
)
