"""REAP: plan sub-tasks, extract facts for each, and answer from the facts alone.

Recursive Evaluation and Adaptive Planning (2025, arXiv:2511.09966). The paper fine-tunes its parts
on plans made by a stronger model; here they are prompted, so a run of this is no reproduction of
its numbers. Variants:

- `seed`: the simplified specification. A planner names one sub-task at a time, an extractor reads
  facts off its passages, an evaluator scores whether they suffice, once a round.
- `paper`: a plan of requirements that depend on each other; each round a plan updater (all last
  facts direct) or a re-planner (otherwise) rewrites it and names look-ups, which run at once.

Departures of `paper`: a malformed reply is asked again with another sample (at temperature 0 it
would come back unchanged), and a second one in a row is replaced by the open requirements in their
own words; the planners see the queries tried, and exact repeats are refused; placeholders that a
planner left in a query are filled, and forked, here. In both, the first round always searches, and
a question for which no fact was found is answered from the passages themselves (`no_facts`): from
nothing, a model can only repeat the question.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dspy
from pydantic import Field

from ragbench.data.base import question_key
from ragbench.programs.base import PROGRAMS, Autonomy, ProgramKnobs, RAGProgram, predict
from ragbench.programs.drivers import unit
from ragbench.programs.reap_plan import (
    Known,
    LookUp,
    MalformedPlanError,
    checked,
    known_facts,
    look_ups,
    next_actions,
    says_again,
)
from ragbench.programs.trace import StopReason, Trace, render
from ragbench.retrievers.base import Passage, Retriever
from ragbench.signatures.answering import SynthesizeAnswer
from ragbench.signatures.extracting import FactExtract
from ragbench.signatures.judging import EvaluateCompleteness
from ragbench.signatures.planning import DraftPlan, NextSubTask, RepairPlan, UpdatePlan
from ragbench.signatures.types import PlanAction, SubTask

#: Sampling of a second try, in place of a reply that could not be used.
_RETRY_TEMPERATURE = 0.7


class REAPKnobs(ProgramKnobs):
    """Knobs of `reap`."""

    max_rounds: int = Field(5, ge=1, le=50, description="rounds at the most")
    complete_at: float = Field(0.8, ge=0, le=1, description="score that ends the search (seed)")
    max_tasks: int = Field(5, ge=1, le=20, description="requirements of the first plan (paper)")
    max_actions: int = Field(4, ge=1, le=20, description="look-ups in one round (paper)")
    max_attempts: int = Field(10, ge=1, le=100, description="rounds with failed ones (paper)")
    draft_tries: int = Field(3, ge=1, le=10, description="tries at the first plan (paper)")
    use_replanner: bool = Field(True, description="repair the plan after a failed look-up (paper)")
    use_fulfillment: bool = Field(True, description="tell direct facts from partial ones (paper)")
    use_clues: bool = Field(True, description="keep partial facts (paper)")


@PROGRAMS.register("reap")
class REAP(RAGProgram):
    """Plan sub-tasks, extract facts for each, and answer from the facts."""

    name = "reap"
    family = "agentic"
    paper = "arXiv:2511.09966"
    calls = (
        "seed: 1 + 3 per round, + 1 if the planner ends it (<= 16); "
        "paper: 2 + per round 1 + look-ups, + 1 if the planner ends it (<= 27)"
    )
    autonomy = Autonomy("no", "yes", "partly")
    Knobs = REAPKnobs
    variants = {"seed": {}, "paper": {}}  # noqa: RUF012

    def __init__(self, retriever: Retriever, **knobs: object) -> None:
        super().__init__(retriever, **knobs)
        if self.knobs.variant == "seed":
            self.next = predict(NextSubTask)
            self.evaluate = predict(EvaluateCompleteness)
        else:
            self.draft = predict(DraftPlan)
            self.update = predict(UpdatePlan)
            if self._repairs:
                self.repair = predict(RepairPlan)
        self.extract = predict(FactExtract)
        self.synthesize = predict(SynthesizeAnswer)

    @property
    def _repairs(self) -> bool:
        return bool(self.knobs.use_replanner and self.knobs.use_fulfillment)

    def solve(self, trace: Trace) -> dspy.Prediction:
        """Rounds of planning, searching and extracting, then an answer from the facts."""
        extra: dict[str, Any] = {}
        if self.knobs.variant == "seed":
            reason = self._seed(trace)
        else:
            reason, plan = self._paper(trace)
            extra["plan"] = [task.model_dump() for task in plan]
        answer = self.force(trace)
        facts = [
            {"statement": f.statement, "fulfillment": f.level, "pids": list(f.pids)}
            for f in self._facts(trace)
        ]
        return trace.prediction(answer, reason, facts=facts, **extra)

    def force(self, trace: Trace) -> str:
        """The synthesizer's answer from the facts so far; from passages where there are none."""
        notes = [
            f"(partial) {fact.statement}"
            if fact.level == "partial" and self._levels
            else fact.statement
            for fact in self._facts(trace)
        ]
        if not notes and trace.passages:
            trace.count("no_facts")
            notes = render(trace.passages, max_tokens=self.knobs.context_tokens)
        return trace.answer(
            self.synthesize,
            last=True,
            notes=list(dict.fromkeys(notes)),
            question=trace.question,
            instruction="",
        )

    # -- one sub-task at a time

    def _seed(self, trace: Trace) -> StopReason:
        missing: list[str] = []
        for _ in range(self.knobs.max_rounds):
            query, done = self._next_query(trace, missing)
            if not query:
                return "answered" if done else "no_progress"
            passages = trace.search(query, k=self.knobs.k)
            self._extract(trace, LookUp("", query, query), passages, self._shown(trace))
            known = self._shown(trace)
            if not known:  # nothing to judge, and small models call it complete
                continue
            verdict = trace.ask(
                self.evaluate,
                otherwise={"score": 0.0, "missing": []},
                question=trace.question,
                facts=known,
            )
            score, missing = unit(verdict.score), [m.strip() for m in verdict.missing]
            trace.step("judge", observation="\n".join(missing), notes={"score": score})
            if score >= self.knobs.complete_at:
                return "answered"
        return "max_steps"

    def _next_query(self, trace: Trace, missing: Sequence[str]) -> tuple[str, bool]:
        """A query not tried before (blank if there is none), and whether the planner is done."""
        tried = {question_key(search.query) for search in trace.searches}
        reply = trace.ask(
            self.next,
            otherwise={"done": False, "query": ""},
            question=trace.question,
            facts=self._shown(trace),
            history=[search.query for search in trace.searches],
        )
        query = reply.query.strip()
        done = bool(reply.done) and bool(trace.searches)
        trace.step("plan", observation="" if done else query, notes={"done": bool(reply.done)})
        if done:
            return "", True
        if question_key(query) in tried:
            trace.count("repeated_query")
        for candidate in (query, *missing, trace.question):
            if question_key(candidate) and question_key(candidate) not in tried:
                return candidate, False
        return "", False

    # -- a plan of requirements

    def _paper(self, trace: Trace) -> tuple[StopReason, list[SubTask]]:
        plan = self._draft(trace)
        last: list[Known] = []
        rounds = malformed = 0
        for _ in range(self.knobs.max_attempts):
            if rounds == self.knobs.max_rounds:
                break
            try:
                changed, actions, ready = self._advance(trace, plan, last, sample=malformed)
                malformed = 0
            except MalformedPlanError:
                trace.count("rollback")
                malformed += 1
                if malformed < 2:
                    continue
                changed, actions, ready, malformed = plan, [], False, 0
            if ready and trace.searches:
                return "answered", changed
            plan = changed
            wanted = self._wanted(trace, plan, actions)
            if not wanted:
                return "no_progress", plan
            last = self._look_up(trace, wanted)
            rounds += 1
        return "max_steps", plan

    def _draft(self, trace: Trace) -> list[SubTask]:
        for sample in range(self.knobs.draft_tries):
            reply = trace.ask(
                self.draft,
                otherwise={"goal": "", "subtasks": []},
                question=trace.question,
                max_tasks=self.knobs.max_tasks,
                config=_sampling(sample),
            )
            try:
                plan = checked(reply.subtasks[: self.knobs.max_tasks])
            except MalformedPlanError:
                trace.count("bad_draft")
                continue
            trace.step("decompose", thought=reply.goal, observation=_listing(plan))
            return plan
        return [SubTask(id="1", question=trace.question)]

    def _advance(
        self, trace: Trace, plan: list[SubTask], last: Sequence[Known], *, sample: int
    ) -> tuple[list[SubTask], list[PlanAction], bool]:
        """The new plan, its next actions, and whether the facts are said to suffice.

        Raises:
            MalformedPlanError: the reply cannot be used.
        """
        repair = self._repairs and any(fact.level != "direct" for fact in last)
        reply = trace.ask(
            self.repair if repair else self.update,
            otherwise={"next_step": "continue", "new_plan": [], "actions": []},
            question=trace.question,
            facts=self._shown(trace),
            history=[search.query for search in trace.searches],
            plan=plan,
            last_facts=[self._show(fact) for fact in last],
            config=_sampling(sample),
        )
        ready = reply.next_step == "synthesize"
        if reply.get("parse_fallback") or not (reply.actions or ready):
            raise MalformedPlanError("no plan")
        changed = checked(reply.new_plan) if reply.new_plan else plan
        trace.step(
            "repair" if repair else "plan",
            thought=str(reply.get("diagnosis", "") or ""),
            observation=_listing(changed),
            notes={"next": reply.next_step, "strategy": str(reply.get("strategy", "") or "")},
        )
        return changed, list(reply.actions), ready

    def _wanted(
        self, trace: Trace, plan: Sequence[SubTask], actions: Sequence[PlanAction]
    ) -> list[LookUp]:
        """The look-ups of a round: new ones of `actions`, else of the plan's open requirements.

        There are none only after the first round, which at least searches the question.
        """
        facts, most = self._facts(trace), self.knobs.max_actions
        wanted = look_ups(actions, plan, facts, trace, most=most)
        if not wanted:
            wanted = look_ups(next_actions(plan, facts), plan, facts, trace, most=most)
        if not wanted and not trace.searches:
            return [LookUp("", trace.question, trace.question)]
        return wanted

    def _look_up(self, trace: Trace, wanted: Sequence[LookUp]) -> list[Known]:
        affordable = trace.budget.max_retrievals - trace.budget.retrievals
        wanted = wanted[: max(affordable, 1)]
        found = trace.search_many([item.query for item in wanted], k=self.knobs.k)
        jobs = list(zip(wanted, found, strict=True))
        known = self._shown(trace)
        results = trace.fan_out(lambda job: self._extract(trace, *job, known), jobs)
        return [fact for facts in results for fact in facts]

    # -- what both share

    def _extract(
        self, trace: Trace, item: LookUp, passages: Sequence[Passage], known: list[str]
    ) -> list[Known]:
        """The facts that `passages` give for one look-up; a failed one where they give none."""
        reply = trace.ask(
            self.extract,
            otherwise={"facts": []},
            context=render(passages, max_tokens=self.knobs.context_tokens),
            question=trace.question,
            known_facts=known,
            requirement=item.text,
        )
        facts = [
            Known(
                fact.statement.strip(),
                fact.fulfillment if self._levels or fact.fulfillment == "failed" else "direct",
                item.requirement,
                tuple(passages[n - 1].pid for n in fact.evidence if 0 < n <= len(passages)),
            )
            for fact in reply.facts
            if fact.statement.strip() and not self._echoes(trace, fact.statement, item)
        ]
        facts = facts or [Known(f"nothing found for: {item.query}", "failed", item.requirement)]
        trace.step(
            "extract",
            input=item.query,
            observation="\n".join(f"[{fact.level}] {fact.statement}" for fact in facts),
            pids=tuple(dict.fromkeys(pid for fact in facts for pid in fact.pids)),
            notes={
                "facts": [
                    {
                        "statement": fact.statement,
                        "level": fact.level,
                        "requirement": fact.requirement,
                        "pids": fact.pids,
                    }
                    for fact in facts
                ]
            },
        )
        return facts

    def _echoes(self, trace: Trace, statement: str, item: LookUp) -> bool:
        """Whether a "fact" only says again what was asked, as small models do."""
        if not any(says_again(statement, text) for text in (trace.question, item.text, item.query)):
            return False
        trace.count("echoed_question")
        return True

    @property
    def _levels(self) -> bool:
        return bool(self.knobs.variant == "paper" and self.knobs.use_fulfillment)

    def _facts(self, trace: Trace) -> list[Known]:
        return known_facts(trace, partial=self.knobs.use_clues or not self._levels)

    def _shown(self, trace: Trace) -> list[str]:
        return [self._show(fact) for fact in self._facts(trace)]

    def _show(self, fact: Known) -> str:
        marks = [fact.requirement, fact.level if self._levels else ""]
        label = ", ".join(filter(None, marks))
        return f"[{label}] {fact.statement}" if label else fact.statement


def _sampling(sample: int) -> dict[str, Any]:
    """Settings of a call that is the `sample`-th repetition of one that failed; 0 for the first."""
    return {"temperature": _RETRY_TEMPERATURE, "rollout_id": sample} if sample else {}


def _listing(plan: Sequence[SubTask]) -> str:
    return "\n".join(
        f"{task.id}: {task.question}"
        + (f" (after {', '.join(task.depends_on)})" if task.depends_on else "")
        for task in plan
    )
