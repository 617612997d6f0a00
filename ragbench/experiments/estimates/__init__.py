"""What a run or a compile is expected to spend, before it starts."""

from ragbench.experiments.estimates.estimate import (
    Estimate as Estimate,
    duration as duration,
    in_all as in_all,
    usd as usd,
)
from ragbench.experiments.estimates.rehearsal import Rehearsed as Rehearsed
from ragbench.experiments.estimates.run_estimate import (
    ASKED_TWICE as ASKED_TWICE,
    MARGIN as MARGIN,
    estimate_run as estimate_run,
    most_tries as most_tries,
    rehearse_questions as rehearse_questions,
)
