from .answers import (
    advice as advice,
    answers as answers,
)
from .budgets import (
    MEASURES as MEASURES,
    within as within,
)
from .section import (
    Named as Named,
    Section as Section,
    Titled as Titled,
    amount as amount,
    mean_cell as mean_cell,
)
