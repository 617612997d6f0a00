"""Runs as rows, one per question: the same columns in Parquet, CSV and pandas (docs/export.md)."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ragbench.errors import ConfigError, UnknownNameError
from ragbench.experiments.runs import Evaluation, reopen
from ragbench.metrics import get_metric
from ragbench.record import Record

Kind = Literal["text", "texts", "integer", "number", "boolean", "json"]


@dataclass(frozen=True)
class ExportedRun:
    """A run, its records in the order first asked, and the metrics to give beside the stored ones.

    The records hold what judges said when the run was scored.
    """

    evaluation: Evaluation
    records: Sequence[Record]
    metrics: Sequence[str] = ()

    @property
    def name(self) -> str:
        """Name of the run's folder."""
        return self.evaluation.folder.resolve().name

    @cached_property
    def scores(self) -> dict[str, list[float | None]]:
        """Scores of all records by metric, in their order; those of failed ones are the worst."""
        names = dict.fromkeys([*(n for r in self.records for n in r.scores), *self.metrics])
        return {name: [_score(name, record) for record in self.records] for name in names}


def _score(name: str, record: Record) -> float | None:
    try:
        return get_metric(name).score(record)
    except UnknownNameError:  # a metric of a plug-in that is gone
        return record.scores.get(name)


def open_runs(folders: Iterable[Path], metrics: Sequence[str] = ()) -> list[ExportedRun]:
    """The runs in `folders`; reading writes nothing.

    Raises:
        RunError: one is no run folder, or has records that cannot be read.
        UnknownNameError: there is no such metric.
    """
    for name in metrics:
        get_metric(name)
    opened = map(reopen, folders)
    return [ExportedRun(run, list(run.records.values()), metrics) for run in opened]


class Column(NamedTuple):
    """One column: what kind of values it has, and what they say of a question of a run."""

    name: str
    kind: Kind
    of: Callable[[ExportedRun, Record], Any]


#: Columns before the scores, and after them.
_BEFORE = [
    Column("run", "text", lambda run, r: run.name),
    Column("program", "text", lambda run, r: run.evaluation.card.program),
    Column("lm", "text", lambda run, r: run.evaluation.card.model),
    Column("dataset", "text", lambda run, r: run.evaluation.card.data.name),
    Column("split", "text", lambda run, r: str(run.evaluation.card.identity.get("split", ""))),
    Column("qid", "text", lambda run, r: r.qid),
    Column("question", "text", lambda run, r: r.question),
    Column("type", "text", lambda run, r: r.qtype),
    Column("hops", "integer", lambda run, r: r.hops),
    Column("gold", "text", lambda run, r: r.answers[0]),
    Column("gold_answers", "texts", lambda run, r: list(r.answers)),
    Column("answer", "text", lambda run, r: r.answer),
    Column("failed", "boolean", lambda run, r: r.failed),
    Column("failure", "text", lambda run, r: r.failure.name if r.failure else None),
    Column("error", "text", lambda run, r: r.failure.error if r.failure else None),
    Column("message", "text", lambda run, r: r.failure.message if r.failure else None),
    Column("stop_reason", "text", lambda run, r: r.stop_reason),
]
_AFTER = [
    Column("gold_pids", "texts", lambda run, r: list(r.gold_pids)),
    Column("pids", "texts", lambda run, r: [passage.pid for passage in r.passages]),
    Column("queries", "texts", lambda run, r: [search.query for search in r.searches]),
    Column("searches", "integer", lambda run, r: len(r.searches)),
    Column("steps", "integer", lambda run, r: len(r.steps)),
    Column("calls", "integer", lambda run, r: r.ledger.as_if.calls),
    Column("critical_path_calls", "integer", lambda run, r: r.ledger.path.calls),
    Column("prompt_tokens", "integer", lambda run, r: r.ledger.as_if.prompt_tokens),
    Column("completion_tokens", "integer", lambda run, r: r.ledger.as_if.completion_tokens),
    Column("tokens", "integer", lambda run, r: r.ledger.as_if.tokens),
    Column("cost_usd", "number", lambda run, r: r.ledger.as_if.cost_usd),
    Column("billed_calls", "integer", lambda run, r: r.ledger.billed.calls),
    Column("billed_tokens", "integer", lambda run, r: r.ledger.billed.tokens),
    Column("billed_cost_usd", "number", lambda run, r: r.ledger.billed.cost_usd),
    Column("failed_calls", "integer", lambda run, r: r.ledger.as_if.failed),
    Column("latency_s", "number", lambda run, r: r.latency_s),
    Column("counts", "json", lambda run, r: json.dumps(r.counts, default=str)),
    Column("extra", "json", lambda run, r: json.dumps(r.extra, ensure_ascii=False, default=str)),
]

#: All columns but those of the scores, which stand between `stop_reason` and `gold_pids`.
COLUMNS = (*_BEFORE, *_AFTER)


def columns_of(runs: Iterable[ExportedRun]) -> dict[str, Kind]:
    """Name and kind of every column of a table of `runs`, those of their scores included.

    Raises:
        ConfigError: a score has the name of another column.
    """
    scores: dict[str, Kind] = {name: "number" for run in runs for name in run.scores}
    for column in COLUMNS:
        if column.name in scores:
            raise ConfigError(f"the table has a column {column.name} already; leave it out")
    before, after = ({c.name: c.kind for c in part} for part in (_BEFORE, _AFTER))
    return {**before, **scores, **after}


def rows_of(runs: Sequence[ExportedRun]) -> Iterator[dict[str, Any]]:
    """One row per question, with every column of `columns_of`; None where it has no value."""
    names = columns_of(runs)
    for run in runs:
        for place, record in enumerate(run.records):
            row = {column.name: column.of(run, record) for column in COLUMNS}
            row |= {name: column[place] for name, column in run.scores.items()}
            yield {name: row.get(name) for name in names}
