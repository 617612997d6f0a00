"""REAP's facts: statements read off passages, with the passages that prove them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ragbench.data import question_key
from ragbench.programs.core import Trace
from ragbench.programs.reap.plan import LookUp
from ragbench.retrievers import Passage
from ragbench.signatures import StatedFact


@dataclass(frozen=True)
class Known:
    """A fact as the program keeps it: with the passages that prove it instead of their numbers."""

    statement: str
    level: str
    requirement: str = ""
    pids: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The fact as a record keeps it."""
        return {
            "statement": self.statement,
            "fulfillment": self.level,
            "pids": list(self.pids),
        }


class Facts:
    """The facts of one question, once per requirement; `levels` tells direct from partial ones.

    With `partial` False direct ones alone are kept.
    """

    def __init__(self, *, levels: bool = False, partial: bool = True) -> None:
        self.levels, self.partial = levels, partial or not levels
        self._known: dict[tuple[str, str], Known] = {}

    def all(self) -> list[Known]:
        """The facts found so far, without failed look-ups."""
        return list(self._known.values())

    def keep(self, found: Sequence[Known]) -> None:
        """Add those of `found` that are new and of a level that is kept."""
        wanted = ("direct", "partial") if self.partial else ("direct",)
        for fact in found:
            if fact.level in wanted:
                key = (fact.requirement, question_key(fact.statement))
                self._known.setdefault(key, fact)

    def shown(self) -> list[str]:
        """The facts as a planner sees them."""
        return [self.show(fact) for fact in self.all()]

    def notes(self) -> list[str]:
        """The facts as the answer is written from them, each once."""
        lines = (("(partial) " * (f.level == "partial")) + f.statement for f in self.all())
        return list(dict.fromkeys(lines))

    def show(self, fact: Known) -> str:
        """`fact` with its requirement and level, where there are any."""
        marks = [fact.requirement, fact.level if self.levels else ""]
        label = ", ".join(filter(None, marks))
        return f"[{label}] {fact.statement}" if label else fact.statement

    def read(
        self, trace: Trace, stated: Sequence[StatedFact], passages: Sequence[Passage], item: LookUp
    ) -> list[Known]:
        """What was `stated` of one look-up; a failed fact where nothing of it holds.

        Left out, and counted as `unproven_fact`, is what no passage shown is named for.
        """
        read = []
        for fact in stated:
            pids = tuple(passages[n - 1].pid for n in fact.evidence if 0 < n <= len(passages))
            level = getattr(fact, "fulfillment", "direct")
            level = level if self.levels or level == "failed" else "direct"
            if fact.statement.strip() and not pids:
                trace.count("unproven_fact")
            elif fact.statement.strip():
                read.append(Known(fact.statement.strip(), level, item.requirement, pids))
        read = read or [Known(f"nothing found for: {item.query}", "failed", item.requirement)]
        trace.step(
            "extract",
            input=item.query,
            observation="\n".join(f"[{fact.level}] {fact.statement}" for fact in read),
            pids=tuple(dict.fromkeys(pid for fact in read for pid in fact.pids)),
        )
        return read
