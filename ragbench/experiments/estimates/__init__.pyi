from .estimate import (
    ESTIMATE as ESTIMATE,
    Estimate as Estimate,
    duration as duration,
    in_all as in_all,
    usd as usd,
)
from .rehearsal import (
    Rehearsed as Rehearsed,
    rehearse as rehearse,
)
from .run_estimate import (
    ASKED_TWICE as ASKED_TWICE,
    MARGIN as MARGIN,
    estimate_run as estimate_run,
    keep_estimate as keep_estimate,
    most_tries as most_tries,
    rehearse_questions as rehearse_questions,
)
