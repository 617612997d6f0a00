"""Annotation: a model asked about the records of a finished run, each thing once and never twice.

An `Annotation` declares what one kind of annotation is: its signature, what of a record is asked
about, how a reply is read, what it fills in and how it is summed up. Everything else is done here
for all of them: asking (several at once, or through a provider's batches), the journal, continuing,
and the counts. A new one is a module with a subclass, its signature, and for a metric its line in
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
from ragbench.experiments.score import AnnotationSummary
from ragbench.experiments.score.asking import (
    Asking,
    Reply,
    Session,
    Unit,
    ask_directly,
    ask_strictly,
    key_of,
    reply_of,
)
from ragbench.experiments.score.batched import BatchRunner, under_way
from ragbench.experiments.store import RunFolder, Store
from ragbench.lms.batch import client_of
from ragbench.lms.lm import RagbenchLM
from ragbench.passages import Passage
from ragbench.programs.core import render
from ragbench.record import Call, Record, ShownPassage, Totals, billed, total

#: Metric -> score; None for unscored.
Scores: TypeAlias = Mapping[str, float | None]


class Annotation(ABC):
    """One kind of annotation; see the module."""

    #: Its name in the journal, and in the summary of a scored run.
    name: str
    signature: ClassVar[type[dspy.Signature]]

    @abstractmethod
    def units(self, record: Record) -> Sequence[Unit]:
        """What is asked about an answered record; empty where nothing is."""

    def all_units(self, records: Iterable[Record]) -> list[Unit]:
        """What is asked about the answered ones of `records`, by question id."""
        units: list[Unit] = []
        for record in sorted(records, key=lambda record: record.qid):
            if not record.failed:
                units += self.units(record)
        return units

    def read(self, unit: Unit, reply: dspy.Prediction) -> Any:
        """The value of a reply, JSON-ready; that of its only field unless a kind does otherwise.

        Raises:
            UnusableError: the reply cannot be used.
        """
        (name,) = self.signature.output_fields
        return reply[name]

    def ask(self, unit: Unit, lm: RagbenchLM) -> Any:
        """The value of `unit`; most kinds ask one signature."""
        return ask_strictly(self.signature, lm, unit.inputs, partial(self.read, unit))

    def fill(self, record: Record, values: Sequence[Any]) -> Record:
        """An answered record with what came of its units; a value is None where there is none."""
        return replace(record, scores={**record.scores, **self.scores(record, values)})

    def scores(self, record: Record, values: Sequence[Any]) -> Scores:
        """The metrics that the values of a record fill."""
        return {}

    def summarize(self, records: Sequence[Record], annotated: Annotated) -> AnnotationSummary:
        """The counts of all records, JSON-ready, for `describe` and `scores.json`."""
        return annotated.counts()

    @staticmethod
    def describe(name: str, summary: AnnotationSummary) -> list[str]:
        """The lines that a person reads of a summary called `name`."""
        raise NotImplementedError


@dataclass(frozen=True)
class Annotated:
    """The result of an annotation: by question id each unit and its reply.

    Questions without units are left out; a reply is None where a limit kept it from being asked.
    `as_if` is what all of it took, uncached; `billed` what was sent to a server, failed tries too.
    """

    model: str
    units: Mapping[str, Sequence[tuple[Unit, Reply | None]]]
    as_if: Totals
    billed: Totals

    def values(self, qid: str) -> list[Any]:
        """The value of each unit of a question; None where there is none."""
        return [reply.value if reply else None for _, reply in self.units.get(qid, ())]

    @property
    def is_void(self) -> bool:
        """Whether something was asked, and no reply has a value."""
        counts = self.counts()
        return bool(0 < counts["asked"] == counts["unscored"])

    def counts(self) -> dict[str, Any]:
        """How many units have no value and why, were not asked or were cut, and what it took."""
        asked = Counter[bool]()
        why = Counter[str]()
        cut = 0
        for unit, reply in chain.from_iterable(self.units.values()):
            asked[reply is not None] += 1
            cut += unit.cut
            if reply is not None and reply.value is None:
                why[reply.why] += 1
        return {
            "model": self.model,
            "asked": asked[True],
            "unscored": why.total(),
            "unscored_because": dict(why.most_common(5)),
            "not_asked": asked[False],
            "cut": cut,
            "as_if": asdict(self.as_if),
            "billed": asdict(self.billed),
        }


def annotate(
    run: RunFolder, records: Iterable[Record], annotation: Annotation, asking: Asking
) -> Annotated:
    """The annotation of the answered ones of `records`, asked as `asking` says.

    Replies in the journal of `run` are not asked for again.
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
    """Ask every unit of `session` whose reply does not stand in the journal of `run`."""
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
    paid = under_way(journal).intersection(todo)
    if paid and not client:
        raise RunError(f"a batch with {len(paid)} of these questions is under way; give --batch")
    session.asking.check()
    with session.store:
        if client:
            BatchRunner(session, client, journal).run(todo)
        else:
            ask_directly(session, todo)


def numbered(texts: Sequence[str]) -> list[str]:
    """`texts` as prompts number them, from 1."""
    return [f"[{number}] {text}" for number, text in enumerate(texts, start=1)]


def shown(passages: Sequence[ShownPassage], *, max_tokens: int) -> tuple[list[str], bool]:
    """The passages as a program shows its own, as far as they fit, and whether some did not."""
    rows = [Passage(p.pid, p.title, p.text) for p in passages]
    lines = render(rows, max_tokens=max_tokens)
    return lines, lines != render(rows, max_tokens=10**9)


def _usd(cost: float | None) -> str:
    if cost is None:
        return "unknown"
    return f"{cost:.4f}"


def spending(summary: AnnotationSummary) -> str:
    """What is missing of an annotation, and what its calls took and cost."""
    because = "; ".join(f"{why} ({n})" for why, n in summary["unscored_because"].items())
    as_if = summary["as_if"]
    tokens = as_if["prompt_tokens"] + as_if["completion_tokens"]
    cost = _usd(as_if["cost_usd"])
    paid = _usd(summary["billed"]["cost_usd"])
    return (
        f"{summary['unscored']} unscored{f' ({because})' if because else ''}, "
        f"{summary['not_asked']} not asked, {summary['cut']} cut; took {as_if['calls']} calls, "
        f"{tokens:,} tokens, {cost} $, billed {paid} $"
    )
