from .base import (
    Around as Around,
)
from .form import (
    FORM_INSTRUCTION as FORM_INSTRUCTION,
    repair_form as repair_form,
)
from .votes import (
    Voting as Voting,
    with_more_votes as with_more_votes,
)
