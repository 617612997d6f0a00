"""The most that one question can take, by its own limits: where a mean of costs has its ends.

Now and then a question runs away, to all the calls that it may make. Most small samples hold no
such question, and an interval from their spread alone is too narrow. With pseudo-values at what a
question can take at the most it is not.
"""

import re
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from ragbench.errors import RagbenchError
from ragbench.experiments.store import RunCard
from ragbench.programs import PROGRAMS

Floats = NDArray[np.float64]
#: The formula of a program that makes the same number of calls for every question.
_FIXED = re.compile(r"(\d+)( \(index.*\))?")
#: A call whose reply cannot be read is made again at the most so often.
_TIMES = 2


def most_of_question(card: RunCard, calls: Floats, amounts: Floats) -> float | None:
    """The most that one question may take of what `amounts` are of; None where nothing limits it.

    That is the most LM calls that it may make, times the most that a call took on average in one of
    the questions, and no less than what one of them took. Programs of a fixed number of calls say
    so; for others it is their knob `max_calls`. `calls` are NaN where they are not known.
    """
    limit = card.knobs.get("max_calls")
    with suppress(RagbenchError):
        fixed = _FIXED.fullmatch(PROGRAMS.get(card.program).calls)
        if fixed:
            limit = int(fixed[1]) * _TIMES
    if not isinstance(limit, int):
        return None
    votes = card.identity.get("votes")
    if isinstance(votes, int):
        limit *= max(votes, 1)
    dearest = (amounts / np.fmax(1.0, calls)).max()
    return float(max(limit * dearest, amounts.max()))
