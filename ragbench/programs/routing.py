"""The router: a policy chooses by the wording of a question which of several programs answers.

The policy is a decision tree on features that fixed rules compute, never read from the data set;
`ragbench recommend` learns it from finished runs. After Adaptive-RAG (Jeong et al. 2024,
arXiv:2403.14403), whose classifier is a trained model.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import dspy
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_validator

from ragbench.errors import ConfigError
from ragbench.knobs import Knobs, resolve
from ragbench.programs.core import PROGRAMS, RAGProgram, Trace
from ragbench.programs.core.program import CallKind, calls_of
from ragbench.record import Step
from ragbench.retrievers import Retriever

_COMPARING = re.compile(
    r"\b(?:both|same|common|either|neither|than|first|earli(?:er|est)|lat(?:er|est)|old(?:er|est)"
    r"|young(?:er|est)|elde(?:r|st)|long(?:er|est)|short(?:er|est)|larg(?:er|est)|small(?:er|est)"
    r"|bigg(?:er|est)|high(?:er|est)|low(?:er|est)|tall(?:er|est)|close(?:r|st)|more|fewer|less|most"
    r"|least|farther|further|before|after|between|differ\w*|compar\w*)\b",
    re.IGNORECASE,
)
_JOINED = re.compile(r"\b(?:or|and)\b", re.IGNORECASE)
#: Two names to choose from.
_CHOICE = re.compile(r"[A-Z][^\s,]*\s+or\s+(?:the\s+|The\s+)?[\"\u201c]?[A-Z]")
_CLOSED = re.compile(
    r"(?:is|are|was|were|am|do|does|did|has|have|had|can|could|will|would|should|may|might)\b",
    re.IGNORECASE,
)
_QUANTITY = re.compile(
    r"\b(?:when|how (?:many|much|long|old|far|tall|large|often)|(?:what|which|in what|in which) "
    r"(?:\w+ )?(?:year|date|day|month|century|decade|number|population|age|percentage))\b",
    re.IGNORECASE,
)
#: Words that tie one thing to another: each is a relation that may have to be looked up.
_RELATION = re.compile(r"\b(?:of|by|whose|who|whom|that|which|where)\b|['\u2019]s\b", re.IGNORECASE)
#: A run of capitalised words, small joining words among them; a text in quotation marks.
_NAME = re.compile(
    r"[\"\u201c]([^\"\u201d]+)[\"\u201d]|\b[A-Z][\w.'\u2019&-]*(?:\s+(?:(?:of|the|de|la|van|von|in)\s+)?"
    r"[A-Z0-9][\w.'\u2019&-]*)*"
)
_ASKING = re.compile(
    r"(?:who|whose|whom|what|which|where|when|why|how|in|on|at|of|the|are|is|was|were|did|do|does"
    r"|has|have|had|between|both|a|an|for|to|from|by|after|before)\b",
    re.IGNORECASE,
)

#: Feature -> what a rule says where it is at least the bound, and where not.
FEATURES: Mapping[str, tuple[str, str]] = {
    "words": ("it has {} words or more", "it has fewer than {} words"),
    "names": ("it has {} names or more", "it has fewer than {} names"),
    "comparison": ("it asks for a comparison", "it asks for no comparison"),
    "yes_no": ("it asks for yes or no", "it does not ask for yes or no"),
    "quantity": ("it asks for a date or a number", "it asks for neither a date nor a number"),
    "hops": ("its wording has {} hops or more", "its wording has fewer than {} hops"),
}


def question_features(question: str) -> dict[str, float]:
    """The features of the wording; empty words give zeros.

    `hops` is predicted: 2 for a comparison, else one more than the relations in the wording, from
    1 to 4. `comparison`, `yes_no` and `quantity` are 0 or 1.
    """
    phrases = (name[0] for name in _NAME.finditer(question))
    proper_names = []
    for name in phrases:
        if len(name.split()) > 1 or not _ASKING.fullmatch(name):
            proper_names.append(name)
    closed = bool(_CLOSED.match(question.strip()))
    # Two things set side by side: two names, and words that compare or choose.
    side_by_side = (closed or _COMPARING.search(question)) and _JOINED.search(question)
    comparison = len(proper_names) > 1 and bool(side_by_side or _CHOICE.search(question))
    # Without the words that only ask, in which "which" relates nothing.
    stripped = re.sub(r"^\W*(?:(?:in|on|at|by|of|for|from|to)\s+)?\w+", "", question, count=1)
    return {
        "words": float(len(re.findall(r"\w+(?:['\u2019]\w+)?", question))),
        "names": float(len(proper_names)),
        "comparison": float(comparison),
        "yes_no": float(closed),
        "quantity": float(bool(_QUANTITY.search(question))),
        "hops": 2.0 if comparison else float(min(1 + len(_RELATION.findall(stripped)), 4)),
    }


#: Version of the file, and of the features in it.
FORMAT: Literal[2] = 2


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Leaf(_Part):
    """Questions that one program answers: its number, and each program's mean score on them.

    The means are of the questions that the rule was learned from, so they flatter.
    """

    program: int = Field(ge=0)
    n: int = Field(0, ge=0)
    means: list[FiniteFloat] = []


class Split(_Part):
    """Two ways to go on: `yes` where the feature is at least the bound, else `no`."""

    feature: str
    at_least: FiniteFloat
    yes: Node
    no: Node

    @model_validator(mode="after")
    def _known(self) -> Split:
        if self.feature not in FEATURES:
            raise ValueError(f"no feature {self.feature!r}; those known: {', '.join(FEATURES)}")
        return self


Node = Split | Leaf
Split.model_rebuild()


class Candidate(_Part):
    """A program that the rule may choose, with its knobs."""

    label: str
    program: str
    set: dict[str, Any] = {}


class LearnedFrom(_Part):
    """The questions that the rule was learned from: data set, ids, hashes of normalised texts."""

    dataset: str = ""
    ids: list[str] = []
    hashes: list[str] = []


class Policy(_Part):
    """What a policy file holds."""

    format: Literal[2]
    metric: str
    programs: list[Candidate] = Field(min_length=1)
    rule: Node
    learned_from: LearnedFrom = LearnedFrom()

    @model_validator(mode="after")
    def _whole(self) -> Policy:
        for _, leaf in leaves(self.rule):
            if leaf.program >= len(self.programs):
                raise ValueError(f"the rule chooses program {leaf.program}, which is not listed")
        return self


def decide(rule: Node, features: Mapping[str, float]) -> tuple[int, list[str]]:
    """The number of the program for a question of these `features`, and the conditions it met."""
    met: list[str] = []
    while isinstance(rule, Split):
        yes = features[rule.feature] >= rule.at_least
        met.append(condition(rule, yes=yes))
        rule = rule.yes if yes else rule.no
    return rule.program, met


def condition(split: Split, *, yes: bool) -> str:
    """One side of `split` in words."""
    return FEATURES[split.feature][not yes].format(math.ceil(split.at_least))


def leaves(rule: Node, met: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Leaf]]:
    """Every leaf with the conditions that lead to it, those that are met first."""
    if isinstance(rule, Leaf):
        yield met, rule
        return
    yield from leaves(rule.yes, (*met, condition(rule, yes=True)))
    yield from leaves(rule.no, (*met, condition(rule, yes=False)))


class RouterKnobs(Knobs):
    """The router has none; those of its programs are in its policy."""


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
        self.retriever = retriever
        self.policy = policy
        used = sorted({leaf.program for _, leaf in leaves(policy.rule)})
        programs = {}
        for number in used:
            programs[number] = PROGRAMS.get(policy.programs[number].program)(
                retriever, **policy.programs[number].set
            )
        self.programs = _Programs(programs)
        #: Those of the program that may ask most, for the limits of a question.
        self.knobs = max(
            (program.knobs for program in programs.values()), key=lambda k: k.max_calls
        )

    @classmethod
    def resolve_knobs(cls, knobs: Mapping[str, Any]) -> Any:
        return resolve(RouterKnobs, "router (the knobs of its programs are in its policy)", knobs)

    def other_calls(self) -> Sequence[CallKind]:
        return [call for program in self.inside() for call in calls_of(program)]

    @property
    def changed_knobs(self) -> dict[str, Any]:
        """None: the knobs of its programs are in its policy."""
        return {}

    def inside(self) -> Sequence[RAGProgram]:
        return list(self.programs.by_number.values())

    def forward(self, question: str) -> dspy.Prediction:
        """The prediction of the program chosen, after a step `route` that says which and why."""
        features = question_features(question)
        number, because = decide(self.policy.rule, features)
        chosen = self.policy.programs[number]
        route = Step(
            "route",
            input=question,
            thought="; ".join(because) or "one program for every question",
            observation=chosen.label,
            notes={"program": chosen.program, **features},
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
