"""Facts of a record: the values that summaries, tables and comparisons need.

Facts are pure functions of the record, written soon after it. One query on them is enough to
summarize, compare or export a run. A record is parsed only to show its steps, or if a kill lost its
facts.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from operator import attrgetter
from sys import intern
from typing import Any, NamedTuple, TypeAlias

from pydantic import TypeAdapter, ValidationError

from ragbench.data import cluster_keys
from ragbench.metrics import GROUPINGS, JUDGED, cause_of, get_metric
from ragbench.metrics.abstention import confidence
from ragbench.metrics.efficiency import as_if as as_if_of
from ragbench.record import Call, Failure, Ledger, Record, Totals
from ragbench.redact import digest_of, encodable

#: Function that returns the value of a column for a record.
Column: TypeAlias = Callable[[Record], Any]
#: A number of calls or tokens, seconds, or dollars; None if unknown.
Amount: TypeAlias = int | float | None
#: Metrics whose scores are facts. All others are computed from the records on request.
STORED_METRICS = (
    *("em", "f1", "gold_in_context", "all_recall", "calls", "tokens", "cost_usd", "latency_s"),
    *("retrievals", "critical_path_calls", "critical_path_s", "answer_rate", "recall"),
    *JUDGED,
)

#: Scores that most records have, as one object each.
_COMMON: Mapping[float | None, float] = {0.0: 0.0, 1.0: 1.0}
_SCORES = {name: get_metric(name).score for name in STORED_METRICS}
#: Metrics that are columns of the table `facts` too.
_COLUMNS = ("gold_in_context", "all_recall", "cost_usd")
#: Maximum number of characters of an answer in a list of questions.
_MOST_ANSWER = 200
#: Columns of a record: no answer, failure, stop reason and question.
failed = attrgetter("failed")
failure_of = attrgetter("failure")
stop_reason = attrgetter("stop_reason")
question = attrgetter("question")


class QuestionRow(NamedTuple):
    """Row of a record in a list of questions.

    Attributes:
        question: The question.
        gold: First gold answer.
        type: Type of the question.
        answer: Beginning of the answer. None if the question failed.
        cause: Name of the cause of a wrong answer, else "".
        titles: Titles of the retrieved passages.
    """

    question: str
    gold: str
    type: str
    answer: str | None
    cause: str
    titles: tuple[str, ...]


def question_row(record: Record) -> QuestionRow:
    """Return the row of `record` in a list of questions."""
    gold = ""
    cause = None
    if record.answers:
        gold = record.answers[0]
        cause = cause_of(record)
    answer = None
    if not record.failed:
        answer = record.answer_text[:_MOST_ANSWER]
    titles = dict.fromkeys(passage.title or passage.pid for passage in record.passages)
    name = cause.name if cause else ""
    return QuestionRow(record.question, gold, record.qtype, answer, name, tuple(titles))


@dataclass(frozen=True, slots=True)
class QuestionUsage:
    """Totals of the calls of one question, its events, and its time."""

    as_if: Totals
    billed: Totals
    counts: Mapping[str, int]
    critical_path_calls: int
    searches: int
    latency_s: float


def spending(record: Record) -> QuestionUsage:
    """Return the totals of a record, without its calls."""
    as_if = as_if_of(record)
    path_calls = record.ledger.path.calls
    searches = len(record.searches)
    billed = as_if
    if any(call.cached or call.failed or call.paid_usd is not None for call in record.ledger.calls):
        billed = record.ledger.billed
    return QuestionUsage(as_if, billed, record.counts, path_calls, searches, record.latency_s)


def varies_with(record: Record) -> Sequence[str]:
    """Return the keys that a question shares with the others of its cluster.

    A cluster that the record itself names is the only key.
    """
    extra = record.extra
    if extra.get("cluster"):
        return [f"cluster:{extra['cluster']}"]
    return cluster_keys(
        record.question,
        record.answers,
        gold_pids=record.gold_pids,
        decomposition=record.decomposition,
        documents=extra.get("document"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts of one record.

    Attributes:
        row: Row of the record in a list of questions.
        scores: Score by metric of `STORED_METRICS`, None if unknown.
        groups: Group by breakdown of `GROUPINGS`, None if missing.
        confidence: Confidence of the answer, None if not recorded.
        varies_with: Keys that the question shares with others of its cluster.
        as_if: Values of `Totals`, in the order of its fields.
        billed: The same for billed calls. Empty if they equal `as_if`.
    """

    row: QuestionRow
    failed: bool
    failure: Failure | None
    stop_reason: str | None
    scores: dict[str, float | None]
    groups: dict[str, str | int | None]
    confidence: float | None
    varies_with: list[str]
    as_if: list[Any]
    billed: list[Any]
    counts: dict[str, int]
    critical_path_calls: int
    searches: int
    latency_s: float

    @property
    def spending(self) -> QuestionUsage:
        """Totals and events, equal to `spending` of the record."""
        as_if = Totals(*self.as_if)
        billed = Totals(*self.billed) if self.billed else as_if
        path_calls = self.critical_path_calls
        return QuestionUsage(as_if, billed, self.counts, path_calls, self.searches, self.latency_s)


def row_of_facts(record: Record, price: Callable[[Call], Call]) -> tuple[object, ...]:
    """Return the row of `record` in the table `facts`, without its number.

    Args:
        record: The stored record.
        price: Function that applies the price of this run to a call.
    """
    calls = list(map(price, record.ledger.calls))
    if calls != record.ledger.calls:
        record = replace(record, ledger=Ledger(calls, record.ledger.path))
    columns = [_SCORES[name](record) for name in _COLUMNS]
    value = facts_of(record)
    qtype = encodable(record.qtype) or None
    return (*columns, qtype, record.hops, value, digest_of(value))


def facts_of(record: Record) -> str:
    """Return the facts of `record` as JSON."""
    spent = spending(record)
    scores = {name: score(record) for name, score in _SCORES.items()}
    facts = {
        "row": question_row(record),
        "failed": record.failed,
        "failure": record.failure and asdict(record.failure),
        "stop_reason": record.stop_reason,
        "scores": scores,
        "groups": {name: group(record) for name, group in GROUPINGS.items()},
        "confidence": confidence(record),
        "varies_with": varies_with(record),
        "as_if": _values(spent.as_if),
        "billed": [] if spent.billed == spent.as_if else _values(spent.billed),
        "counts": spent.counts,
        "critical_path_calls": spent.critical_path_calls,
        "searches": spent.searches,
        "latency_s": spent.latency_s,
    }
    text = json.dumps(facts, ensure_ascii=False, default=str)
    return text.encode("utf-8", "replace").decode()


#: Returns the values of `Totals`, in the order of its fields.
_values: Callable[[Totals], tuple[Amount, ...]] = attrgetter(
    *(field.name for field in fields(Totals))
)


@cache
def _adapter() -> TypeAdapter[Facts]:
    return TypeAdapter(Facts)


def parse_facts(text: str) -> Facts | None:
    """Return the facts that `facts_of` wrote as `text`, or None if they are damaged."""
    try:
        facts = _adapter().validate_json(text)
    except ValidationError:
        return None
    sizes = {len(facts.as_if), len(facts.billed)} - {0}
    is_whole = facts.scores.keys() == set(STORED_METRICS) and sizes == {len(fields(Totals))}
    return facts if is_whole else None


@cache
def stored_columns() -> Mapping[Column, Callable[[Facts], Any]]:
    """Return the columns that facts hold: a function of facts by function of a record."""
    columns: dict[Column, Callable[[Facts], Any]] = {
        failed: attrgetter("failed"),
        failure_of: attrgetter("failure"),
        stop_reason: attrgetter("stop_reason"),
        question: attrgetter("row.question"),
        question_row: _shared_row,
        confidence: attrgetter("confidence"),
        spending: attrgetter("spending"),
        varies_with: attrgetter("varies_with"),
    }
    for name, score in _SCORES.items():
        columns[score] = _score_of(name)
    for name, group in GROUPINGS.items():
        columns[group] = _group_of(name)
    return columns


def _shared_row(facts: Facts) -> QuestionRow:
    """Return the row with texts that the runs over one data set share in memory."""
    row = facts.row
    return row._replace(
        question=intern(row.question),
        gold=intern(row.gold),
        type=intern(row.type),
        cause=intern(row.cause),
        titles=tuple(map(intern, row.titles)),
    )


def _score_of(name: str) -> Callable[[Facts], float | None]:
    def score_of(facts: Facts) -> float | None:
        score = facts.scores[name]
        return _COMMON.get(score, score)

    return score_of


def _group_of(name: str) -> Callable[[Facts], Any]:
    return lambda facts: facts.groups.get(name)
