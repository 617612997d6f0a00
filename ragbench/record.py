"""What is kept of one question: the record, and the calls, steps and searches in it.

A record is written by a program and a run, stored as JSON in the run's database, and read by
metrics, reports and comparisons. The classes here are its schema, its type and its documentation;
they need neither DSPy nor a model. Reading is strict about types.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field, FiniteFloat, TypeAdapter

from ragbench.calls import (
    ABSENT,
    LM_KINDS as LM_KINDS,
    NOT_EMPTY,
    Call as Call,
    FailedAttempts as FailedAttempts,
    Sum as Sum,
    Totals as Totals,
    billed as billed,
    parse_call as parse_call,
    total as total,
    was_sent as was_sent,
)

#: Title of a paragraph and number of a sentence in it, from 0.
Fact = tuple[str, int]
#: Subject, relation and object.
Triple = tuple[str, str, str]
#: Id of a passage and its score.
Hit = tuple[str, FiniteFloat]

#: Class of error of a question that a limit of the command's spending cut off.
CUT_OFF = "LimitReachedError"


@dataclass(slots=True)
class CriticalPath:
    """Length of the longest chain of calls that had to wait for each other.

    `cached_s` is the part of `latency_s` that the cache saved this time.
    """

    calls: int = 0
    latency_s: FiniteFloat = 0.0
    cached_s: FiniteFloat = 0.0


@dataclass(slots=True)
class Ledger:
    """All calls of one question, in the order in which they ended, and their critical path."""

    calls: list[Call]
    path: CriticalPath

    @property
    def as_if(self) -> Totals:
        """Totals as if nothing had been cached; the same on a cached re-run."""
        return total(self.calls)

    @property
    def billed(self) -> Totals:
        """Totals of what this run sent to a server."""
        return billed(self.calls)


@dataclass(frozen=True, slots=True)
class Step:
    """One thing a program did: what it thought, did with what input, and saw.

    `action` is a short verb: search, answer, gate, judge, plan, think, lookup, read, decompose,
    extract, ... `pids` are the passages it got or used; `notes` holds scores and labels.
    """

    action: str
    input: str = ""
    thought: str = ""
    observation: str = ""
    pids: tuple[str, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)
    #: Places in the ledger, from 0, of the calls that were made for it.
    calls: Annotated[tuple[int, ...], NOT_EMPTY] = ()


@dataclass(frozen=True, slots=True)
class Search:
    """One search: query, depth, and the passages that came back with their scores, best first.

    `cached` marks a query that the same question had searched before; it cost nothing.
    """

    query: str
    k: int
    hits: tuple[Hit, ...]
    latency_s: FiniteFloat
    cached: bool = False


@dataclass(frozen=True, slots=True)
class ShownPassage:
    """One passage that the program saw; `sentences` where the data splits it.

    On a chunk corpus that is aligned, `holds` lists the paragraphs' sentences in it.
    """

    pid: str
    title: str
    text: str
    sentences: Annotated[tuple[str, ...], NOT_EMPTY] = ()
    holds: Annotated[tuple[Fact, ...] | None, ABSENT] = None


@dataclass(frozen=True, slots=True)
class Failure:
    """The boundary that failed, the class of the error and its message, keys taken out."""

    boundary: str
    error: str
    message: str

    @property
    def name(self) -> str:
        """Boundary and class, as `provider/LMServerError`."""
        return f"{self.boundary}/{self.error}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One question of a run: what was asked, what the program did, and what came of it."""

    qid: str
    question: str
    #: The canonical answer first, then its aliases.
    answers: Annotated[list[str], Field(min_length=1)]
    qtype: str = ""
    hops: int | None = None
    #: Supporting facts.
    support: list[Fact]
    gold_pids: list[str]
    decomposition: list[dict[str, Any]] = field(default_factory=list)
    #: Other fields of the data set's example.
    extra: dict[str, Any] = field(default_factory=dict)
    answer: str | None
    stop_reason: str | None
    steps: list[Step]
    searches: list[Search]
    passages: list[ShownPassage]
    counts: dict[str, int]
    ledger: Ledger
    latency_s: FiniteFloat
    failure: Failure | None
    scores: dict[str, FiniteFloat | None]
    citations: Annotated[Any, ABSENT] = None
    plan: Annotated[Any, ABSENT] = None
    facts: Annotated[Any, ABSENT] = None
    tree: Annotated[Any, ABSENT] = None
    #: Filled in when a run is scored, never stored with the record.
    attribution: Annotated[list[Fact] | None, ABSENT] = None
    attributed_triples: Annotated[list[Triple] | None, ABSENT] = None
    #: What metrics have worked out of this record; see `ragbench.metrics.base.once`.
    memo: Annotated[dict[object, Any], Field(exclude=True)] = field(
        init=False, default_factory=dict, repr=False, compare=False
    )

    @property
    def answer_text(self) -> str:
        """The answer; empty where there is none."""
        return self.answer or ""

    @property
    def failed(self) -> bool:
        """Whether the question got no answer: an error ended it, or none was given."""
        return self.failure is not None or self.answer is None

    @property
    def cut_off(self) -> bool:
        """Whether a limit of the command's spending kept the question from its end."""
        return self.failure is not None and self.failure.error == CUT_OFF

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form; `parse_record` reads it back."""
        dumped: dict[str, Any] = _RECORD.dump_python(self, warnings=False)
        return dumped


_RECORD: TypeAdapter[Record] = TypeAdapter(Record)


def parse_record(line: str | bytes) -> Record:
    """The record that a JSON object holds.

    Raises:
        ValidationError: it is no record, or a field is missing or of another type.
    """
    return _RECORD.validate_json(line, strict=True)
