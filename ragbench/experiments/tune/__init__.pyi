from .estimate import (
    estimate_tune as estimate_tune,
)
from .search import (
    Point as Point,
)
from .study import (
    Tuned as Tuned,
    tune as tune,
    tune_folder as tune_folder,
)
