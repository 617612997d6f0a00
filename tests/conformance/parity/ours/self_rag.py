"""Self-RAG's scores as `self_rag` has them at the published weights."""

from collections.abc import Mapping, Sequence
from typing import Any

import dspy

from ragbench.programs.core import Trace
from ragbench.programs.core.confidence import normalised
from ragbench.programs.core.trace import Budget
from ragbench.programs.self_rag import Candidate, Grades, SelfRAG, select
from tests.conformance.parity.ours import Parts, World
from tests.programs.shelf import shelf

_LABELS: dict[str, tuple[str | int, ...]] = {
    "relevance": ("relevant", "irrelevant"),
    "support": ("full", "partial", "none"),
    "use": (1, 2, 3, 4, 5),
}


def parts(world: World) -> Parts:
    """The scores, at the published weights."""
    program = SelfRAG(
        shelf(),
        confidence_source="verbal",
        w_utility=0.5,
        w_support=1.0,
        w_relevance=1.0,
        signed_utility=True,
    )

    def candidates(given: Sequence[Mapping[str, Any]]) -> list[Candidate]:
        return [Candidate(one["answer"], _grades(one).score(program.knobs)) for one in given]

    return {
        "score": lambda given: [round(c.score, 9) for c in candidates(given)],
        "best": lambda given: select(candidates(given), "best"),
        "vote": lambda given: select(candidates(given), "vote"),
        "gate": lambda given: _retrieves(given, program),
        "segment": lambda given: [round(_grades(one).score(program.knobs), 9) for one in given],
    }


def _grades(one: Mapping[str, Any]) -> Grades:
    return Grades(
        *(normalised(dict(zip(labels, one[name], strict=True))) for name, labels in _LABELS.items())
    )


def _retrieves(given: Sequence[float], program: SelfRAG) -> bool:
    """What the gate says where its label has this probability."""
    retrieve, not_ = given
    likely = retrieve > not_

    def gate(question: str) -> dspy.Prediction:
        return dspy.Prediction(retrieve=likely, confidence=max(retrieve, not_))

    program.decide = gate
    return program.wants_passages(Trace("q", shelf(), Budget(9, 9)))
