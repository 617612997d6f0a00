"""Which program to use: the cheapest not shown worse than the best mean, or a router."""

from ragbench.experiments.recommend.advice import Advice as Advice, advise as advise
from ragbench.experiments.recommend.learning import (
    RouterAdvice as RouterAdvice,
    held_out as held_out,
    learn_router as learn_router,
    make_policy as make_policy,
    shows_gain as shows_gain,
)
