"""The `spec` form of `reap`: rounds of look-ups, each read and judged in one call.

A planner names the first look-ups, as many as need nothing of each other. Each round searches them
all, and one call reads facts off the passages, scores whether the facts suffice, and names what is
still to be looked up. The planner is asked again only where that names nothing new.
"""

from __future__ import annotations

from collections.abc import Sequence

import dspy

from ragbench.data import question_key
from ragbench.programs.core import StopReason, Trace, fuse, render, unit
from ragbench.programs.reap.facts import Facts
from ragbench.programs.reap.knobs import REAPKnobs
from ragbench.programs.reap.plan import LookUp


class Rounds:
    """The rounds of one question; what they find out is kept in `facts`."""

    def __init__(
        self, trace: Trace, knobs: REAPKnobs, facts: Facts, *, next: dspy.Module, read: dspy.Module
    ) -> None:
        self.trace, self.knobs, self.facts = trace, knobs, facts
        self._next, self._read = next, read
        self._searched: list[str] = []

    def run(self) -> StopReason:
        """Search and read until the facts suffice, nothing is left to look up, or the limit."""
        missing: list[str] = []
        queries: list[str] = []
        for _ in range(self.knobs.max_rounds):
            done = False
            if not queries:
                queries, done = self._plan(missing)
            if not queries:
                return "answered" if done else "no_progress"
            complete, missing = self._round(queries)
            if complete:
                return "answered"
            queries = self._fresh(missing)
        return "max_steps"

    def _plan(self, missing: Sequence[str]) -> tuple[list[str], bool]:
        """Queries not tried before (there may be none), and whether the planner is done."""
        reply = self.trace.ask(
            self._next,
            otherwise={"done": False, "queries": []},
            question=self.trace.question,
            facts=self.facts.shown(),
            missing=list(missing),
            history=self._searched,
        )
        queries = self._fresh(reply.queries or [])
        done = bool(reply.done) and bool(self._searched)
        shown = "" if done else "\n".join(queries)
        self.trace.step("plan", observation=shown, notes={"done": bool(reply.done)})
        if done:
            return [], True
        return queries or self._fresh([self.trace.question]), False

    def _fresh(self, queries: Sequence[str]) -> list[str]:
        """At most `max_actions` of `queries`, without blanks and what was searched before."""
        tried = set(map(question_key, self._searched))
        fresh: dict[str, str] = {}
        for query in queries:
            key = question_key(query)
            if key in tried:
                self.trace.count("repeated_query")
            elif key:
                fresh.setdefault(key, query.strip())
        return list(fresh.values())[: self.knobs.max_actions]

    def _round(self, queries: list[str]) -> tuple[bool, list[str]]:
        """Whether the facts suffice after a round of `queries`, and what is called missing."""
        trace = self.trace
        affordable = trace.budget.max_retrievals - trace.budget.retrievals
        queries = queries[: max(affordable, 1)]
        passages = fuse(trace.search_many(queries, k=self.knobs.k), fusion="rrf")
        self._searched += queries
        query = "; ".join(queries)
        item = LookUp("", query, query)
        if not passages:
            self.facts.read(trace, [], [], item)
            return False, []
        reply = trace.ask(
            self._read,
            otherwise={"facts": [], "score": 0.0, "missing": []},
            context=render(passages, max_tokens=self.knobs.context_tokens),
            question=trace.question,
            known_facts=self.facts.shown(),
            sub_tasks=queries,
        )
        self.facts.keep(self.facts.read(trace, reply.facts or [], passages, item))
        score, missing = unit(reply.score), [text.strip() for text in reply.missing or []]
        trace.step("judge", observation="\n".join(missing), notes={"score": score})
        # Of nothing there is nothing to judge, and small models call it complete.
        return score >= self.knobs.complete_at and bool(self.facts.all()), missing
