"""Runs as rows, one per question: the same columns in Parquet, CSV and pandas."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

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


@dataclass(frozen=True)
class Column:
    """One column: what kind of values it has, and what they say of a question of a run."""

    name: str
    kind: Kind
    about: str
    of: Callable[[ExportedRun, Record], Any]


#: Columns before the scores, and after them.
_BEFORE = (
    Column("run", "text", "name of the run's folder", lambda run, r: run.name),
    Column("program", "text", "architecture", lambda run, r: run.evaluation.card.program),
    Column("lm", "text", "model string of the main LM", lambda run, r: run.evaluation.card.model),
    Column("dataset", "text", "data set", lambda run, r: run.evaluation.card.data.name),
    Column("split", "text", "part of the data set",
           lambda run, r: str(run.evaluation.card.identity.get("split", ""))),
    Column("qid", "text", "id of the question in the data set", lambda run, r: r.qid),
    Column("question", "text", "the question", lambda run, r: r.question),
    Column("type", "text", "question type of the data set", lambda run, r: r.qtype),
    Column("hops", "integer", "hops, where the data set says", lambda run, r: r.hops),
    Column("gold", "text", "the canonical answer", lambda run, r: r.answers[0]),
    Column("gold_answers", "texts", "it and its aliases", lambda run, r: list(r.answers)),
    Column("answer", "text", "the program's answer; none where it failed", lambda run, r: r.answer),
    Column("failed", "boolean", "whether the question got no answer", lambda run, r: r.failed),
    Column("failure", "text", "boundary and class of the error, as provider/LMServerError",
           lambda run, r: r.failure.name if r.failure else None),
    Column("error", "text", "class of the error",
           lambda run, r: r.failure.error if r.failure else None),
    Column("message", "text", "what the error says",
           lambda run, r: r.failure.message if r.failure else None),
    Column("stop_reason", "text", "why the program stopped", lambda run, r: r.stop_reason),
)  # fmt: skip
_AFTER = (
    Column("gold_pids", "texts", "ids of the gold passages", lambda run, r: list(r.gold_pids)),
    Column("pids", "texts", "ids of the passages it saw",
           lambda run, r: [passage.pid for passage in r.passages]),
    Column("queries", "texts", "what it searched for, in order",
           lambda run, r: [search.query for search in r.searches]),
    Column("searches", "integer", "number of searches", lambda run, r: len(r.searches)),
    Column("steps", "integer", "number of steps", lambda run, r: len(r.steps)),
    Column("calls", "integer", "calls to LMs, as if none had been cached",
           lambda run, r: r.ledger.as_if.calls),
    Column("critical_path_calls", "integer", "calls that had to wait for each other",
           lambda run, r: r.ledger.path.calls),
    Column("prompt_tokens", "integer", "tokens sent, likewise",
           lambda run, r: r.ledger.as_if.prompt_tokens),
    Column("completion_tokens", "integer", "tokens received, likewise",
           lambda run, r: r.ledger.as_if.completion_tokens),
    Column("tokens", "integer", "both", lambda run, r: r.ledger.as_if.tokens),
    Column("cost_usd", "number", "US dollars, likewise; none where a price is unknown",
           lambda run, r: r.ledger.as_if.cost_usd),
    Column("billed_calls", "integer", "calls that this run sent to a server",
           lambda run, r: r.ledger.billed.calls),
    Column("billed_tokens", "integer", "their tokens", lambda run, r: r.ledger.billed.tokens),
    Column("billed_cost_usd", "number", "their cost", lambda run, r: r.ledger.billed.cost_usd),
    Column("failed_calls", "integer", "calls that ended in an error",
           lambda run, r: r.ledger.as_if.failed),
    Column("latency_s", "number", "seconds that the question took", lambda run, r: r.latency_s),
    Column("counts", "json", "events by name, such as label_repair",
           lambda run, r: json.dumps(r.counts, default=str)),
    Column("extra", "json", "other fields of the data set",
           lambda run, r: json.dumps(r.extra, ensure_ascii=False, default=str)),
)  # fmt: skip

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
    """One row per question, with every column of `columns_of`; None where it has no value.

    Raises:
        ConfigError: as for `columns_of`.
    """
    names = columns_of(runs)
    for run in runs:
        for place, record in enumerate(run.records):
            row = {column.name: column.of(run, record) for column in COLUMNS}
            row |= {name: column[place] for name, column in run.scores.items()}
            yield {name: row.get(name) for name in names}
