"""Self-consistency (Wang et al. 2022, arXiv:2203.11171): ask several times, keep what most say.

The control at equal cost: what the tokens that a compiled prompt takes would buy without compiling.
The first vote is the program's answer as it is, at the run's own temperature, and it wins a tie;
the paper samples them all.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import dspy

from ragbench.ledger import fan_out
from ragbench.metrics.text import normalise_answer
from ragbench.programs.around import Around
from ragbench.programs.base import NO_ANSWER, RAGProgram, Step
from ragbench.programs.trace import ROLE_LMS_KEY
from ragbench.retrievers.base import Passage

#: Temperature of every vote but the first, as in the paper.
TEMPERATURE = 0.7


class Voting(Around):
    """Ask another program several times and keep the most common answer."""

    def __init__(self, inner: RAGProgram, votes: int) -> None:
        super().__init__(inner)
        self.votes = votes

    def forward(self, question: str) -> dspy.Prediction:
        """The prediction of the winning vote, with the steps and searches of all.

        Raises:
            dspy.LMError: the provider failed in one of the votes.
        """
        cast = fan_out(lambda number: self._vote(question, number), range(self.votes))
        tally = Counter(normalise_answer(p.answer) for p in cast if p.answer != NO_ANSWER)
        most = max(tally.values(), default=0)
        winner = next(
            (
                p
                for p in cast
                if p.answer != NO_ANSWER and tally[normalise_answer(p.answer)] == most
            ),
            cast[0],
        )
        counts: Counter[str] = sum((Counter(p.counts) for p in cast), Counter())
        vote = Step("vote", observation=winner.answer, notes=dict(tally))
        return dspy.Prediction(
            **{
                **dict(winner.items()),
                "steps": [*(step for p in cast for step in p.steps), vote],
                "searches": [search for p in cast for search in p.searches],
                "passages": _seen(cast),
                "counts": counts,
            }
        )

    def _vote(self, question: str, number: int) -> dspy.Prediction:
        return self.inner(question=question) if not number else self._sample(question, number)

    def _sample(self, question: str, number: int) -> dspy.Prediction:
        roles = dspy.settings.get(ROLE_LMS_KEY) or {}
        settings: dict[str, Any] = {
            "lm": _sampling(dspy.settings.lm, number),
            ROLE_LMS_KEY: {role: _sampling(lm, number) for role, lm in roles.items()},
        }
        with dspy.context(**settings):
            return self.inner(question=question)


def _sampling(lm: dspy.LM, number: int) -> dspy.LM:
    """`lm` for one vote: the rollout gives it a seed and a place in the cache of its own."""
    return lm.copy(rollout_id=number, temperature=TEMPERATURE)


def _seen(cast: list[dspy.Prediction]) -> list[Passage]:
    """Every passage once, in the order first seen."""
    seen: dict[str, Passage] = {}
    for prediction in cast:
        for passage in prediction.passages:
            seen.setdefault(passage.pid, passage)
    return list(seen.values())
