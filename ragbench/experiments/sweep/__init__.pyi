from .cells import (
    Cell as Cell,
)
from .spec import (
    Sweep as Sweep,
    load_sweep as load_sweep,
)
from .sweeps import (
    Contrast as Contrast,
    Outcome as Outcome,
    Swept as Swept,
    checked as checked,
    run_sweep as run_sweep,
)
