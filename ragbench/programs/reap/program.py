"""REAP: plan sub-tasks, extract facts for each, and answer from the facts alone.

Recursive Evaluation and Adaptive Planning (2025, arXiv:2511.09966). The paper fine-tunes its parts
on plans made by a stronger model; here they are prompted, so a run of this is no reproduction of
its numbers. Variants:

- `spec`: the simplified specification, see `ragbench.programs.reap.spec`.
- `paper`: a plan of requirements that depend on each other, see `ragbench.programs.reap.paper`.

In both, the first round always searches, nothing is extracted from no passages, and a question for
which no fact was found is answered from the passages themselves (`no_facts`): from nothing, a model
can only repeat the question.
"""

from __future__ import annotations

import dspy

from ragbench.programs.core import (
    PROGRAMS,
    Autonomy,
    BudgetSpentError,
    RAGProgram,
    Trace,
    predict,
    render,
)
from ragbench.programs.reap.facts import Facts
from ragbench.programs.reap.knobs import REAPKnobs
from ragbench.programs.reap.paper import Planning
from ragbench.programs.reap.spec import Rounds
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


@PROGRAMS.register("reap")
class REAP(RAGProgram[REAPKnobs]):
    """Plan sub-tasks, extract facts for each, and answer from the facts."""

    name = "reap"
    family = "recursive"
    paper = "arXiv:2511.09966"
    calls = (
        "spec: 2 + 1 per round, + 1 where the planner is asked again; "
        "paper: 2 + per round 1 + look-ups, + 1 if the planner ends it (<= 27)"
    )
    autonomy = Autonomy("no", "yes", "partly")
    variants = {"spec": {}, "paper": {}}  # noqa: RUF012

    def __init__(self, retriever: Retriever, **knobs: object) -> None:
        super().__init__(retriever, **knobs)
        if self.knobs.variant == "spec":
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
        paper = self.knobs.variant == "paper"
        levels = paper and self.knobs.use_fulfillment
        facts = Facts(levels=levels, partial=self.knobs.use_clues)
        rounds: Rounds | Planning
        if paper:
            rounds = Planning(
                trace,
                self.knobs,
                facts,
                draft=self.draft,
                update=self.update,
                repair=getattr(self, "repair", None),
                extract=self.extract,
            )
        else:
            rounds = Rounds(trace, self.knobs, facts, next=self.next, read=self.read)
        try:
            reason = rounds.run()
        except BudgetSpentError:
            reason = "budget"
        notes = facts.notes()
        if not notes and trace.passages:
            trace.count("no_facts")
            notes = render(trace.passages, max_tokens=self.knobs.context_tokens)
        answer = trace.answer(
            self.synthesize, last=True, notes=notes, question=trace.question, instruction=""
        )
        told = [fact.to_dict() for fact in facts.all()]
        plan = [task.model_dump() for task in rounds.plan] if isinstance(rounds, Planning) else None
        return trace.prediction(answer, reason, facts=told, plan=plan)
