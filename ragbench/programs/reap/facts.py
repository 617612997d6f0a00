"""REAP's facts: statements read off passages, with the passages that prove them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ragbench.data import question_key
from ragbench.programs.core import Trace
from ragbench.programs.reap.plan import LookUp
from ragbench.retrievers import Passage

_ASKS = frozenset(["who", "whom", "whose", "which", "what", "where", "when", "why", "how"])


class Stated(Protocol):
    """A fact as a reply gives it; `evidence` are numbers of passages, from 1."""

    statement: str
    evidence: list[int]


@dataclass(frozen=True)
class Known:
    """A fact as the program keeps it: with the passages that prove it instead of their numbers."""

    statement: str
    level: str
    requirement: str = ""
    pids: tuple[str, ...] = ()


class Facts:
    """The facts of one question; `levels` tells direct ones from partial ones.

    `partial` False keeps direct ones alone. They are read off the steps of the trace, so that those
    of look-ups made at once come in the order of the look-ups.
    """

    def __init__(self, trace: Trace, *, levels: bool = False, partial: bool = True) -> None:
        self.trace, self.levels, self.partial = trace, levels, partial or not levels

    def all(self) -> list[Known]:
        """The facts found so far, once per requirement, without failed look-ups."""
        wanted = ("direct", "partial") if self.partial else ("direct",)
        facts: dict[tuple[str, str], Known] = {}
        for step in self.trace.steps:
            for fact in step.notes["facts"] if step.action == "extract" else ():
                known = Known(fact["statement"], fact["level"], fact["requirement"], fact["pids"])
                if known.level in wanted:
                    facts.setdefault((known.requirement, question_key(known.statement)), known)
        return list(facts.values())

    def shown(self) -> list[str]:
        """The facts as a planner sees them."""
        return [self.show(fact) for fact in self.all()]

    def notes(self) -> list[str]:
        """The facts as the answer is written from them, each once."""
        marks = {"partial": "(partial) "} if self.levels else {}
        lines = (f"{marks.get(fact.level, '')}{fact.statement}" for fact in self.all())
        return list(dict.fromkeys(lines))

    def show(self, fact: Known) -> str:
        """`fact` with its requirement and level, where there are any."""
        marks = [fact.requirement, fact.level if self.levels else ""]
        label = ", ".join(filter(None, marks))
        return f"[{label}] {fact.statement}" if label else fact.statement

    def add(
        self, stated: Sequence[Stated], passages: Sequence[Passage], item: LookUp
    ) -> list[Known]:
        """Keep what was `stated` of one look-up; a failed one where nothing of it holds.

        Left out are facts that no passage shown is named for (`unproven_fact`) and those that only
        say again what was asked (`echoed_question`).
        """
        kept = []
        for fact in stated:
            pids = tuple(passages[n - 1].pid for n in fact.evidence if 0 < n <= len(passages))
            statement = fact.statement.strip()
            if not statement or self._echoes(statement, item):
                continue
            if not pids:
                self.trace.count("unproven_fact")
                continue
            level = str(getattr(fact, "fulfillment", "direct"))
            level = level if self.levels or level == "failed" else "direct"
            kept.append(Known(statement, level, item.requirement, pids))
        kept = kept or [Known(f"nothing found for: {item.query}", "failed", item.requirement)]
        self._note(kept, item)
        return kept

    def _note(self, facts: Sequence[Known], item: LookUp) -> None:
        self.trace.step(
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

    def _echoes(self, statement: str, item: LookUp) -> bool:
        """Whether a "fact" only says again what was asked, as small models do."""
        asked = (self.trace.question, item.text, item.query)
        if not any(says_again(statement, text) for text in asked):
            return False
        self.trace.count("echoed_question")
        return True


def says_again(statement: str, asked: str) -> bool:
    """Whether `statement` is `asked` again, or adds no word to a question for something.

    A yes/no question, or one that names the things to choose from ("A or B"), has no such word: its
    facts may well be made of its own words.
    """
    said, words = question_key(statement).split(), question_key(asked).split()
    if said == words:
        return True
    open_question = not _ASKS.isdisjoint(words) and "or" not in words
    return open_question and set(said) <= set(words)
