"""Scores of a finished run, computed from its records without calls to the answering model.

The usage of the judges is estimated before the first call.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ragbench.errors import ConfigError, RunError
from ragbench.experiments.estimates import ASKED_TWICE, Estimate, in_all, one_call
from ragbench.experiments.runs.clusters import clusters_of
from ragbench.experiments.score import SUMMARY, AnnotationSummary, summaries_of
from ragbench.experiments.score.annotation import Annotation, annotate
from ragbench.experiments.score.annotations import Attribution, Evidence, Grounding, Statements
from ragbench.experiments.score.asking import JudgeSession, key_of, read_journal
from ragbench.experiments.score.judging import Judging, Rule, check_judge
from ragbench.experiments.score.protocols import Protocol, apply, get_protocol
from ragbench.experiments.store import RunCard, RunFolder, Store, locked, write_json
from ragbench.metrics import (
    ASKED,
    DEFAULT_METRICS,
    JUDGED,
    get_metric,
    gold_triples,
    score_columns,
    summarize,
)
from ragbench.record import Record
from ragbench.retrievers.embedders import make_embedder
from ragbench.text_normalization import estimate_tokens

#: Metrics, and fields of a record, that a model filled. Later scorings retain them.
_KEPT = (*JUDGED, *ASKED)
_ATTRIBUTED = ("attribution", "attributed_triples")
#: Tokens of a prompt for the names and formats of fields, next to instructions and inputs.
_FRAME = 35


@dataclass(frozen=True)
class JudgeRequest:
    """The judge and how to ask it."""

    asking: JudgeSession
    rule: Rule | Literal["grounding"] = "ragbench"  # grounding judges claims, not answers
    allow_self: bool = False
    embedder: str = "local"  # Used by protocols that compare answers by similarity.
    repeats: int = 1  # Verdicts on each answer.


@dataclass(frozen=True)
class ScoreRequest:
    """The metrics to score a run by. No metrics means the default ones."""

    metrics: tuple[str, ...] = ()
    protocol: str | None = None
    judge: JudgeRequest | None = None
    attributor: JudgeSession | None = None

    @property
    def published(self) -> Protocol | None:
        """The protocol object, or None."""
        if self.protocol:
            return get_protocol(self.protocol)
        return None


@dataclass(frozen=True)
class Scored:
    """A scored run: its card, its records with all scores merged in, and its summary.

    `void` names the annotations of this command that got no usable reply.
    """

    folder: Path
    card: RunCard
    records: list[Record]
    summary: dict[str, Any]
    damaged: tuple[str, ...] = ()
    void: tuple[str, ...] = ()


def score_run(folder: Path, request: ScoreRequest) -> Scored:
    """Score a run and write its scores to its database and to `scores.json`.

    The table `scores` has a row for each answer: its scores, and the sentences and triples that a
    model attributed to it. A repeated question has a new answer, which has no scores until it is
    scored. Earlier judge results are retained while the answer is the same, so scores can be added
    one after another. Records are never rewritten.

    Args:
        folder: Folder of the run.
        request: Metrics, protocol, judge and attributor.

    Returns:
        The scored run.

    Raises:
        RunError: The folder has no records or another process uses it.
        ConfigError: The judge answered the questions itself, or the options conflict.
    """
    run = RunFolder(folder, check=True)
    card = run.card
    for name in request.metrics:
        get_metric(name)
    protocol = request.published
    with locked(folder):
        stored = run.records
        if not stored:
            raise RunError(f"{folder} has no records to score")
        old = run.scores()
        if old.keys() >= stored.keys():
            notes = summaries_of(folder)
        else:
            notes = {}
        records, void = _asked(run, [stored[qid] for qid in sorted(stored)], request, notes)
        metric_names = [*(request.metrics or DEFAULT_METRICS)]
        for name in _KEPT:
            if any(name in record.scores for record in records):
                metric_names.append(name)
        if protocol:
            metric_names += [measure.metric for measure in protocol.measures]
        columns = score_columns(records, list(dict.fromkeys(metric_names)))
        clusters = clusters_of(stored)
        summary = summarize(records, columns, clusters)
        summary["missing"] = [name for name in request.metrics if name not in summary["scores"]]
        if protocol:
            summary["protocol"] = apply(protocol, card, records, notes, clusters)
        summary["judges"] = notes
        rows = {}
        for i, record in enumerate(records):
            scores = old.get(record.qid, {}) | {name: row[i] for name, row in columns.items()}
            rows[record.qid] = {"scores": scores, "judged": [k for k in _KEPT if k in scores]}
            for name in _ATTRIBUTED:
                value = getattr(record, name)
                if value is not None:
                    rows[record.qid][name] = value
        with Store(folder) as store:
            store.write_scores(rows, records)
        write_json(folder / SUMMARY, summary)
    return Scored(folder, card, records, summary, stored.damaged, void)


def _asked(
    run: RunFolder,
    records: list[Record],
    request: ScoreRequest,
    notes: dict[str, AnnotationSummary],
) -> tuple[list[Record], tuple[str, ...]]:
    """Annotate `records`; return them and the annotations without a usable reply.

    Summaries are added to `notes`.
    """
    judge = request.judge
    void: list[str] = []
    if judge:
        check_judge(records, judge.asking.lm, allow_self=judge.allow_self)
    for asking, annotation in _annotations(request, records):
        annotated = annotate(run, records, annotation, asking)
        notes[annotation.name] = annotation.summarize(records, annotated)
        void += [annotation.name] * annotated.has_no_valid_reply
        filled = []
        for record in records:
            if not record.failed:
                record = annotation.fill(record, annotated.values(record.qid))
            # A void annotation clears even scores that need no model (an answer without passages).
            if annotated.has_no_valid_reply:
                filled_metrics = annotation.scores(record, annotated.values(record.qid))
                record = replace(record, scores={**record.scores, **dict.fromkeys(filled_metrics)})
            filled.append(record)
        records = filled
    return records, tuple(void)


def _annotations(
    request: ScoreRequest, records: list[Record]
) -> Iterator[tuple[JudgeSession, Annotation]]:
    """Yield the annotations that `request` asks for, in order, with their LM."""
    if request.attributor:
        yield request.attributor, Attribution()
        if any(not record.failed and gold_triples(record) for record in records):
            yield request.attributor, Evidence()
    judge = request.judge
    if judge is None:
        return
    protocol = request.published
    if judge.repeats > 1 and judge.rule == "grounding":
        raise ConfigError("--judge-repeats does not apply to --judge-rule grounding. Remove one.")
    if protocol and protocol.judged_by == "statements":
        yield judge.asking, Statements(make_embedder(judge.embedder))
    elif judge.rule != "grounding":
        yield judge.asking, Judging(judge.rule, judge.repeats)
    else:
        yield judge.asking, Grounding()


def estimate_scoring(folder: Path, request: ScoreRequest) -> Estimate:
    """Estimate the usage of the judge and the attributor.

    Units with a reply in the run's journal are free.

    Args:
        folder: Folder of the run.
        request: What to score.

    Returns:
        The estimate, with a maximum of twice its calls for retries.
    """
    run = RunFolder(folder)
    keys = set()
    for row in read_journal(run):
        if not row["provider_failed"]:
            keys.add(row["key"])
    records = list(run.records.values())
    calls = []
    for asking, annotation in _annotations(request, records):
        for unit in annotation.all_units(records):
            key = key_of(annotation.name, asking.lm.model, *unit.parts)
            if key in keys:
                continue
            keys.add(key)
            inputs = json.dumps(dict(unit.inputs), ensure_ascii=False, default=str)
            prompt = estimate_tokens(annotation.signature.instructions + inputs) + _FRAME
            calls += [one_call(prompt, asking.lm)] * unit.calls
    title = f"scoring {folder}: {len(calls)} questions to models"
    return in_all("", calls).times(1, 2, title, [ASKED_TWICE])


_KINDS: Mapping[str, type[Annotation]] = {
    **{kind.name: kind for kind in (Attribution, Evidence, Grounding, Statements)},
    **dict.fromkeys(("judge", "judge_arag"), Judging),
}


def describe(name: str, summary: AnnotationSummary) -> list[str]:
    """Return a summary of a scored run as lines of text.

    Args:
        name: Name of the summary.
        summary: The summary.
    """
    return _KINDS[name].describe(name, summary)
