"""What a run or a compile is expected to spend, before it starts."""

from ragbench.experiments.estimates.estimate import (
    ASKED_TWICE as ASKED_TWICE,
    MARGIN as MARGIN,
    Estimate as Estimate,
    duration as duration,
    estimate_run as estimate_run,
    in_all as in_all,
    most_tries as most_tries,
    rehearse_questions as rehearse_questions,
    usd as usd,
)
from ragbench.experiments.estimates.rehearsal import Rehearsed as Rehearsed
