"""Published evaluation protocols: what each fixes, and how far a run is from it.

A protocol is a declaration: corpus view, depth, metrics with their denominators, judge, and what
its prompts must be. `apply` computes its scores from a run's records and lists every deviation of
the run that can be seen; what cannot be seen from a record is listed as not checked.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ragbench.data import default_view
from ragbench.experiments.store import RunCard
from ragbench.metrics import (
    Metric,
    cluster_of,
    evidence_kind,
    get_metric,
    is_blank_answer,
    mean_interval,
    support_kind,
    usable_clusters,
)
from ragbench.record import Record

#: all: every question, failed and missing ones as 0. not_blank: the predictions that are not blank;
#: a question that an error ended has its message as one, and is wrong. scored: the answered
#: questions that have the score at all (published code drops NaN).
Denominator = Literal["all", "not_blank", "scored"]


@dataclass(frozen=True)
class Measure:
    """A metric as a protocol takes it."""

    metric: str
    over: Denominator = "all"
    qtypes: tuple[str, ...] = ()  # only these question types; all if empty
    label: str = ""

    @property
    def name(self) -> str:
        """What the protocol calls it."""
        return self.label or self.metric


@dataclass(frozen=True)
class Protocol:
    """What a published evaluation fixes; see the module."""

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
    judge_model: str = ""  # whatever answered
    self_judged: bool = False
    #: What `--judge` is asked for: a verdict on each answer, or a match of its statements.
    judged_by: Literal["verdict", "statements"] = "verdict"
    temperature: float | None = None
    answer_styles: tuple[str, ...] = ()  # the knob's values whose answers are as long as there
    prompt: str = ""
    always: tuple[str, ...] = ()  # deviations of ragbench itself
    unchecked: tuple[str, ...] = ()

    def lines(self) -> Iterable[str]:
        """What it fixes, for people."""
        yield f"{self.name}: {self.description}"
        yield f"source: {self.source}"
        fixed = {
            "data": ", ".join(self.datasets),
            "corpus view": self.view,
            "setting": self.setting,
            "k": " or ".join(map(str, self.k)),
            "questions": self.questions,
            "gold answers": "the first alone" if self.golds == "first" else "the best of all",
            "temperature": self.temperature,
            "answer_style": " or ".join(self.answer_styles),
            "prompts": self.prompt,
            "judge": self.judge,
        }
        yield from (f"{name}: {value}" for name, value in fixed.items() if value not in (None, ""))
        yield "metrics: name, denominator, question types"
        for measure in self.measures:
            kinds = ", ".join(measure.qtypes) or "all"
            known = f" ({measure.metric})" if measure.label else ""
            yield f"  {measure.name}{known}  {measure.over}  {kinds}"
        yield from (f"always differs: {text}" for text in self.always)
        yield from (f"not checked: {text}" for text in self.unchecked)


@dataclass(frozen=True)
class Applied:
    """The scores of a run under the protocol `name`, and what sets the run apart."""

    name: str
    scores: Mapping[str, Mapping[str, Any]]
    missing: Sequence[str]
    deviations: Sequence[str]
    unchecked: Sequence[str]


def apply(
    protocol: Protocol,
    card: RunCard,
    records: Sequence[Record],
    judges: Mapping[str, Mapping[str, Any]],
) -> Applied:
    """The protocol's scores of `records`, with every deviation that can be seen.

    `judges` are the summaries of judges by metric.
    """
    only_first = protocol.golds == "first"
    scored = [replace(r, answers=r.answers[:1]) for r in records] if only_first else records
    measured = {measure.name: _score(measure, scored) for measure in protocol.measures}
    scores = {name: score for name, score in measured.items() if score is not None}
    missing = [name for name, score in measured.items() if score is None]
    deviations = [
        *_of_data(protocol, card, len(records)),
        *_of_run(protocol, card, records),
        *_of_attribution(protocol, records),
        *(_of_judge(protocol, card, judges) if protocol.judge else ()),
        *protocol.always,
    ]
    return Applied(protocol.name, scores, missing, deviations, protocol.unchecked)


def _score(measure: Measure, records: Sequence[Record]) -> dict[str, Any] | None:
    metric = get_metric(measure.metric)
    chosen = [r for r in records if not measure.qtypes or r.qtype in measure.qtypes]
    if measure.over == "scored":
        chosen = [record for record in chosen if not record.failed]
    elif measure.over == "not_blank":
        chosen = [r for r in chosen if r.failure is not None or not is_blank_answer(r.answer)]
    values = [metric.score(record) for record in chosen]
    known = [value for value, record in zip(values, chosen, strict=True)
             if value is not None and not record.failed]  # fmt: skip
    if not known:
        return None  # nothing was scored: no number is made of failures alone
    if measure.over == "scored":
        kept = [r for r, value in zip(chosen, values, strict=True) if value is not None]
        return {**_mean(metric, kept, known), "over": measure.over}
    empty = sum(value is None for value in values)
    filled = {"without_score": empty} if empty else {}
    all_values = [value or 0.0 for value in values]
    return {**_mean(metric, chosen, all_values), "over": measure.over, **filled}


def _mean(metric: Metric, records: Sequence[Record], values: Sequence[float]) -> dict[str, Any]:
    """The mean of `values`, the scores of `records`, and both ends of its 95 % interval."""
    clusters = usable_clusters([cluster_of(record) for record in records])
    ends = mean_interval(values, metric.score_range, clusters)
    interval = {"interval": [ends.low, ends.high]} if ends else {}
    return {"mean": sum(values) / len(values), "n": len(values), **interval}


def _of_data(protocol: Protocol, card: RunCard, n: int) -> Iterable[str]:
    data = card.data
    if protocol.datasets and data.name not in protocol.datasets:
        yield f"data: {data.name}, not {' or '.join(protocol.datasets)}"
    view = card.identity.get("view") or default_view(data.name)
    if protocol.view and view != protocol.view:
        yield f"corpus view: {view}, not {protocol.view}"
    if protocol.setting and data.setting != protocol.setting:
        yield f"setting: {data.setting}, not {protocol.setting}"
    if protocol.questions and n != protocol.questions:
        yield f"questions: {n}, not {protocol.questions}"
    asked = card.identity.get("split")
    if asked != "all":  # all questions of a published file are the published list
        yield f"questions are ragbench's {asked} split of the file, not the published list of ids"


def _of_run(protocol: Protocol, card: RunCard, records: Sequence[Record]) -> Iterable[str]:
    identity, k = card.identity, card.knobs.get("k")
    if protocol.k and k not in protocol.k:
        yield f"k: {k}, not {' or '.join(map(str, protocol.k))}"
    temperature = identity.get("temperature")
    if protocol.temperature is not None and temperature != protocol.temperature:
        yield f"temperature: {temperature}, not {protocol.temperature}"
    style = card.knobs.get("answer_style")
    if protocol.answer_styles and style not in protocol.answer_styles:
        yield f"answer_style: {style or 'unknown'}, not {' or '.join(protocol.answer_styles)}"
    if card.compiled or identity.get("compiled"):
        yield "prompts: compiled on this data set, which no published protocol does"
    if protocol.golds == "first" and any(len(r.answers) > 1 for r in records):
        yield "gold answers: this data has aliases; they are left out here as the protocol asks"


def _of_attribution(protocol: Protocol, records: Sequence[Record]) -> Iterable[str]:
    names = tuple(measure.metric for measure in protocol.measures)
    answered = [record for record in records if not record.failed]
    if any(name.startswith(("sp_", "joint_", "support_")) for name in names):
        yield from _of_kinds("support", [support_kind(record) for record in answered], "")
    if any(name.startswith("evidence_") for name in names):
        if not any(record.extra.get("evidence_forms") for record in records):
            yield (
                "evidence: entities by the names in the questions alone; --alias-file has the "
                "others"
            )
        more = "; that step is not told the data's relations"
        yield from _of_kinds("evidence", [evidence_kind(record) for record in answered], more)


def _of_kinds(what: str, kinds: Sequence[str | None], more: str) -> Iterable[str]:
    """How many answers have what a separate step named, or name none; nothing where all do."""
    if "attributed" in kinds:
        yield (
            f"{what}: of {kinds.count('attributed')} answers named by a separate step, not by the "
            f"program{more}"
        )
    if None in kinds and any(kinds):
        yield f"{what}: {kinds.count(None)} answers name none and count as 0, as officially"


def _of_judge(
    protocol: Protocol, card: RunCard, judges: Mapping[str, Mapping[str, Any]]
) -> Iterable[str]:
    statements = protocol.judged_by == "statements"
    judging = judges.get("statements" if statements else "judge_arag")
    if judging is None:
        rule = "" if statements else f" --judge-rule {protocol.name}"
        yield f"judge: none was asked; give --judge LM{rule}"
        return
    if protocol.self_judged and judging["model"] != card.model:
        yield f"judge: {judging['model']}, not the answering model {card.model}"
    name = judging["model"].partition("@")[0].rpartition("/")[2]
    if not name.startswith(protocol.judge_model):
        yield f"judge: {judging['model']}, not {protocol.judge_model}"
    if statements:
        yield f"similarity: {judging['embedder']}, not bge-large-en-v1.5"
        if judging["unscored"]:
            yield f"judge: {judging['unscored']} answers are unscored and left out of the means"
    elif judging["unscored"]:
        yield (
            f"judge: {judging['unscored']} replies were neither correct nor incorrect; "
            "they count as incorrect, as in the published code"
        )
    if judging["not_asked"]:
        yield f"judge: {judging['not_asked']} answers were not judged"
