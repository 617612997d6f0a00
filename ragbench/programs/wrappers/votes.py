"""Self-consistency (Wang et al. 2022, arXiv:2203.11171): ask several times, keep what most say.

The control at equal cost: what the tokens that a compiled prompt takes would buy without compiling.
The first vote is the program's answer as it is, at the run's own temperature, and it wins a tie;
the paper samples them all.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

import dspy

from ragbench.context import current, use
from ragbench.ledger import fan_out
from ragbench.metrics import normalise_answer
from ragbench.programs.core import NO_ANSWER, RAGProgram
from ragbench.programs.wrappers.base import Around
from ragbench.record import Step
from ragbench.retrievers import Passage

#: Temperature of every vote but the first, as in the paper.
TEMPERATURE = 0.7


def vote_counts(votes: float) -> tuple[int, int, float]:
    """Few votes, more votes, and the share of questions that get more, for `votes` on average.

    Two votes cannot change an answer, since the first wins a tie: below 3 it is 1 and 3.
    """
    if votes < 3:
        return 1, 3, max(0.0, votes - 1) / 2
    few = math.floor(votes + 1e-9)
    return few, few + 1, max(0.0, votes - few)


def with_more_votes(questions: Sequence[str], votes: float) -> frozenset[str]:
    """Those of `questions` that get more votes, spread evenly over their order.

    Of a longer list that begins with these, the same of these are among them.
    """
    _, _, share = vote_counts(votes)
    return frozenset(
        question
        for i, question in enumerate(questions)
        if math.floor((i + 1) * share + 1e-9) > math.floor(i * share + 1e-9)
    )


class Voting(Around):
    """Ask another program several times and keep the most common answer."""

    def __init__(self, inner: RAGProgram, votes: float, more: Collection[str] = ()) -> None:
        super().__init__(inner)
        self.few, self.many, _ = vote_counts(votes)
        self.more = frozenset(more)

    def forward(self, question: str) -> dspy.Prediction:
        """The prediction of the winning vote, with the steps and searches of all.

        Raises:
            dspy.LMError: the provider failed in one of the votes.
        """
        votes = self.many if question in self.more else self.few
        cast = fan_out(lambda number: self._vote(question, number), range(votes))
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
        context = current()
        roles = {role: _sampling(lm, number) for role, lm in context.role_lms.items()}
        with use(replace(context, role_lms=roles), lm=_sampling(dspy.settings.lm, number)):
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
