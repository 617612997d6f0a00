"""Scores of a finished run, computed from its records; the answering model is not asked again.

`scores.jsonl` has a line per question (its scores, sentences and triples attributed to it), and
`scores.json` the summary. The records are never rewritten. What models said when the run was scored
before is kept as long as the answer is the same, so scores can be added one after another.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ragbench.errors import ConfigError, RunError
from ragbench.experiments.attribute import attribute
from ragbench.experiments.evidence import attribute_triples
from ragbench.experiments.ground import ground
from ragbench.experiments.groups import groupings
from ragbench.experiments.journal_shape import wrong_with_scores
from ragbench.experiments.judge import (
    METRIC_OF,
    Rule,
    check_judge,
    judge,
    summarize_verdicts,
)
from ragbench.experiments.passes import Asking, key_of
from ragbench.experiments.protocols import Protocol, apply, get_protocol
from ragbench.experiments.records import Record, encode, read_lines, read_records
from ragbench.experiments.rundir import RunDir, write_json, write_whole
from ragbench.experiments.statements import score_statements
from ragbench.metrics.aggregate import (
    BREAKDOWN_METRICS,
    DEFAULT_METRICS,
    score_columns,
    summarize,
    views,
)
from ragbench.metrics.base import get_metric
from ragbench.metrics.graphrag_bench import ASKED
from ragbench.metrics.judged import GROUNDED, JUDGED
from ragbench.retrievers.embedders import make_embedder

LINES = "scores.jsonl"
SUMMARY = "scores.json"

#: Metrics that a model filled: they are kept from one scoring to the next.
_KEPT = (*JUDGED, *ASKED)
#: Fields of a record that a model filled; likewise.
_ATTRIBUTED = ("attribution", "attributed_triples")


@dataclass(frozen=True)
class JudgeRequest:
    """Which judge to ask, and how."""

    asking: Asking
    rule: Rule | Literal["grounding"] = "ragbench"  # grounding: of claims, not of answers
    repeats: int = 1
    allow_self: bool = False
    embedder: str = "local"  # for protocols that compare answers by similarity


@dataclass(frozen=True)
class ScoreRequest:
    """What to score a run by; no metrics means the usual ones."""

    metrics: tuple[str, ...] = ()
    protocol: str | None = None
    judge: JudgeRequest | None = None
    attributor: Asking | None = None
    closed_book: Path | None = None

    @property
    def asks(self) -> bool:
        """Whether a model is asked."""
        return bool(self.judge or self.attributor)


@dataclass(frozen=True)
class Scored:
    """A scored run: its card, its records with all scores merged in, its summary."""

    folder: Path
    card: dict[str, Any]
    records: list[Record]
    summary: dict[str, Any]
    corrupt: tuple[int, ...] = ()


def score_run(folder: Path, request: ScoreRequest) -> Scored:
    """The run in `folder`, scored; writes `scores.json` and `scores.jsonl` beside its records.

    Raises:
        RagbenchError: something the user can mend.
    """
    rundir = RunDir(folder)
    card = rundir.config()
    for name in request.metrics:
        get_metric(name)
    protocol = get_protocol(request.protocol) if request.protocol else None
    by = groupings(request.closed_book)
    with rundir.locked(), _collector_paused(unless=request.asks):
        loaded = read_records(folder)
        if not loaded.records:
            raise RunError(f"{folder} has no records to score")
        state = _State.open(folder, list(loaded.records.values()))
        state.ask(request, protocol)
        wanted = list(dict.fromkeys([*(request.metrics or DEFAULT_METRICS), *state.judged()]))
        if protocol:
            wanted += [m.metric for m in protocol.measures if m.metric not in wanted]
        records = views(state.records)
        columns = score_columns(records, wanted)
        summary = summarize(
            records,
            metrics=wanted,
            groupings=by,
            breakdown_metrics=[*BREAKDOWN_METRICS, *state.judged()],
            columns=columns,
        ).to_dict()
        whole = {
            **summary,
            "judges": state.judges,
            "attribution": state.attribution,
            "evidence": state.evidence,
        }
        if protocol:
            whole["protocol"] = apply(protocol, card, state.records, state.judges).to_dict()
        state.write(columns, whole)
    return Scored(folder, card, state.records, whole, tuple(loaded.corrupt))


@contextmanager
def _collector_paused(*, unless: bool) -> Iterator[None]:
    """Collect no garbage inside the block: it would walk through all records over and over."""
    was = gc.isenabled()
    if not unless:
        gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def scored_records(folder: Path) -> list[Record]:
    """The records of a run by qid, with what it was scored by before merged in.

    Raises:
        RunError: it is not a run folder, or has no records.
    """
    RunDir(folder).config()
    loaded = read_records(folder)
    if not loaded.records:
        raise RunError(f"{folder} has no records")
    return _State.open(folder, list(loaded.records.values())).records


def judge_of(folder: Path, metric: str) -> str | None:
    """The model that filled `metric` when the run in `folder` was scored; None if none did."""
    if not (folder / SUMMARY).is_file():
        return None
    summary = RunDir(folder).read(SUMMARY)
    judges = {
        "attributed": summary.get("attribution"),
        "evidence": summary.get("evidence"),
        **(summary.get("judges") or {}),
    }
    names = [metric]
    if metric.startswith(("sp_", "joint_", "support_", "2wiki_sp_")):
        names = ["attributed"]
    elif metric.startswith("evidence_"):
        names = ["evidence"]
    elif metric.startswith("2wiki_joint_"):
        names = ["attributed", "evidence"]
    passes = dict.fromkeys(ASKED, "statements") | dict.fromkeys(GROUNDED, "grounding")
    found = [judges.get(passes.get(name, name)) or {} for name in names]
    return " and ".join(dict.fromkeys(one["model"] for one in found if "model" in one)) or None


@dataclass
class _State:
    """The records of a run as scoring changes them, and the summaries of models' passes."""

    folder: Path
    records: list[Record]
    old: dict[str, dict[str, float | None]]
    judges: dict[str, Any] = field(default_factory=dict)
    attribution: dict[str, Any] | None = None
    evidence: dict[str, Any] | None = None

    @classmethod
    def open(cls, folder: Path, records: Sequence[Record]) -> _State:
        """The records with the scores of before merged in, where the answer is still the same."""
        rows = {row["qid"]: row for row in read_lines(folder / LINES, wrong_with_scores)[0]}
        records = sorted(records, key=lambda record: str(record["qid"]))
        merged, old, same = [], {}, bool(rows)
        for record in records:
            row = rows.get(str(record["qid"]))
            if row is None or row["of"] != digest(record):
                same = False
                merged.append(record)
                continue
            old[record["qid"]] = row["scores"]
            merged.append(_merge(record, row))
        state = cls(folder, merged, old)
        if same and (folder / SUMMARY).is_file():
            before = RunDir(folder).read(SUMMARY)
            state.judges = before.get("judges") or {}
            state.attribution = before.get("attribution")
            state.evidence = before.get("evidence")
        return state

    def judged(self) -> list[str]:
        """Metrics that some record has a verdict for."""
        return [name for name in _KEPT if any(name in r["scores"] for r in self.records)]

    def ask(self, request: ScoreRequest, protocol: Protocol | None) -> None:
        """Ask the models of `request`, and merge what they say into the records."""
        if request.judge:
            if request.judge.rule == "grounding" and request.judge.repeats > 1:
                raise ConfigError("--repeats are of verdicts; leave it out with rule grounding")
            check_judge(self.records, request.judge.asking.lm, allow_self=request.judge.allow_self)
        if request.attributor:
            self._attribute(request.attributor)
        if request.judge and protocol and protocol.judged_by == "statements":
            self._match(request.judge)
        elif request.judge:
            rule = request.judge.rule
            if rule == "grounding":
                claims = ground(self.folder, self.records, request.judge.asking)
                self._keep("grounding", claims.summary, claims.scores)
            else:
                self._judge(request.judge, rule)

    def _attribute(self, asking: Asking) -> None:
        support = attribute(self.folder, self.records, asking)
        self.attribution = support.summary
        self._fill("attribution", support.facts)
        evidence = attribute_triples(self.folder, self.records, asking)
        if evidence:
            self.evidence = evidence.summary
            self._fill("attributed_triples", evidence.triples)

    def _fill(self, name: str, found: Mapping[str, Any]) -> None:
        self.records = [
            {**r, name: found[r["qid"]]} if r["qid"] in found else r for r in self.records
        ]

    def _judge(self, request: JudgeRequest, rule: Rule) -> None:
        verdicts = judge(
            self.folder, self.records, request.asking, rule=rule, repeats=request.repeats
        )
        name, scores = METRIC_OF[rule], verdicts.scores()
        self.judges[name] = summarize_verdicts(self.records, verdicts)
        self.records = [_with_scores(r, {name: scores.get(r["qid"])}) for r in self.records]

    def _match(self, request: JudgeRequest) -> None:
        embedder = make_embedder(request.embedder)
        found = score_statements(self.folder, self.records, request.asking, embedder)
        self._keep("statements", found.summary, found.scores)

    def _keep(
        self,
        name: str,
        summary: Mapping[str, Any],
        scores: Mapping[str, Mapping[str, float | None]],
    ) -> None:
        self.judges[name] = dict(summary)
        self.records = [_with_scores(r, scores.get(r["qid"], {})) for r in self.records]

    def write(self, columns: Mapping[str, Sequence[float | None]], summary: Any) -> None:
        """Write both files, each in one step."""
        lines = []
        for i, record in enumerate(self.records):
            scores = {name: column[i] for name, column in columns.items()}
            row = {
                "qid": record["qid"],
                "of": digest(record),
                "scores": {**self.old.get(record["qid"], {}), **scores},
            }
            row |= {n: record[n] for n in _ATTRIBUTED if record.get(n) is not None}
            lines.append(encode(row))
        write_whole(self.folder / LINES, b"".join(lines))
        write_json(self.folder / SUMMARY, summary)


def digest(record: Record) -> str:
    """A hash of what scores depend on: a question that was asked again has another."""
    pids = [passage["pid"] for passage in record["passages"]]
    failed = record["failure"] is not None
    return key_of(record["question"], record["answers"], record["answer"], failed, pids)


def _merge(record: Record, row: Record) -> Record:
    kept = {name: row["scores"][name] for name in _KEPT if name in row["scores"]}
    merged = _with_scores(record, kept)
    return merged | {name: row[name] for name in _ATTRIBUTED if name in row}


def _with_scores(record: Record, scores: Mapping[str, float | None]) -> Record:
    return {**record, "scores": {**record["scores"], **scores}}
