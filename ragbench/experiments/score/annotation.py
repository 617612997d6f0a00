"""Annotations: an LM labels the records of a finished run, each item once.

An `Annotation` declares one kind of annotation: its signature, the units of a record, how a reply
is read, what it fills in, and its summary. This module does the rest for all kinds: it asks
(concurrently or through a provider's batches), writes the journal, resumes and counts. To add a
kind, write a module with a subclass and its signature. A metric also needs its line in
`ragbench.metrics.judged`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, ClassVar, TypeAlias

import dspy

from ragbench.errors import RunError
from ragbench.experiments.runs.summary import or_unknown
from ragbench.experiments.score import AnnotationSummary
from ragbench.experiments.score.asking import (
    JudgeSession,
    Reply,
    Session,
    Unit,
    ask_directly,
    ask_strictly,
    key_of,
    reply_of,
)
from ragbench.experiments.score.batched import BatchRunner, open_batches
from ragbench.experiments.store import RunFolder, Store
from ragbench.lms.batch import client_of
from ragbench.lms.lm import RagbenchLM
from ragbench.passages import Passage
from ragbench.programs.core import render
from ragbench.record import Call, Record, ShownPassage, Totals, billed, total

#: Maps each metric to its score; None means unscored.
Scores: TypeAlias = Mapping[str, float | None]


class Annotation(ABC):
    """Interface of one kind of annotation."""

    #: Name in the journal and in the summary of a scored run.
    name: str
    signature: ClassVar[type[dspy.Signature]]

    @abstractmethod
    def units(self, record: Record) -> Sequence[Unit]:
        """Return the units to ask about an answered record; empty if there are none."""

    def all_units(self, records: Iterable[Record]) -> list[Unit]:
        """Return the units of all answered `records`, sorted by question id."""
        units: list[Unit] = []
        for record in sorted(records, key=lambda record: record.qid):
            if not record.failed:
                units += self.units(record)
        return units

    def read(self, unit: Unit, reply: dspy.Prediction) -> Any:
        """Return the JSON-ready value of a reply, by default that of its only field.

        Args:
            unit: Unit of the request.
            reply: Reply of the LM.

        Raises:
            UnusableError: The reply cannot be used.
        """
        (name,) = self.signature.output_fields
        return reply[name]

    def ask(self, unit: Unit, lm: RagbenchLM) -> Any:
        """Return the value of a unit. The default calls the LM with one signature.

        Args:
            unit: Unit of the request.
            lm: LM of the judge.
        """
        return ask_strictly(self.signature, lm, unit.inputs, partial(self.read, unit))

    def fill(self, record: Record, values: Sequence[Any]) -> Record:
        """Return an answered record with the values of its units filled in.

        Args:
            record: The answered record.
            values: Value of each unit, in the order of `units`. None: the unit has no value.

        Returns:
            A copy of `record`.
        """
        return replace(record, scores={**record.scores, **self.scores(record, values)})

    def scores(self, record: Record, values: Sequence[Any]) -> Scores:
        """Return the metrics that the values of a record fill.

        Args:
            record: The record.
            values: Value of each unit of the record.
        """
        return {}

    def summarize(self, records: Sequence[Record], annotated: Annotated) -> AnnotationSummary:
        """Return JSON-ready counts over all records, for `describe` and `scores.json`.

        Args:
            records: Records of the run.
            annotated: Values and gaps of the annotation.
        """
        return annotated.counts()

    @staticmethod
    def describe(name: str, summary: AnnotationSummary) -> list[str]:
        """Return a summary as lines of text.

        Args:
            name: Name of the summary.
            summary: The summary.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Annotated:
    """Result of an annotation: the units of each question with their replies.

    Questions without units are omitted. A reply is None if a limit stopped its request. `as_if` is
    the usage without any cache. `billed` is the usage that was sent to a server, failed attempts
    included.
    """

    model: str
    units: Mapping[str, Sequence[tuple[Unit, Reply | None]]]
    as_if: Totals
    billed: Totals

    def values(self, qid: str) -> list[Any]:
        """Return the value of each unit of a question; None if a unit has no value."""
        return [reply.value if reply else None for _, reply in self.units.get(qid, ())]

    @property
    def has_no_valid_reply(self) -> bool:
        """True if there are replies and none has a value."""
        counts = self.counts()
        return bool(0 < counts["asked"] == counts["unscored"])

    def counts(self) -> dict[str, Any]:
        """Return counts of asked, unscored, not asked and truncated units, with their usage.

        The five most frequent reasons for unscored units are included.
        """
        n_replied = Counter[bool]()
        why = Counter[str]()
        cut = 0
        for unit, reply in chain.from_iterable(self.units.values()):
            n_replied[reply is not None] += 1
            cut += unit.cut
            if reply is not None and reply.value is None:
                why[reply.why] += 1
        return {
            "model": self.model,
            "asked": n_replied[True],
            "unscored": why.total(),
            "unscored_because": dict(why.most_common(5)),
            "not_asked": n_replied[False],
            "cut": cut,
            "as_if": asdict(self.as_if),
            "billed": asdict(self.billed),
        }


def annotate(
    run: RunFolder, records: Iterable[Record], annotation: Annotation, asking: JudgeSession
) -> Annotated:
    """Annotate the answered `records`.

    Replies in the journal of `run` are not asked for again.

    Args:
        run: The run, whose journal receives the replies.
        records: Records of the run. Failed ones are ignored.
        annotation: Kind of annotation.
        asking: The LM and how to call it.

    Returns:
        Units and replies by question, and their usage.

    Raises:
        RunError: A batch of these questions is in progress and the LM has no batch client.
    """
    model = asking.lm.model
    units = annotation.all_units(records)
    keys = [key_of(annotation.name, model, *unit.parts) for unit in units]
    by_key = dict(zip(keys, units, strict=True))
    session = Session(asking, annotation.name, annotation.ask, Store(run.path), by_key)
    _ask(run, session)
    calls: list[Call] = []
    for reply in session.replies.values():
        calls += reply.calls
    replied: dict[str, list[tuple[Unit, Reply | None]]] = {}
    for unit, key in zip(units, keys, strict=True):
        replied.setdefault(unit.qid, []).append((unit, session.replies.get(key)))
    return Annotated(model, replied, total(calls), billed([*session.earlier, *calls]))


def _ask(run: RunFolder, session: Session) -> None:
    """Ask every unit of `session` that has no reply in the journal of `run`."""
    journal = run.replies()
    for row in journal:
        if row.get("key") in session.units:
            reply = reply_of(row)
            if reply.failed:
                session.earlier += reply.calls
            else:
                session.replies[row["key"]] = reply
    todo = [key for key in session.units if key not in session.replies]
    if not todo:
        return
    client = client_of(session.asking.lm)
    paid: set[str] = set()
    for batch in open_batches(journal):
        paid.update(batch["items"].keys() & todo)
    if paid and not client:
        raise RunError(f"A batch of {len(paid)} of these questions is in progress. Add --batch.")
    session.asking.check()
    with session.store:
        if client:
            BatchRunner(session, client, journal).run(todo)
        else:
            ask_directly(session, todo)


def numbered(texts: Sequence[str]) -> list[str]:
    """Return `texts` numbered from 1 in the format of prompts."""
    return [f"[{number}] {text}" for number, text in enumerate(texts, start=1)]


def context_lines(passages: Sequence[ShownPassage], *, max_tokens: int) -> tuple[list[str], bool]:
    """Render passages as a program formats them, up to a token limit.

    Args:
        passages: The passages, best first.
        max_tokens: Token limit of all lines.

    Returns:
        The lines, and True if some passages were truncated or omitted.
    """
    rows = [Passage(p.pid, p.title, p.text) for p in passages]
    lines = render(rows, max_tokens=max_tokens)
    return lines, lines != render(rows, max_tokens=10**9)


def spending(summary: AnnotationSummary) -> str:
    """Return a sentence with the gaps, usage and cost of an annotation."""
    because = "; ".join(f"{why} ({n})" for why, n in summary["unscored_because"].items())
    as_if = summary["as_if"]
    tokens = as_if["prompt_tokens"] + as_if["completion_tokens"]
    cost = or_unknown(as_if["cost_usd"])
    paid = or_unknown(summary["billed"]["cost_usd"])
    return (
        f"{summary['unscored']} unscored{f' ({because})' if because else ''}, "
        f"{summary['not_asked']} not asked, {summary['cut']} cut; took {as_if['calls']} calls, "
        f"{tokens:,} tokens, {cost} $, billed {paid} $"
    )
