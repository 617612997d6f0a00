"""A policy: which of several programs answers a question, by a rule on its features.

The rule is a decision tree. `ragbench recommend` learns it and writes the file; the router runs it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_validator

from ragbench.programs.routing.features import FEATURES

#: Version of the file, and of the features in it.
FORMAT: Literal[1] = 1


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
    """A program that the rule may choose, with its knobs, and the identity of its run."""

    label: str
    program: str
    set: dict[str, Any] = {}
    run: str = ""
    identity: dict[str, Any] = {}


class LearnedFrom(_Part):
    """The questions that the rule was learned from: data set, ids, hashes of normalised texts."""

    dataset: str = ""
    digest: str = ""
    ids: list[str] = []
    hashes: list[str] = []


class Policy(_Part):
    """What a policy file holds; `evidence` is what was measured, for people."""

    format: Literal[1]
    kind: Literal["ragbench policy"] = "ragbench policy"
    metric: str
    programs: list[Candidate] = Field(min_length=1)
    rule: Node
    learned_from: LearnedFrom = LearnedFrom()
    seed: int = 0
    evidence: dict[str, Any] = {}
    versions: dict[str, str] = {}

    @model_validator(mode="after")
    def _whole(self) -> Policy:
        for _, leaf in leaves(self.rule):
            if leaf.program >= len(self.programs):
                raise ValueError(f"the rule chooses program {leaf.program}, which is not listed")
        return self


def decide(rule: Node, features: Mapping[str, float]) -> tuple[int, list[str]]:
    """The number of the program for a question of these `features`, and the conditions it met.

    Raises:
        KeyError: a feature that the rule reads is not there.
    """
    met: list[str] = []
    while isinstance(rule, Split):
        yes = features[rule.feature] >= rule.at_least
        met.append(condition(rule, yes=yes))
        rule = rule.yes if yes else rule.no
    return rule.program, met


def condition(split: Split, *, yes: bool) -> str:
    """One side of `split` in words."""
    return FEATURES[split.feature].describe(split.at_least, yes=yes)


def leaves(rule: Node, met: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Leaf]]:
    """Every leaf with the conditions that lead to it, those that are met first."""
    if isinstance(rule, Leaf):
        yield met, rule
        return
    yield from leaves(rule.yes, (*met, condition(rule, yes=True)))
    yield from leaves(rule.no, (*met, condition(rule, yes=False)))
