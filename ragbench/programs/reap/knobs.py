"""The knobs of `reap`."""

from __future__ import annotations

from pydantic import Field

from ragbench.programs.core import ProgramKnobs


class REAPKnobs(ProgramKnobs):
    """Knobs of `reap`."""

    max_rounds: int = Field(5, ge=1, le=50, description="rounds at the most")
    max_actions: int = Field(4, ge=1, le=20, description="look-ups in one round")
    complete_at: float = Field(0.8, ge=0, le=1, description="score that ends the search (spec)")
    use_replanner: bool = Field(True, description="repair the plan after a failed look-up (paper)")
    use_fulfillment: bool = Field(True, description="tell direct facts from partial ones (paper)")
    use_clues: bool = Field(True, description="keep partial facts (paper)")
