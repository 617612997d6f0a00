"""The knobs of `lookahead`; their defaults are those of its variant `bound`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ragbench.programs.core import ProgramKnobs
from ragbench.programs.lookahead.choosing import Score


class LookaheadKnobs(ProgramKnobs):
    """Knobs of `lookahead`."""

    context_tokens: int = Field(
        3000, ge=100, le=1_000_000, description="tokens of passages shown in one call"
    )
    max_nodes: int = Field(5, ge=1, le=20, description="look-ups of a plan at the most")
    variables: Literal["bind", "keep", "none"] = Field(
        "bind", description="read off passages, left in the query, or not planned with"
    )
    confidence_threshold: float = Field(
        0.3, ge=0, le=1, description="less confident look-ups that none waits for are left out"
    )
    samples: int = Field(1, ge=1, le=20, description="plans drafted; agreement gives confidence")
    prune: bool = Field(True, description="leave look-ups out where the budget is passed")
    budget: int = Field(10, ge=1, le=1000, description="cost of all look-ups at the most")
    score: Score = Field("product", description="utility: weighted sum, or weighted geometric mean")
    w_confidence: float = Field(0.5, ge=0, le=10, description="weight of a look-up's confidence")
    w_novelty: float = Field(0.3, ge=0, le=10, description="weight of its novelty")
    w_hop: float = Field(0.2, ge=0, le=10, description="weight of its place in the chain")
    parallel: bool = Field(True, description="look-ups of a level at once, or one by one")
    rerank: str = Field("none", description="none, lm, maxsim, cross-encoder:NAME, http address")
    rerank_keep: int = Field(3, ge=1, le=100, description="passages kept of a look-up")
    rerank_min: float = Field(0.0, description="lower scores are left out, unless all are lower")
    fallback: bool = Field(True, description="one round of further searches where a trigger fires")
    coverage_threshold: float = Field(
        0.3, ge=0, le=1, description="a smaller share of look-ups that found something triggers it"
    )
    max_fallback_queries: int = Field(2, ge=1, le=10, description="searches of the fallback")
    assemble: bool = Field(True, description="context without near-duplicates, in shares")
    duplicate_at: float = Field(0.8, gt=0, le=1, description="share of words of near-duplicates")
    cite: bool = Field(True, description="show the plan and ask for citations")
