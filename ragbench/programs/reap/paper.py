"""The `paper` form of `reap`: a plan of requirements that each round rewrites.

A plan updater (where all facts of the last round are direct) or a re-planner (otherwise) names
look-ups, which run at once and are read one by one.

A malformed reply is asked again with another sample (at temperature 0 it would come back
unchanged), and a second one in a row is replaced by the open requirements in their own words; the
planners see the queries tried, and exact repeats are refused; placeholders that a planner left in a
query are filled, and forked, here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dspy

from ragbench.programs.core import StopReason, Trace, render
from ragbench.programs.reap.facts import Facts, Known
from ragbench.programs.reap.knobs import REAPKnobs
from ragbench.programs.reap.plan import (
    LookUp,
    MalformedPlanError,
    checked,
    listed,
    look_ups,
    next_actions,
)
from ragbench.retrievers import Passage
from ragbench.signatures import PlanAction, SubTask

#: Sampling of a second try, in place of a reply that could not be used.
RETRY_TEMPERATURE = 0.7
#: Requirements of the first plan; tries at it; rounds with those that were rolled back.
MAX_TASKS, DRAFT_TRIES, MAX_ATTEMPTS = 5, 3, 10


class Planning:
    """The plan of one question, and the rounds that follow it."""

    def __init__(
        self,
        trace: Trace,
        knobs: REAPKnobs,
        facts: Facts,
        *,
        draft: dspy.Module,
        update: dspy.Module,
        repair: dspy.Module | None,
        extract: dspy.Module,
    ) -> None:
        self.trace, self.knobs, self.facts = trace, knobs, facts
        self._drafting, self._update, self._repair = draft, update, repair
        self._extracting = extract
        self.plan: list[SubTask] = []
        self._searched: list[str] = []

    def run(self) -> StopReason:
        """Plan and look up until the facts are said to suffice, nothing is left, or the limit."""
        self.plan = self._draft()
        last: list[Known] = []
        rounds = malformed = 0
        for _ in range(MAX_ATTEMPTS):
            if rounds == self.knobs.max_rounds:
                break
            actions: list[PlanAction] = []
            ready = False
            try:
                self.plan, actions, ready = self._advance(last, sample=malformed)
                malformed = 0
            except MalformedPlanError:
                self.trace.count("rollback")
                malformed += 1
                if malformed < 2:
                    continue
                malformed = 0
            if ready and self._searched:
                return "answered"
            wanted = self._wanted(actions)
            if not wanted:
                return "no_progress"
            last = self._look_up(wanted)
            rounds += 1
        return "max_steps"

    def _draft(self) -> list[SubTask]:
        for sample in range(DRAFT_TRIES):
            reply = self.trace.ask(
                self._drafting,
                otherwise={"goal": "", "subtasks": []},
                question=self.trace.question,
                max_tasks=MAX_TASKS,
                config=_sampling(sample),
            )
            try:
                plan = checked((reply.subtasks or [])[: MAX_TASKS])
            except MalformedPlanError:
                self.trace.count("bad_draft")
                continue
            self.trace.step(
                "decompose", thought=str(reply.goal or ""), observation="\n".join(listed(plan))
            )
            return plan
        return [SubTask(id="1", question=self.trace.question)]

    def _advance(
        self, last: Sequence[Known], *, sample: int
    ) -> tuple[list[SubTask], list[PlanAction], bool]:
        """The new plan, its next actions, and whether the facts are said to suffice.

        Raises:
            MalformedPlanError: the reply cannot be used.
        """
        failed = any(fact.level != "direct" for fact in last)
        repair = self._repair if failed else None
        reply = self.trace.ask(
            repair or self._update,
            otherwise={"next_step": "continue", "new_plan": [], "actions": []},
            question=self.trace.question,
            facts=self.facts.shown(),
            history=self._searched,
            plan=listed(self.plan),
            last_facts=[self.facts.show(fact) for fact in last],
            config=_sampling(sample),
        )
        ready = reply.next_step == "synthesize"
        if not (reply.actions or ready):
            raise MalformedPlanError("no plan")
        changed = checked(reply.new_plan) if reply.new_plan else self.plan
        self.trace.step(
            "repair" if repair else "plan",
            thought=str(reply.get("diagnosis", "") or ""),
            observation="\n".join(listed(changed)),
            notes={"next": reply.next_step, "strategy": str(reply.get("strategy", "") or "")},
        )
        return changed, list(reply.actions or []), ready

    def _wanted(self, actions: Sequence[PlanAction]) -> list[LookUp]:
        """The look-ups of a round: new ones of `actions`, else of the plan's open requirements.

        There are none only after the first round, which at least searches the question.
        """
        facts, most = self.facts.all(), self.knobs.max_actions
        for tried in (actions, next_actions(self.plan, facts)):
            wanted, events = look_ups(tried, self.plan, facts, self._searched, most=most)
            for event, n in events.items():
                self.trace.count(event, n)
            if wanted:
                return wanted
        question = self.trace.question
        return [] if self._searched else [LookUp("", question, question)]

    def _look_up(self, wanted: Sequence[LookUp]) -> list[Known]:
        trace = self.trace
        affordable = trace.budget.max_retrievals - trace.budget.retrievals
        wanted = wanted[: max(affordable, 1)]
        rankings = trace.search_many([item.query for item in wanted], k=self.knobs.k)
        self._searched += [item.query for item in wanted]
        known = self.facts.shown()
        jobs = list(zip(wanted, rankings, strict=True))
        results = [self.facts.read(trace, [], [], item) for item, hits in jobs if not hits]
        results += trace.fan_out(
            lambda job: self._extract(*job, known), [job for job in jobs if job[1]]
        )
        found = [fact for facts in results for fact in facts]
        self.facts.keep(found)
        return found

    def _extract(self, item: LookUp, passages: list[Passage], known: list[str]) -> list[Known]:
        """The facts that `passages` give for one look-up; a failed one where they give none."""
        reply = self.trace.ask(
            self._extracting,
            otherwise={"facts": []},
            context=render(passages, max_tokens=self.knobs.context_tokens),
            question=self.trace.question,
            known_facts=known,
            requirement=item.text,
        )
        return self.facts.read(self.trace, reply.facts or [], passages, item)


def _sampling(sample: int) -> dict[str, Any]:
    """Settings of a call that is the `sample`-th repetition of one that failed; 0 for the first."""
    return {"temperature": RETRY_TEMPERATURE, "rollout_id": sample} if sample else {}
