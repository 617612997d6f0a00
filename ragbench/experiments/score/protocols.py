"""Published evaluation protocols: the settings that each fixes, and how a run deviates.

`protocols.yaml` declares them as in the official code: corpus view, depth, metrics with their
denominators, judge and prompts, with the source of every fact. `apply` computes the scores from the
records of a run and lists every visible deviation. Requirements that a record cannot show are
listed as not checked.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import yaml
from pydantic import TypeAdapter

from ragbench import metrics
from ragbench.data import default_view
from ragbench.experiments.score import AnnotationSummary
from ragbench.experiments.store import RunCard
from ragbench.programs.core.deviations import sources
from ragbench.record import Record
from ragbench.registry import Registry

#: Questions that a mean includes. "all" means every question, with failed and missing ones as 0.
#: "not_blank" means the predictions that are not blank. A failed question counts with its error
#: message, as a wrong prediction. "scored" means the answered questions that have the score
#: (published code drops NaN).
Denominator = Literal["all", "not_blank", "scored"]


@dataclass(frozen=True)
class Measure:
    """A metric with the denominator and question types of a protocol."""

    metric: str
    over: Denominator = "all"
    qtypes: tuple[str, ...] = ()  # Question types; empty means all.
    label: str = ""  # Name in the protocol, if it differs.


@dataclass(frozen=True)
class Protocol:
    """The settings that a published evaluation fixes; see the module."""

    name: str
    description: str
    source: str
    measures: tuple[Measure, ...]
    datasets: tuple[str, ...] = ()
    view: Literal["paragraph", "chunk"] | None = None
    setting: Literal["distractor", "pooled"] | None = None
    k: tuple[int, ...] = ()
    questions: int | None = None
    golds: Literal["all", "first"] = "all"
    judge: str = ""
    judge_model: str = ""  # Prefix of the judge's model name; empty means any.
    self_judged: bool = False
    #: Task of `--judge`: a verdict on each answer, or a match of its statements.
    judged_by: Literal["verdict", "statements"] = "verdict"
    temperature: float | None = None
    answer_styles: tuple[str, ...] = ()  # Values of the knob with answers of the same length.
    prompt: str = ""
    always: tuple[str, ...] = ()  # Deviations of ragbench itself.
    unchecked: tuple[str, ...] = ()

    def fixed(self) -> dict[str, tuple[Any, ...]]:
        """Return the allowed values of each setting by name; empty if any is allowed."""
        settings = {
            "corpus view": self.view,
            "setting": self.setting,
            "questions": self.questions,
            "temperature": self.temperature,
        }
        ones = {name: () if value is None else (value,) for name, value in settings.items()}
        return {"data": self.datasets, **ones, "k": self.k, "answer_style": self.answer_styles}

    def lines(self) -> Iterable[str]:
        """Yield the fixed settings as lines of text."""
        yield f"{self.name}: {self.description}"
        yield f"source: {self.source}"
        yield from (f"{name}: {_either(values)}" for name, values in self.fixed().items() if values)
        yield f"gold answers: {'only the first' if self.golds == 'first' else 'the best of all'}"
        for name, value in (("prompts", self.prompt), ("judge", self.judge)):
            if value:
                yield f"{name}: {value}"
        yield "metrics: name, denominator, question types"
        for measure in self.measures:
            kinds = ", ".join(measure.qtypes) or "all"
            if measure.label:
                name = f"{measure.label} ({measure.metric})"
            else:
                name = measure.metric
            yield f"  {name}  {measure.over}  {kinds}"
        for text in self.always:
            yield f"always differs: {text}"
        yield from (f"not checked: {text}" for text in self.unchecked)


def apply(
    protocol: Protocol,
    card: RunCard,
    records: Sequence[Record],
    judges: Mapping[str, AnnotationSummary],
    clusters: Mapping[str, Hashable] = MappingProxyType({}),
) -> dict[str, Any]:
    """Apply a protocol to `records`.

    Args:
        protocol: The protocol.
        card: Card of the run, which shows what differs from the protocol.
        records: Records of the run.
        judges: Summaries of judges by metric.
        clusters: Cluster of each question by id. A question that is missing is its own cluster.

    Returns:
        The scores, JSON-ready, with every deviation that can be seen.
    """
    measured = scores_of(protocol, records, clusters)
    deviations = [
        *_of_run(protocol, card, records),
        *_of_attribution(protocol, records),
        *(_of_judge(protocol, card, judges) if protocol.judge else ()),
        *_of_program(card),
        *protocol.always,
    ]
    return {
        "name": protocol.name,
        "scores": {name: score for name, score in measured.items() if score is not None},
        "missing": [name for name, score in measured.items() if score is None],
        "deviations": deviations,
        "unchecked": protocol.unchecked,
    }


def scores_of(
    protocol: Protocol,
    records: Sequence[Record],
    clusters: Mapping[str, Hashable] = MappingProxyType({}),
) -> dict[str, dict[str, Any] | None]:
    """Compute the scores of a protocol.

    Args:
        protocol: The protocol.
        records: Records of a run, failed ones included.
        clusters: Cluster of each question by id. A question that is missing is its own cluster.

    Returns:
        JSON-ready score by name of the measure. None if no answer has that score.
    """
    scored = list(records)
    if protocol.golds == "first":
        scored = [replace(record, answers=record.answers[:1]) for record in records]
    return {m.label or m.metric: _score(m, scored, clusters) for m in protocol.measures}


def _score(
    measure: Measure, records: Sequence[Record], clusters: Mapping[str, Hashable]
) -> dict[str, Any] | None:
    """Return the mean of a measure with its interval. None if it scores no answer."""
    metric = metrics.get_metric(measure.metric)
    values: dict[str, float | None] = {}
    empty = 0
    any_answer = False
    for record in records:
        if measure.qtypes and record.qtype not in measure.qtypes:
            continue
        is_blank = record.failure is None and metrics.is_blank_answer(record.answer)
        if measure.over == "not_blank" and is_blank:
            continue
        score = metric.score(record)
        is_scored = score is not None and not record.failed
        any_answer = any_answer or is_scored
        if is_scored or measure.over != "scored":
            values[record.qid] = score or 0.0
            empty += score is None
    estimate = metrics.mean_of(values, metric.score_range, clusters)
    if not any_answer or estimate is None:
        return None  # A score is never made of failures only.
    filled = {"without_score": empty} if empty else {}
    return {**estimate.to_dict(), "over": measure.over, **filled}


def _either(values: Sequence[Any]) -> str:
    return " or ".join(map(str, values))


def _of_program(card: RunCard) -> Iterator[str]:
    """Yield how the program of the run, with its knobs, departs from its source."""
    source = sources().get(str(card.identity.get("program")))
    for deviation in source.deviations if source else ():
        if deviation.holds(card.knobs):
            yield f"program: {deviation.line()}"


def _of_run(protocol: Protocol, card: RunCard, records: Sequence[Record]) -> Iterable[str]:
    data = card.data
    identity = card.identity
    actual = {
        "data": data.name,
        "corpus view": identity.get("view") or default_view(data.name),
        "setting": data.setting,
        "questions": len(records),
        "temperature": identity.get("temperature"),
        "k": card.knobs.get("k"),
        "answer_style": card.knobs.get("answer_style") or "unknown",
    }
    for name, allowed in protocol.fixed().items():
        if allowed and actual[name] not in allowed:
            yield f"{name}: {actual[name]}, not {_either(allowed)}"
    split = identity.get("split")
    if split != "all":  # The published list is every question of the file.
        yield f"questions are ragbench's {split} split of the file, not the published list of ids"
    if card.compiled or identity.get("compiled"):
        yield "prompts: compiled on this data set, which no published protocol does"
    if protocol.golds == "first" and any(len(r.answers) > 1 for r in records):
        yield "gold answers: the aliases in this data are ignored, as the protocol requires"


def _of_attribution(protocol: Protocol, records: Sequence[Record]) -> Iterable[str]:
    metric_names = [measure.metric for measure in protocol.measures]
    answered = [record for record in records if not record.failed]
    if any(name.startswith(("sp_", "joint_", "support_")) for name in metric_names):
        yield from _of_kinds("support", list(map(metrics.support_kind, answered)), "")
    if any(name.startswith("evidence_") for name in metric_names):
        if not any(record.extra.get("evidence_forms") for record in records):
            yield "evidence: entities match by the questions' names only; add --alias-file"
        reason = "; its prompt does not list the data's relations"
        yield from _of_kinds("evidence", list(map(metrics.evidence_kind, answered)), reason)


def _of_kinds(noun: str, kinds: Sequence[str | None], reason: str) -> Iterable[str]:
    """Yield the number of answers with attributed facts and of those with none."""
    if "attributed" in kinds:
        n = kinds.count("attributed")
        yield f"{noun}: of {n} answers named by a separate step, not by the program{reason}"
    if None in kinds and any(kinds):
        yield f"{noun}: {kinds.count(None)} answers name none and count as 0, as officially"


def _of_judge(
    protocol: Protocol, card: RunCard, judges: Mapping[str, AnnotationSummary]
) -> Iterable[str]:
    statements = protocol.judged_by == "statements"
    judging = judges.get("statements" if statements else "judge_arag")
    if judging is None:
        rule = "" if statements else " --judge-rule arag"
        yield f"judge: none; add --judge LM{rule}"
        return
    if protocol.self_judged and judging["model"] != card.model:
        yield f"judge: {judging['model']}, not the answering model {card.model}"
    name = judging["model"].partition("@")[0].rpartition("/")[2]
    if not name.startswith(protocol.judge_model):
        yield f"judge: {judging['model']}, not {protocol.judge_model}"
    if statements:
        yield f"similarity: {judging['embedder']}, not bge-large-en-v1.5"
        if judging["unscored"]:
            yield f"judge: {judging['unscored']} answers are unscored and excluded from the means"
    elif judging["unscored"]:
        yield (
            f"judge: {judging['unscored']} replies were neither correct nor incorrect; "
            "they count as incorrect, as in the published code"
        )
    if judging["not_asked"]:
        yield f"judge: {judging['not_asked']} answers were not judged"


PROTOCOLS: Registry[Protocol] = Registry("protocol", package="ragbench.experiments.score")


@cache
def _adapter() -> TypeAdapter[Protocol]:
    return TypeAdapter(Protocol)


def add_protocol(name: str, **fields: Any) -> None:
    """Register a protocol. A third-party package calls this when its entry point is imported.

    Args:
        name: Name of the protocol.
        fields: Fields of `Protocol`. A measure may be the name of a metric.

    Raises:
        ValidationError: A field is unknown or has a wrong value.
    """
    measures = [{"metric": m} if isinstance(m, str) else m for m in fields["measures"]]
    protocol = _adapter().validate_python({"name": name, **fields, "measures": measures})
    PROTOCOLS.register(name)(protocol)


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SHIPPED = yaml.load(Path(__file__).with_suffix(".yaml").read_text("utf-8"), _LOADER)
for _name, _fields in _SHIPPED.items():
    add_protocol(_name, **_fields)


def protocols() -> dict[str, Protocol]:
    """Return all protocols by name."""
    return dict(PROTOCOLS)


def get_protocol(name: str) -> Protocol:
    """Return the protocol called `name`."""
    return PROTOCOLS.get(name)
