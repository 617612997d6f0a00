"""The knobs of `planner`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ragbench.programs.core import ProgramKnobs


class PlannerKnobs(ProgramKnobs):
    """Knobs of `planner`."""

    k: int = Field(3, ge=1, le=100, description="passages per search")
    max_steps: int = Field(5, ge=1, le=50, description="actions at the most, splits not counted")
    max_depth: int = Field(3, ge=0, le=10, description="levels below the question")
    max_children: int = Field(2, ge=1, le=10, description="sub-questions of a node")
    max_similarity: float = Field(
        0.85, gt=0, le=1, description="share of words by which a sub-question repeats another"
    )
    stop_confidence: float = Field(0.8, ge=0, le=1, description="of the root, to stop at once")
    gate: Literal["ask", "always", "never"] = Field("ask", description="retrieve: ask, or decide")
    ask_always: bool = Field(
        False, description="ask for each action; else the parts of a split are solved in order"
    )
    rollout: bool = Field(True, description="offer ROLLOUT")
    backtrack: bool = Field(True, description="offer BACKTRACK")
    refine: bool = Field(True, description="refine poor answers to bridge questions")
