"""REAP: plan sub-tasks, extract facts for each, and answer only from the facts.

Recursive Evaluation and Adaptive Planning (2025, arXiv:2511.09966), with prompts instead of the
paper's fine-tuning.

- `spec`: a planner names the first look-ups. Each round searches for all of them. One call extracts
  facts from the passages, scores their completeness, and names the missing information.
- `paper`: each round rewrites a plan of requirements that depend on each other. A plan updater (if
  all facts of the last round are direct) or a re-planner names look-ups, which are searched
  together and read one by one. After a malformed reply, another sample is requested. After a
  second one in a row, the open requirements are searched in their own words.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from typing import NamedTuple

import dspy
from pydantic import Field

from ragbench import signatures
from ragbench.programs import core
from ragbench.programs.core import (
    PROGRAMS,
    Passages,
    ProgramKnobs,
    RAGProgram,
    Trace,
    bounded,
    one_line,
    predict,
)
from ragbench.programs.core.confidence import probability
from ragbench.programs.core.replies import sampling
from ragbench.retrievers import Passage
from ragbench.text_normalization import question_key

#: Requirements of the first plan; tries at it; rounds with those that were rolled back.
MAX_TASKS = 5
DRAFT_TRIES = 3
MAX_ATTEMPTS = 10

_PLACEHOLDER = re.compile(r"\{\s*([\w.-]+)\s*\}")

#: Score that ends the search of `spec`.
_COMPLETE = 0.8
#: Maximum number of look-ups of a round.
_MAX_ACTIONS = 4


class REAPKnobs(ProgramKnobs):
    """Knobs of `reap`."""

    max_rounds: int = bounded(5, 1, 50, "maximum number of rounds")
    use_replanner: bool = Field(True, description="repair the plan after a failed look-up (paper)")
    use_fulfillment: bool = Field(True, description="distinguish direct and partial facts (paper)")
    use_clues: bool = Field(True, description="keep partial facts (paper)")


class MalformedPlanError(Exception):
    """An invalid plan. The round that made it is rolled back."""


class LookUp(NamedTuple):
    """One query for one requirement of the plan."""

    requirement: str
    text: str
    query: str


class SupportedFact(NamedTuple):
    """A fact from the passages, with the pids that prove it."""

    statement: str
    level: str
    requirement: str = ""
    pids: tuple[str, ...] = ()


@dataclass
class Progress:
    """The plan, searches and facts of one question.

    `levels` distinguishes direct from partial facts. Each requirement has distinct facts. Without
    `clues` only direct facts are kept.
    """

    trace: Trace
    levels: bool
    clues: bool
    facts: list[SupportedFact] = field(default_factory=list)
    searched: list[str] = field(default_factory=list)
    plan: list[signatures.SubTask] = field(default_factory=list)

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Search for as many queries as the budget allows, at least one.

        Args:
            queries: Queries, in order of priority.
            k: Maximum number of passages per query.
        """
        queries = queries[: max(self.trace.budget.retrievals_left, 1)]
        rankings = self.trace.search_many(queries, k=k)
        self.searched += queries
        return rankings

    def read(
        self, stated: Sequence[signatures.StatedFact], passages: Passages, item: LookUp
    ) -> list[SupportedFact]:
        """Return the facts of one look-up, or a failed fact if none is supported.

        Facts without a passage of the prompt as evidence are dropped, counted as `unproven_fact`.

        Args:
            stated: Facts of the reply.
            passages: Passages of the prompt.
            item: The look-up.
        """
        read = []
        for fact in stated:
            statement = fact.statement.strip()
            pids = tuple(passages[n - 1].pid for n in fact.evidence if 0 < n <= len(passages))
            level = getattr(fact, "fulfillment", "direct")
            level = level if self.levels or level == "failed" else "direct"
            if statement and pids:
                read.append(SupportedFact(statement, level, item.requirement, pids))
            elif statement:
                self.trace.count("unproven_fact")
        read = read or [
            SupportedFact(f"nothing found for: {item.query}", "failed", item.requirement)
        ]
        lines = []
        for fact_read in read:
            labelled = self.levels or fact_read.level == "failed"
            lines.append(
                f"[{fact_read.level}] {fact_read.statement}" if labelled else fact_read.statement
            )
        pids = tuple(dict.fromkeys(pid for fact in read for pid in fact.pids))
        self.trace.step("extract", input=item.query, observation="\n".join(lines), pids=pids)
        return read

    def keep(self, read: Sequence[SupportedFact]) -> None:
        keys = {(fact.requirement, question_key(fact.statement)) for fact in self.facts}
        for fact in read:
            key = fact.requirement, question_key(fact.statement)
            counts = fact.level == "direct" or (fact.level == "partial" and self.clues)
            if counts and key not in keys:
                keys.add(key)
                self.facts.append(fact)

    def formatted(self, facts: Sequence[SupportedFact]) -> list[str]:
        """Render `facts` for a planner, with requirement and level if they exist."""
        lines = []
        for fact in facts:
            label = ", ".join(filter(None, [fact.requirement, fact.level if self.levels else ""]))
            lines.append(f"[{label}] {fact.statement}" if label else fact.statement)
        return lines


@PROGRAMS.register("reap")
class REAP(RAGProgram[REAPKnobs]):
    """Plan sub-tasks, extract facts for each, and answer from the facts."""

    variants = {"spec": {}, "paper": {}}  # noqa: RUF012

    def make_predictors(self) -> None:
        if self.knobs.variant == "spec":
            self.next = predict(signatures.NextSubTask)
            self.read = predict(signatures.ReadAndJudge)
        else:
            self.draft = predict(signatures.DraftPlan)
            self.update = predict(signatures.UpdatePlan)
            if self.knobs.use_replanner and self.knobs.use_fulfillment:
                self.repair = predict(signatures.RepairPlan)
            self.extract = predict(signatures.FactExtract)
        self.synthesize = predict(signatures.SynthesizeAnswer)

    def solve(self, trace: Trace) -> dspy.Prediction:
        paper = self.knobs.variant == "paper"
        done = Progress(trace, paper and self.knobs.use_fulfillment, self.knobs.use_clues)
        try:
            if paper:
                reason = self._by_plan(done)
            else:
                reason = self._by_rounds(done)
        except core.BudgetSpentError:
            reason = "budget"
        notes = [("(partial) " * (f.level == "partial")) + f.statement for f in done.facts]
        answer = trace.answer(self.synthesize, last=True, notes=list(dict.fromkeys(notes)))
        facts = []
        for fact in done.facts:
            fulfillment = {"fulfillment": fact.level} if done.levels else {}
            facts.append({"statement": fact.statement, "pids": list(fact.pids), **fulfillment})
        plan = [task.model_dump() for task in done.plan] if paper else None
        return trace.prediction(answer, reason, facts=facts, plan=plan)

    # -- spec

    def _by_rounds(self, done: Progress) -> core.StopReason:
        missing: list[str] = []
        queries: list[str] = []
        for _ in range(self.knobs.max_rounds):
            if not queries:
                queries, ended = self._next_queries(done, missing)
                if not queries:
                    if ended:
                        return "answered"
                    return "no_progress"
            complete, missing = self._round(done, queries)
            if complete:
                return "answered"
            queries = self._fresh(done, missing)
        return "max_steps"

    def _next_queries(self, done: Progress, missing: list[str]) -> tuple[list[str], bool]:
        """Return queries not searched before, if any, and True if the planner is done."""
        trace = done.trace
        facts = done.formatted(done.facts)
        reply = trace.ask(self.next, missing=missing, facts=facts, history=done.searched)
        queries = self._fresh(done, reply.queries)
        ended = bool(reply.done) and bool(done.searched)
        observation = "" if ended else "\n".join(queries)
        trace.step("plan", observation=observation, notes={"done": bool(reply.done)})
        if ended:
            return [], True
        if not queries and not done.searched:
            queries = [trace.question]
        return queries, False

    def _fresh(self, done: Progress, queries: Sequence[str]) -> list[str]:
        """Return at most `_MAX_ACTIONS` queries that are not blank and not searched before."""
        tried = set(map(question_key, done.searched))
        fresh: dict[str, str] = {}
        for query in queries:
            key = question_key(query)
            if key in tried:
                done.trace.count("repeated_query")
            elif key:
                fresh.setdefault(key, query.strip())
        return list(fresh.values())[:_MAX_ACTIONS]

    def _round(self, done: Progress, queries: list[str]) -> tuple[bool, list[str]]:
        trace = done.trace
        rankings = done.search(queries, self.knobs.k)
        passages = core.fuse(rankings)
        queries = queries[: len(rankings)]
        item = LookUp("", "", "; ".join(queries))
        if not passages:
            done.read([], [], item)
            return False, []
        reply = trace.ask(
            self.read,
            context=self.as_context(passages),
            known_facts=done.formatted(done.facts),
            requirement=queries,
        )
        done.keep(done.read(reply.facts, passages, item))
        score = probability(reply.score)
        missing = [text.strip() for text in reply.missing]
        trace.step("judge", observation="\n".join(missing), notes={"score": score})
        # Small models call an empty list of facts complete.
        return score >= _COMPLETE and bool(done.facts), missing

    # -- paper

    def _by_plan(self, done: Progress) -> core.StopReason:
        """Plan and look up until the planner ends it, no look-up is new, or the limit."""
        done.plan = self._drafted(done.trace)
        newest: list[SupportedFact] = []
        rounds = malformed = 0
        for _ in range(MAX_ATTEMPTS):
            if rounds == self.knobs.max_rounds:
                break
            actions = list[signatures.PlanAction]()
            ready = False
            try:
                actions, ready = self._advance(done, newest, sample=malformed)
                malformed = 0
            except MalformedPlanError:
                done.trace.count("rollback")
                malformed = (malformed + 1) % 2
                if malformed:
                    continue
            if ready and done.searched:
                return "answered"
            look_ups = self._wanted(done, actions)
            if not look_ups:
                return "no_progress"
            newest = self._looked_up(done, look_ups)
            rounds += 1
        return "max_steps"

    def _drafted(self, trace: Trace) -> list[signatures.SubTask]:
        for sample in range(DRAFT_TRIES):
            reply = trace.ask(self.draft, max_tasks=MAX_TASKS, config=sampling(sample))
            try:
                plan = checked(reply.subtasks[:MAX_TASKS])
            except MalformedPlanError:
                trace.count("bad_draft")
                continue
            listed = "\n".join(_listed(plan))
            trace.step("decompose", thought=reply.goal, observation=listed)
            return plan
        return [signatures.SubTask(id="1", question=trace.question)]

    def _advance(
        self, done: Progress, newest: Sequence[SupportedFact], *, sample: int
    ) -> tuple[list[signatures.PlanAction], bool]:
        failed = any(fact.level != "direct" for fact in newest)
        repair = getattr(self, "repair", None) if failed else None
        reply = done.trace.ask(
            repair or self.update,
            otherwise={"next_step": "continue"},
            facts=done.formatted(done.facts),
            history=done.searched,
            plan=_listed(done.plan),
            last_facts=done.formatted(newest),
            config=sampling(sample),
        )
        ready = reply.next_step == "synthesize"
        if not (reply.actions or ready):
            raise MalformedPlanError("no plan")
        if reply.new_plan:
            done.plan = checked(reply.new_plan)
        action = "repair" if repair else "plan"
        plan = "\n".join(_listed(done.plan))
        thought = reply.get("diagnosis", "")
        notes = {"next": reply.next_step}
        if strategy := reply.get("strategy"):
            notes["strategy"] = strategy
        done.trace.step(action, thought=thought, observation=plan, notes=notes)
        return list(reply.actions), ready

    def _wanted(self, done: Progress, actions: Sequence[signatures.PlanAction]) -> list[LookUp]:
        """Return the look-ups of a round: new ones of `actions`, else the plan's open requirements.

        The first round searches for the question if nothing else is left. Later rounds may be
        empty.
        """
        met = {fact.requirement for fact in done.facts}
        ready = []
        for task in done.plan:
            if task.status == "open" and task.id not in met and met.issuperset(task.depends_on):
                ready.append(signatures.PlanAction(requirement_id=task.id, query=task.question))
        question = done.trace.question
        if done.searched:
            fallback = []
        else:
            fallback = [LookUp("", question, question)]
        return self._look_ups(done, actions) or self._look_ups(done, ready) or fallback

    def _look_ups(self, done: Progress, actions: Sequence[signatures.PlanAction]) -> list[LookUp]:
        """Return the new look-ups of `actions`, with placeholders filled from the facts.

        For an unknown requirement, the query is also the text of the requirement.
        """
        texts = {task.id: task.question for task in done.plan}
        tried = set(map(question_key, done.searched))
        chosen: list[LookUp] = []
        for action in actions:
            for query in filled(action.query, done.facts, most=_MAX_ACTIONS):
                key = question_key(query)
                if key in tried:
                    done.trace.count("repeated_query")
                elif key:
                    tried.add(key)
                    text = texts.get(action.requirement_id, query)
                    chosen.append(LookUp(action.requirement_id, text, query))
        return chosen[:_MAX_ACTIONS]

    def _looked_up(self, done: Progress, look_ups: Sequence[LookUp]) -> list[SupportedFact]:
        rankings = done.search([item.query for item in look_ups], self.knobs.k)
        known_facts = done.formatted(done.facts)

        def extracted(job: tuple[LookUp, list[Passage]]) -> list[SupportedFact]:
            item, passages = job
            reply = done.trace.ask(
                self.extract,
                context=self.as_context(passages),
                known_facts=known_facts,
                requirement=item.text,
            )
            return done.read(reply.facts, passages, item)

        jobs = list(zip(look_ups, rankings, strict=False))  # the budget may end the searches early
        read = [done.read([], [], item) for item, hits in jobs if not hits]
        read += done.trace.fan_out(extracted, [job for job in jobs if job[1]])
        new_facts = list(chain.from_iterable(read))
        done.keep(new_facts)
        return new_facts


def checked(plan: Sequence[signatures.SubTask]) -> list[signatures.SubTask]:
    """Return `plan` without unknown dependencies.

    Raises:
        MalformedPlanError: The plan is empty, has blank or repeated requirements, or a cycle.
    """
    ids = [task.id for task in plan]
    if not plan or len(set(ids)) < len(ids) or not all(t.question.strip() for t in plan):
        raise MalformedPlanError("empty, blank or repeated requirements")
    tasks = []
    for task in plan:
        tasks.append(
            task.model_copy(update={"depends_on": [d for d in task.depends_on if d in ids]})
        )
    try:
        TopologicalSorter({task.id: task.depends_on for task in tasks}).prepare()
    except CycleError as error:
        raise MalformedPlanError(f"requirements depend on each other: {error.args[1]}") from None
    return tasks


def filled(text: str, facts: Sequence[SupportedFact], *, most: int) -> list[str]:
    """Replace each {id} with the facts of that requirement.

    Args:
        text: Query with placeholders. A placeholder without facts is removed.
        facts: Known facts.
        most: Maximum number of results.

    Returns:
        One text for each combination of facts.
    """
    match = _PLACEHOLDER.search(text)
    if match is None:
        return [one_line(text)]
    stated = [f.statement.rstrip(". ") for f in facts if f.requirement == match[1]]
    forks: list[str] = []
    for value in stated or [""]:
        forks += filled(text[: match.start()] + value + text[match.end() :], facts, most=most)
    return forks[:most]


def _listed(plan: Sequence[signatures.SubTask]) -> list[str]:
    lines = []
    for task in plan:
        line = f"{task.id}: {task.question}"
        if task.depends_on:
            line += f" (after {', '.join(task.depends_on)})"
        if task.status != "open":
            line += f" ({task.status})"
        lines.append(line)
    return lines
