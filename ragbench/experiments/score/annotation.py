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
from typing import Any, ClassVar

import dspy

from ragbench.errors import RunError
from ragbench.experiments.score.asking import (
    Asking,
    Replies,
    Reply,
    Task,
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


@dataclass(frozen=True)
class Unit:
    """One thing that is asked about a question.

    `parts` is all that decides the reply beside the model, JSON-ready; `data` is what reading the
    reply needs. `cut` says that not everything could be shown. `calls` is how many calls it takes
    where every reply can be used.
    """

    qid: str
    parts: Sequence[Any]
    inputs: Mapping[str, Any]
    data: Any = None
    cut: bool = False
    calls: int = 1


class Annotation(ABC):
    """One kind of annotation; see the module."""

    #: Its name in the journal, and in the summary of a scored run.
    name: str
    signature: ClassVar[type[dspy.Signature]]

    @abstractmethod
    def units(self, record: Record) -> Sequence[Unit]:
        """What is asked about an answered record; empty where nothing is."""

    def all_units(self, records: Iterable[Record]) -> dict[str, Sequence[Unit]]:
        """What is asked about the answered ones of `records`, by question id."""
        by_qid = {}
        for record in sorted(records, key=lambda record: record.qid):
            if record.failed:
                continue
            units = self.units(record)
            if units:
                by_qid[record.qid] = units
        return by_qid

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

    def scores(self, record: Record, values: Sequence[Any]) -> Mapping[str, float | None]:
        """The metrics that the values of a record fill."""
        return {}

    def summarize(self, records: Sequence[Record], annotated: Annotated) -> dict[str, Any]:
        """The counts of all records, JSON-ready, for `describe` and `scores.json`."""
        return annotated.counts()

    @staticmethod
    def describe(name: str, summary: Mapping[str, Any]) -> list[str]:
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
        done = []
        for pairs in self.units.values():
            for _, reply in pairs:
                if reply is not None:
                    done.append(reply)
        return bool(done) and all(reply.value is None for reply in done)

    def counts(self) -> dict[str, Any]:
        """How many units have no value and why, were not asked or were cut, and what it took."""
        pairs = []
        for replied in self.units.values():
            for pair in replied:
                pairs.append(pair)
        done = []
        for _, reply in pairs:
            if reply is not None:
                done.append(reply)
        why = Counter(reply.why for reply in done if reply.value is None)
        return {
            "model": self.model,
            "asked": len(done),
            "unscored": why.total(),
            "unscored_because": dict(why.most_common(5)),
            "not_asked": len(pairs) - len(done),
            "cut": sum(unit.cut for unit, _ in pairs),
            "as_if": asdict(self.as_if),
            "billed": asdict(self.billed),
        }


def annotate(
    run: RunFolder, records: Iterable[Record], annotation: Annotation, asking: Asking
) -> Annotated:
    """The annotation of the answered ones of `records`, asked as `asking` says.

    Replies in the journal of `run` are not asked for again.
    """
    units = annotation.all_units(records)
    lm = asking.lm
    name = annotation.name
    keyed: dict[str, list[tuple[Unit, str]]] = {}
    for qid, group in units.items():
        keyed[qid] = [(unit, key_of(name, lm.model, *unit.parts)) for unit in group]
    tasks = {}
    for unit, key in chain.from_iterable(keyed.values()):
        tasks[key] = Task(unit.qid, name, key, partial(annotation.ask, unit, lm))
    replies = _asked(run, tasks, asking)
    by_key = replies.by_key
    calls = []
    for reply in by_key.values():
        for call in reply.calls:
            calls.append(call)
    replied = {}
    for qid, pairs in keyed.items():
        replied[qid] = [(unit, by_key.get(key)) for unit, key in pairs]
    return Annotated(
        lm.model,
        replied,
        as_if=total(calls),
        billed=billed([*replies.earlier, *calls]),
    )


def _asked(run: RunFolder, tasks: Mapping[str, Task], asking: Asking) -> Replies:
    """The reply to every task, from the journal of `run` where it stands there."""
    every = run.replies()
    rows = []
    for row in every:
        if row.get("key") in tasks:
            rows.append((row["key"], reply_of(row)))
    by_key = {}
    failed_calls: list[Call] = []
    for key, reply in rows:
        if reply.failed:
            failed_calls += reply.calls
        else:
            by_key[key] = reply
    replies = Replies(Store(run.path), by_key, tuple(failed_calls))
    todo = []
    for key, task in tasks.items():
        if key not in by_key:
            todo.append(task)
    if not todo:
        return replies
    client = client_of(asking.lm)
    if client:
        paid = 0
    else:
        paid = len(under_way(every) & {task.key for task in todo})
    if paid:
        raise RunError(f"a batch with {paid} of these questions is under way; give --batch")
    asking.check()
    with replies.store:
        if client:
            BatchRunner(asking, client, replies, every).run(todo)
        else:
            ask_directly(todo, asking, replies)
    return replies


def numbered(texts: Sequence[str]) -> list[str]:
    """`texts` as prompts number them, from 1."""
    return [f"[{number}] {text}" for number, text in enumerate(texts, start=1)]


def shown(passages: Sequence[ShownPassage | Passage], *, max_tokens: int) -> tuple[list[str], bool]:
    """The passages as a program shows its own, as far as they fit, and whether some did not."""
    rows = [Passage(p.pid, p.title, p.text) for p in passages]
    lines = render(rows, max_tokens=max_tokens)
    return lines, lines != render(rows, max_tokens=10**9)


def _usd(cost: float | None) -> str:
    if cost is None:
        return "unknown"
    return f"{cost:.4f}"


def spending(summary: Mapping[str, Any]) -> str:
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
