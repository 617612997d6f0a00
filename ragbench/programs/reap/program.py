"""REAP: plan sub-tasks, extract facts for each, and answer from the facts alone.

Recursive Evaluation and Adaptive Planning (2025, arXiv:2511.09966). The paper fine-tunes its parts
on plans made by a stronger model; here they are prompted, so a run of this is no reproduction of
its numbers. Variants:

- `seed`: the simplified specification, see `ragbench.programs.reap.seed`.
- `paper`: a plan of requirements that depend on each other, see `ragbench.programs.reap.paper`.

In both, the first round always searches, nothing is extracted from no passages, and a question for
which no fact was found is answered from the passages themselves (`no_facts`): from nothing, a model
can only repeat the question.
"""

from __future__ import annotations

from typing import Any

import dspy
from pydantic import Field

from ragbench.programs.core import (
    PROGRAMS,
    Autonomy,
    ProgramKnobs,
    RAGProgram,
    Trace,
    predict,
    render,
)
from ragbench.programs.reap.facts import Facts
from ragbench.programs.reap.paper import Planning
from ragbench.programs.reap.seed import Rounds
from ragbench.retrievers import Retriever
from ragbench.signatures import (
    DraftPlan,
    FactExtract,
    NextSubTask,
    ReadAndJudge,
    RepairPlan,
    SynthesizeAnswer,
    UpdatePlan,
)


class REAPKnobs(ProgramKnobs):
    """Knobs of `reap`."""

    max_rounds: int = Field(5, ge=1, le=50, description="rounds at the most")
    complete_at: float = Field(0.8, ge=0, le=1, description="score that ends the search (seed)")
    max_tasks: int = Field(5, ge=1, le=20, description="requirements of the first plan (paper)")
    max_actions: int = Field(4, ge=1, le=20, description="look-ups in one round")
    max_attempts: int = Field(10, ge=1, le=100, description="rounds with failed ones (paper)")
    draft_tries: int = Field(3, ge=1, le=10, description="tries at the first plan (paper)")
    use_replanner: bool = Field(True, description="repair the plan after a failed look-up (paper)")
    use_fulfillment: bool = Field(True, description="tell direct facts from partial ones (paper)")
    use_clues: bool = Field(True, description="keep partial facts (paper)")


@PROGRAMS.register("reap")
class REAP(RAGProgram):
    """Plan sub-tasks, extract facts for each, and answer from the facts."""

    name = "reap"
    family = "recursive"
    paper = "arXiv:2511.09966"
    calls = (
        "seed: 2 + 1 per round, + 1 where the planner is asked again; "
        "paper: 2 + per round 1 + look-ups, + 1 if the planner ends it (<= 27)"
    )
    autonomy = Autonomy("no", "yes", "partly")
    Knobs = REAPKnobs
    variants = {"seed": {}, "paper": {}}  # noqa: RUF012

    def __init__(self, retriever: Retriever, **knobs: object) -> None:
        super().__init__(retriever, **knobs)
        if self.knobs.variant == "seed":
            self.next = predict(NextSubTask)
            self.read = predict(ReadAndJudge)
        else:
            self.draft = predict(DraftPlan)
            self.update = predict(UpdatePlan)
            if self.knobs.use_replanner and self.knobs.use_fulfillment:
                self.repair = predict(RepairPlan)
            self.extract = predict(FactExtract)
        self.synthesize = predict(SynthesizeAnswer)

    def solve(self, trace: Trace) -> dspy.Prediction:
        """Rounds of planning, searching and extracting, then an answer from the facts."""
        facts = self._facts(trace)
        extra: dict[str, Any] = {}
        if self.knobs.variant == "seed":
            reason = Rounds(trace, self.knobs, facts, next=self.next, read=self.read).run()
        else:
            planning = Planning(
                trace,
                self.knobs,
                facts,
                draft=self.draft,
                update=self.update,
                repair=getattr(self, "repair", None),
                extract=self.extract,
            )
            reason = planning.run()
            extra["plan"] = [task.model_dump() for task in planning.plan]
        answer = self.force(trace)
        told = [
            {"statement": f.statement, "fulfillment": f.level, "pids": list(f.pids)}
            for f in facts.all()
        ]
        return trace.prediction(answer, reason, facts=told, **extra)

    def force(self, trace: Trace) -> str:
        """The answer written from the facts so far; from passages where there are none."""
        notes = self._facts(trace).notes()
        if not notes and trace.passages:
            trace.count("no_facts")
            notes = render(trace.passages, max_tokens=self.knobs.context_tokens)
        return trace.answer(
            self.synthesize, last=True, notes=notes, question=trace.question, instruction=""
        )

    def _facts(self, trace: Trace) -> Facts:
        levels = self.knobs.variant == "paper" and self.knobs.use_fulfillment
        return Facts(trace, levels=levels, partial=self.knobs.use_clues)
