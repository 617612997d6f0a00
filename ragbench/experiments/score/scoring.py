"""Scores of a finished run, computed from its records; the answering model is not asked again."""

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from ragbench.errors import ConfigError, RunError
from ragbench.experiments.runs import groupings
from ragbench.experiments.score.annotate.annotator import Annotation, annotate
from ragbench.experiments.score.annotate.asking import Asking
from ragbench.experiments.score.annotate.attribution import Attribution, Evidence
from ragbench.experiments.score.annotate.calibration import calibrate, describe_calibration
from ragbench.experiments.score.annotate.grounding import Grounding
from ragbench.experiments.score.annotate.judging import METRIC_OF, Judging, Rule, check_judge
from ragbench.experiments.score.annotate.statements import Statements
from ragbench.experiments.score.protocols.catalog import get_protocol
from ragbench.experiments.score.protocols.protocol import Protocol, apply
from ragbench.experiments.score.stored import ATTRIBUTIONS, SUMMARY, summaries_of
from ragbench.experiments.store import (
    RunCard,
    Store,
    locked,
    read_card,
    read_records,
    read_scores,
    write_json,
)
from ragbench.metrics import (
    ASKED,
    BREAKDOWN_METRICS,
    DEFAULT_METRICS,
    JUDGED,
    get_metric,
    score_columns,
    summarize,
)
from ragbench.record import Record
from ragbench.retrievers.embedders import make_embedder

#: Metrics, and fields of a record, that a model filled: kept from one scoring to the next.
_KEPT = (*JUDGED, *ASKED)
_ATTRIBUTED = ("attribution", "attributed_triples")


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

    The table `scores` has a row for each answer: its scores, and the sentences and triples that a
    model attributed to it. A question that is asked again has a new answer, without scores until it
    is scored. What models said before is kept as long as the answer is the same, so scores can be
    added one after another; records are never rewritten.

    Raises:
        RagbenchError: something the user can mend.
    """
    card = read_card(folder)
    for name in request.metrics:
        get_metric(name)
    protocol = get_protocol(request.protocol) if request.protocol else None
    by = groupings(request.closed_book)
    with locked(folder), _collector_paused(unless=bool(request.judge or request.attributor)):
        stored = read_records(folder)
        if not stored:
            raise RunError(f"{folder} has no records to score")
        old = read_scores(folder)
        notes = summaries_of(folder) if old.keys() >= stored.keys() else {}
        records = _asked(folder, [stored[qid] for qid in sorted(stored)], request, protocol, notes)
        judged = [name for name in _KEPT if any(name in r.scores for r in records)]
        wanted = dict.fromkeys([*(request.metrics or DEFAULT_METRICS), *judged])
        if protocol:
            wanted |= dict.fromkeys(measure.metric for measure in protocol.measures)
        columns = score_columns(records, list(wanted))
        summary = summarize(
            records,
            metrics=list(wanted),
            groupings=by,
            breakdown_metrics=[*BREAKDOWN_METRICS, *judged],
            columns=columns,
        ).to_dict()
        judges = {name: note for name, note in notes.items() if name not in ATTRIBUTIONS}
        if protocol:
            summary["protocol"] = asdict(apply(protocol, card, records, judges))
        summary |= {"judges": judges} | {name: notes.get(name) for name in ATTRIBUTIONS}
        rows = {}
        for i, record in enumerate(records):
            scores = old.get(record.qid, {}) | {name: row[i] for name, row in columns.items()}
            rows[record.qid] = {"scores": scores, "judged": [k for k in _KEPT if k in scores]}
            found = {name: getattr(record, name) for name in _ATTRIBUTED}
            rows[record.qid] |= {name: value for name, value in found.items() if value is not None}
        with Store(folder) as store:
            store.write_scores(rows)
        write_json(folder / SUMMARY, summary, sealed=True)
    return Scored(folder, card, records, summary, stored.damaged)


def _asked(
    folder: Path,
    records: list[Record],
    request: ScoreRequest,
    protocol: Protocol | None,
    notes: dict[str, dict[str, Any]],
) -> list[Record]:
    """`records` with what the models of `request` say of them; summaries are added to `notes`."""
    judge = request.judge
    if judge:
        check_judge(records, judge.asking.lm, allow_self=judge.allow_self)
    for asking, annotation in annotations_of(request, protocol):
        if annotation.concerns(records):
            annotated = annotate(folder, records, annotation, asking)
            notes[annotation.name] = annotation.summarize(records, annotated)
            records = [
                r if r.failed else annotation.fill(r, annotated.values(r.qid)) for r in records
            ]
    if judge and judge.rule == "grounding" and judge.labelled:
        notes["grounding"] |= calibrate(folder, records, judge.asking, judge.labelled)
    return records


def annotations_of(
    request: ScoreRequest, protocol: Protocol | None
) -> list[tuple[Asking, Annotation]]:
    """What `request` asks models, in order, and with what.

    Raises:
        ConfigError: the rule takes no repeats.
    """
    found: list[tuple[Asking, Annotation]] = []
    if request.attributor:
        found += [(request.attributor, one) for one in (Attribution(), Evidence())]
    judge = request.judge
    if judge is None:
        return found
    if protocol and protocol.judged_by == "statements":
        return [*found, (judge.asking, Statements(make_embedder(judge.embedder)))]
    if judge.rule != "grounding":
        return [*found, (judge.asking, Judging(judge.rule, judge.repeats))]
    if judge.repeats > 1:
        raise ConfigError("--repeats are of verdicts; leave it out with rule grounding")
    return [*found, (judge.asking, Grounding())]


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
