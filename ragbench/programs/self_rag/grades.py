"""Self-RAG's grades, candidates and gate: what its forms share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import dspy

from ragbench.metrics import normalise_answer
from ragbench.programs.core import Label, Trace, ask_probabilities, is_answer, render
from ragbench.retrievers import Passage

Probabilities = dict[Label, float]

#: The labels taken where a reply cannot be read.
UNREADABLE: dict[str, Label] = {"relevance": "relevant", "support": "partial", "utility": 3}
_LEVELS = ("none", "partial", "full")


@dataclass(frozen=True)
class Grades:
    """How likely each label of relevance, support and usefulness is."""

    relevance: Probabilities
    support: Probabilities
    use: Probabilities

    @classmethod
    def of(cls, reply: dspy.Prediction) -> Grades:
        """The labels of one reply, each certain."""
        labels = (reply.relevance, reply.support, reply.utility)
        return cls(*({label: 1.0} for label in labels))

    @property
    def likely(self) -> dict[str, Label]:
        """The likeliest label of each."""
        named = {"relevance": self.relevance, "support": self.support, "utility": self.use}
        return {name: max(grade, key=lambda label: grade[label]) for name, grade in named.items()}

    def score(self, knobs: Any) -> float:
        """The weighted sum of the grades; usefulness from -1 to 1 if `signed_utility`, else 1 to 5.

        Support counts 1 if full and 0.5 if partial, relevance 1.
        """
        use = sum(
            p * ((int(u) - 3) / 2 if knobs.signed_utility else int(u)) for u, p in self.use.items()
        )
        backed = self.support.get("full", 0.0) + 0.5 * self.support.get("partial", 0.0)
        relevant = self.relevance.get("relevant", 0.0)
        return float(
            knobs.w_utility * use + knobs.w_support * backed + knobs.w_relevance * relevant
        )


@dataclass(frozen=True)
class Candidate:
    """An answer from one passage, or from the passages of one draft; `backed` as far as wanted.

    `relevant` is the passage where it was graded so by the call that answered from it.
    """

    answer: str
    score: float
    backed: bool = True
    relevant: Passage | None = None


def select(candidates: Sequence[Candidate], selection: str) -> str:
    """The answer with the best score, or with the highest sum over equal answers (`vote`).

    A refusal ranks below any answer, and one that is not `backed` below those that are. Of equal
    scores the answer that more candidates give wins, then the one of the better ranked passage.
    """
    shared = Counter(normalise_answer(c.answer) for c in candidates)
    votes: Counter[str] = Counter()
    for candidate in candidates:
        votes[normalise_answer(candidate.answer)] += candidate.score  # type: ignore[assignment]

    def worth(candidate: Candidate) -> tuple[bool, bool, float, int]:
        key = normalise_answer(candidate.answer)
        score = votes[key] if selection == "vote" else candidate.score
        return is_answer(candidate.answer), candidate.backed, score, shared[key]

    return max(candidates, key=worth).answer  # the first of equals


def is_backed(support: Probabilities, at_least: str) -> bool:
    """Whether the likeliest label of `support` is `at_least` this one."""
    likely = max(support, key=lambda label: support[label])
    return _LEVELS.index(str(likely)) >= _LEVELS.index(at_least)


def wants_passages(trace: Trace, gate: dspy.Module, knobs: Any, **inputs: Any) -> bool:
    """What `gate` says of retrieval; yes where it cannot be read."""
    said = ask_probabilities(
        trace,
        gate,
        "retrieve",
        (True, False),
        source=knobs.confidence_source,
        question=trace.question,
        **inputs,
    )
    probability = 1.0 if said is None else said[True]
    retrieve = bool(probability > knobs.threshold)
    trace.step(
        "gate",
        observation="retrieve" if retrieve else "answer from memory",
        notes={"probability": round(probability, 4)},
    )
    return retrieve


def shown(passage: Passage, knobs: Any) -> str:
    """`passage` as a prompt shows it, without a number."""
    return render([passage], max_tokens=knobs.context_tokens)[0].removeprefix("[1] ")
