"""Scores of a finished run, computed from its records; the answering model is not asked again."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ragbench.errors import ConfigError, RunError
from ragbench.experiments.runs import groupings
from ragbench.experiments.score.annotate.annotator import Annotation
from ragbench.experiments.score.annotate.asking import Asking
from ragbench.experiments.score.annotate.attribution import Attribution, Evidence
from ragbench.experiments.score.annotate.calibration import calibrate, describe_calibration
from ragbench.experiments.score.annotate.grounding import Grounding
from ragbench.experiments.score.annotate.judging import METRIC_OF, Judging, Rule, check_judge
from ragbench.experiments.score.annotate.statements import Statements
from ragbench.experiments.score.protocols.catalog import get_protocol
from ragbench.experiments.score.protocols.protocol import Protocol, apply
from ragbench.experiments.score.stored import StoredScores
from ragbench.experiments.store import RunCard, locked, read_card, read_records
from ragbench.metrics import (
    BREAKDOWN_METRICS,
    DEFAULT_METRICS,
    get_metric,
    score_columns,
    summarize,
)
from ragbench.record import Record
from ragbench.retrievers.embedders import make_embedder


@dataclass(frozen=True)
class JudgeRequest:
    """Which judge to ask, and how."""

    asking: Asking
    rule: Rule | Literal["grounding"] = "ragbench"  # grounding: of claims, not of answers
    repeats: int = 1
    allow_self: bool = False
    labelled: int = 0  # claims with known labels that a judge of claims is measured by
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
    card: RunCard
    records: list[Record]
    summary: dict[str, Any]
    damaged: tuple[str, ...] = ()


def score_run(folder: Path, request: ScoreRequest) -> Scored:
    """The run in `folder`, scored; writes its scores to its database, and `scores.json`.

    The records are never rewritten. What models said when the run was scored before is kept as long
    as the answer is the same, so scores can be added one after another.

    Raises:
        RagbenchError: something the user can mend.
    """
    card = read_card(folder)
    for name in request.metrics:
        get_metric(name)
    protocol = get_protocol(request.protocol) if request.protocol else None
    by = groupings(request.closed_book)
    with locked(folder), _collector_paused(unless=request.asks):
        records = read_records(folder)
        if not records:
            raise RunError(f"{folder} has no records to score")
        stored = StoredScores.open(folder, records)
        _ask(stored, request, protocol)
        wanted = list(dict.fromkeys([*(request.metrics or DEFAULT_METRICS), *stored.judged()]))
        if protocol:
            wanted += [m.metric for m in protocol.measures if m.metric not in wanted]
        columns = score_columns(stored.records, wanted)
        summary = summarize(
            stored.records,
            metrics=wanted,
            groupings=by,
            breakdown_metrics=[*BREAKDOWN_METRICS, *stored.judged()],
            columns=columns,
        ).to_dict()
        if protocol:
            applied = apply(protocol, card, stored.records, stored.judges)
            summary["protocol"] = applied.to_dict()
        whole = stored.write(columns, summary)
    return Scored(folder, card, stored.records, whole, records.damaged)


def _ask(stored: StoredScores, request: ScoreRequest, protocol: Protocol | None) -> None:
    """Ask the models of `request`, and merge what they say into the records."""
    judge = request.judge
    if judge:
        check_judge(stored.records, judge.asking.lm, allow_self=judge.allow_self)
        annotation = annotation_of(judge, protocol)  # what is refused is refused before asking
    if request.attributor:
        stored.annotate(Attribution(), request.attributor)
        stored.annotate(Evidence(), request.attributor)
    if judge:
        stored.annotate(annotation, judge.asking)
        if judge.rule == "grounding" and judge.labelled:
            measured = calibrate(stored.folder, stored.records, judge.asking, judge.labelled)
            stored.summaries[annotation.name] |= measured


def annotation_of(judge: JudgeRequest, protocol: Protocol | None) -> Annotation:
    """What the judge is asked.

    Raises:
        ConfigError: the rule takes no repeats.
    """
    if protocol and protocol.judged_by == "statements":
        return Statements(make_embedder(judge.embedder))
    if judge.rule != "grounding":
        return Judging(judge.rule, judge.repeats)
    if judge.repeats > 1:
        raise ConfigError("--repeats are of verdicts; leave it out with rule grounding")
    return Grounding()


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


_KINDS: Mapping[str, type[Annotation]] = {
    **{kind.name: kind for kind in (Attribution, Evidence, Grounding, Statements)},
    **dict.fromkeys(METRIC_OF.values(), Judging),
}


def describe(name: str, summary: Mapping[str, Any]) -> list[str]:
    """The lines that a person reads of the summary called `name` in a scored run."""
    return [*_KINDS[name].describe(name, summary), *describe_calibration(summary)]
