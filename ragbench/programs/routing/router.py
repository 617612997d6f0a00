"""The router: computes the features of a question, and lets the program of its policy answer.

A policy is learned from finished runs; routing by the complexity of a question, learned from which
programs answer it, is of Adaptive-RAG (Jeong et al. 2024, arXiv:2403.14403), whose classifier is a
trained model where ours is a short rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dspy

from ragbench.errors import ConfigError, KnobError
from ragbench.knobs import Knobs
from ragbench.programs.core import PROGRAMS, Described, RAGProgram, Trace, calls_of
from ragbench.programs.routing.features import question_features
from ragbench.programs.routing.policy import Policy, decide, leaves
from ragbench.record import Step
from ragbench.retrievers import Progress, Retriever


class RouterKnobs(Knobs):
    """The router has none; those of its programs are in its policy."""


class _Bounds(RouterKnobs):
    """The limits of a question, whichever program answers it."""

    max_calls: int


@dataclass(frozen=True)
class _Programs:
    """The programs by number. Kept where DSPy does not look: no optimizer may change them."""

    by_number: Mapping[int, RAGProgram]


@PROGRAMS.register("router", listed=False)
class Router(RAGProgram):
    """Choose a program for the question and let it answer."""

    name = "router"
    family = "workflow"
    paper = "arXiv:2403.14403"
    calls = "those of the program chosen"
    Knobs = RouterKnobs  # type: ignore[assignment]
    variants: Mapping[str, Mapping[str, Any]] = {}  # type: ignore[misc]

    def __init__(self, retriever: Retriever, policy: Policy | None = None) -> None:
        dspy.Module.__init__(self)
        if policy is None:
            raise ConfigError("router runs a policy: give --policy, of `recommend --router`")
        self.retriever, self.policy = retriever, policy
        used = sorted({leaf.program for _, leaf in leaves(policy.rule)})
        made = {
            number: PROGRAMS.get(policy.programs[number].program)(
                retriever, **policy.programs[number].set
            )
            for number in used
        }
        self.programs = _Programs(made)
        most = max(each.knobs.max_calls for each in made.values())
        self.knobs = _Bounds(max_calls=most)  # type: ignore[assignment]

    @classmethod
    def resolve_knobs(cls, given: Mapping[str, Any]) -> Any:
        """No knobs.

        Raises:
            KnobError: one is given.
        """
        if given:
            raise KnobError(
                f"router has no knob {next(iter(given))!r}: those of its programs are in its policy"
            )
        return RouterKnobs()

    def check_lms(self, lm: dspy.LM, role_lms: Mapping[str, dspy.LM]) -> None:
        """As each of its programs."""
        for program in self.programs.by_number.values():
            program.check_lms(lm, role_lms)

    def other_calls(self) -> Sequence[Described]:
        """Those of its programs."""
        return [call for program in self.programs.by_number.values() for call in calls_of(program)]

    def prepare(self, progress: Progress | None = None) -> None:
        """As each of its programs."""
        for program in self.programs.by_number.values():
            program.prepare(progress)

    def forward(self, question: str) -> dspy.Prediction:
        """The prediction of the program chosen, after a step `route` that says which and why.

        Raises:
            dspy.LMError: the provider failed.
        """
        features = question_features(question)
        number, because = decide(self.policy.rule, features)
        chosen = self.policy.programs[number]
        rounded = {name: round(value, 4) for name, value in features.items()}
        route = Step(
            "route",
            input=question,
            thought="; ".join(because) or "one program for every question",
            observation=chosen.label,
            notes={"program": chosen.program, **rounded},
        )
        try:
            prediction = self.programs.by_number[number](question=question)
        except Exception as error:
            trace = getattr(error, "ragbench_trace", None)
            if isinstance(trace, Trace):  # for the record
                trace.steps.insert(0, route)
            raise
        prediction.steps = [route, *prediction.steps]
        return prediction
