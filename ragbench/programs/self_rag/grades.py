"""Knobs of `self_rag`, and the score of labels by their weights."""

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from ragbench.programs.core import ProgramKnobs, bounded
from ragbench.programs.core.confidence import Label

Probabilities = dict[Label, float]


class SelfRAGKnobs(ProgramKnobs):
    """Knobs of `self_rag`."""

    gate: Literal["ask", "always", "never"] = Field(
        "ask", description="ask the LM to retrieve, or fixed"
    )
    threshold: float = bounded(0.2, 0, 1, "retrieve above this probability")
    confidence_source: Literal["label", "verbal"] = Field(
        "label", description="label: the grade is certain, verbal: with stated confidence"
    )
    num_candidates: int = bounded(3, 1, 100, "passages to answer from (combined)")
    relevance_threshold: float = bounded(0.5, 0, 1, "minimum probability of relevance of a passage")
    support_threshold: Literal["none", "partial", "full"] = Field(
        "none", description="support that a candidate needs to be the answer"
    )
    w_utility: float = bounded(1.0, 0, 10, "weight of usefulness")
    w_support: float = bounded(2.0, 0, 10, "weight of support: 1, 0.5 or 0")
    w_relevance: float = bounded(0.5, 0, 10, "weight of relevance: 1 or 0")
    signed_utility: bool = Field(False, description="usefulness from -1 to 1, else from 1 to 5")
    select: Literal["best", "vote"] = Field("best", description="best score, or sum per answer")
    beam_width: int = bounded(2, 1, 10, "paths kept (beam)")
    depth: int = bounded(7, 1, 20, "maximum number of sentences (beam)")


@dataclass(frozen=True)
class Grades:
    """Probabilities of the labels of relevance, support and utility."""

    relevance: Probabilities
    support: Probabilities
    utility: Probabilities

    @property
    def likely(self) -> dict[str, Label]:
        return {name: max(grade, key=grade.__getitem__) for name, grade in vars(self).items()}

    def score(self, knobs: SelfRAGKnobs) -> float:
        use = 0.0
        for label, share in self.utility.items():
            rating: float = int(label)
            if knobs.signed_utility:
                rating = (rating - 3) / 2
            use += share * rating
        backed = self.support.get("full", 0.0) + 0.5 * self.support.get("partial", 0.0)
        relevant = self.relevance.get("relevant", 0.0)
        return knobs.w_utility * use + knobs.w_support * backed + knobs.w_relevance * relevant


def share(knobs: SelfRAGKnobs, relevance: Label, support: Label, utility: Label) -> float:
    """Return the score of these labels as a share of the best possible one, 0 or more.

    Args:
        knobs: Weights of the labels.
        relevance: Label of relevance.
        support: Label of support.
        utility: Label of utility.
    """
    labelled = Grades({relevance: 1.0}, {support: 1.0}, {utility: 1.0})
    best = Grades({"relevant": 1.0}, {"full": 1.0}, {5: 1.0})
    return max(labelled.score(knobs) / best.score(knobs), 0.0)
