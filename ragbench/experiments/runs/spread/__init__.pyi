from .check import (
    check_spread as check_spread,
    crew_of as crew_of,
)
from .pool import (
    WorkerPool as WorkerPool,
)
