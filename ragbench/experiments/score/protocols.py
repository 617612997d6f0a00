"""Published evaluation protocols: what each fixes, and how far a run is from it.

A protocol is a declaration: corpus view, depth, metrics with their denominators, judge, and what
its prompts must be, each as its official code has it, with the source of every fact. `apply`
computes its scores from a run's records and lists every deviation of the run that can be seen; what
cannot be seen from a record is listed as not checked.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ragbench.data import default_view
from ragbench.errors import UnknownNameError
from ragbench.experiments.store import RunCard
from ragbench.metrics import (
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
    label: str = ""  # what the protocol calls it, where that is another name


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

    def fixed(self) -> dict[str, tuple[Any, ...]]:
        """By name the values that each setting of a run may have; empty for any."""
        one = {
            "corpus view": self.view,
            "setting": self.setting,
            "questions": self.questions,
            "temperature": self.temperature,
        }
        ones = {name: () if value is None else (value,) for name, value in one.items()}
        return {"data": self.datasets, **ones, "k": self.k, "answer_style": self.answer_styles}

    def lines(self) -> Iterable[str]:
        """What it fixes, for people."""
        yield f"{self.name}: {self.description}"
        yield f"source: {self.source}"
        yield from (f"{name}: {_either(values)}" for name, values in self.fixed().items() if values)
        yield f"gold answers: {'the first alone' if self.golds == 'first' else 'the best of all'}"
        for name, value in (("prompts", self.prompt), ("judge", self.judge)):
            if value:
                yield f"{name}: {value}"
        yield "metrics: name, denominator, question types"
        for measure in self.measures:
            kinds = ", ".join(measure.qtypes) or "all"
            name = f"{measure.label} ({measure.metric})" if measure.label else measure.metric
            yield f"  {name}  {measure.over}  {kinds}"
        yield from (f"always differs: {text}" for text in self.always)
        yield from (f"not checked: {text}" for text in self.unchecked)


def apply(
    protocol: Protocol,
    card: RunCard,
    records: Sequence[Record],
    judges: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """The protocol's scores of `records`, JSON-ready, with every deviation that can be seen.

    `judges` are the summaries of judges by metric.
    """
    only_first = protocol.golds == "first"
    scored = [replace(r, answers=r.answers[:1]) for r in records] if only_first else records
    measured = {m.label or m.metric: _score(m, scored) for m in protocol.measures}
    deviations = [
        *_of_run(protocol, card, records),
        *_of_attribution(protocol, records),
        *(_of_judge(protocol, card, judges) if protocol.judge else ()),
        *protocol.always,
    ]
    return {
        "name": protocol.name,
        "scores": {name: score for name, score in measured.items() if score is not None},
        "missing": [name for name, score in measured.items() if score is None],
        "deviations": deviations,
        "unchecked": protocol.unchecked,
    }


def _score(measure: Measure, records: Sequence[Record]) -> dict[str, Any] | None:
    """The mean of a measure with both ends of its 95 % interval; None where it scores no answer."""
    metric = get_metric(measure.metric)
    chosen = [r for r in records if not measure.qtypes or r.qtype in measure.qtypes]
    if measure.over == "not_blank":
        chosen = [r for r in chosen if r.failure is not None or not is_blank_answer(r.answer)]
    pairs = [(record, metric.score(record)) for record in chosen]
    known = [pair for pair in pairs if pair[1] is not None and not pair[0].failed]
    if not known:
        return None  # nothing was scored: no number is made of failures alone
    if measure.over == "scored":
        pairs = known
    values = [value or 0.0 for _, value in pairs]
    clusters = usable_clusters([cluster_of(record) for record, _ in pairs])
    ends = mean_interval(values, metric.score_range, clusters)
    interval = {"interval": [ends.low, ends.high]} if ends else {}
    empty = sum(value is None for _, value in pairs)
    filled = {"without_score": empty} if empty else {}
    mean = sum(values) / len(values)
    return {"mean": mean, "n": len(values), **interval, "over": measure.over, **filled}


def _either(values: Sequence[Any]) -> str:
    return " or ".join(map(str, values))


def _of_run(protocol: Protocol, card: RunCard, records: Sequence[Record]) -> Iterable[str]:
    data, identity = card.data, card.identity
    found = {
        "data": data.name,
        "corpus view": identity.get("view") or default_view(data.name),
        "setting": data.setting,
        "questions": len(records),
        "temperature": identity.get("temperature"),
        "k": card.knobs.get("k"),
        "answer_style": card.knobs.get("answer_style") or "unknown",
    }
    for name, allowed in protocol.fixed().items():
        if allowed and found[name] not in allowed:
            yield f"{name}: {found[name]}, not {_either(allowed)}"
    asked = identity.get("split")
    if asked != "all":  # all questions of a published file are the published list
        yield f"questions are ragbench's {asked} split of the file, not the published list of ids"
    if card.compiled or identity.get("compiled"):
        yield "prompts: compiled on this data set, which no published protocol does"
    if protocol.golds == "first" and any(len(r.answers) > 1 for r in records):
        yield "gold answers: this data has aliases; they are left out here as the protocol asks"


def _of_attribution(protocol: Protocol, records: Sequence[Record]) -> Iterable[str]:
    names = tuple(measure.metric for measure in protocol.measures)
    answered = [record for record in records if not record.failed]
    if any(name.startswith(("sp_", "joint_", "support_")) for name in names):
        yield from _of_kinds("support", list(map(support_kind, answered)), "")
    if any(name.startswith("evidence_") for name in names):
        if not any(record.extra.get("evidence_forms") for record in records):
            yield "evidence: entities by the questions' names alone; --alias-file has the others"
        more = "; that step is not told the data's relations"
        yield from _of_kinds("evidence", list(map(evidence_kind, answered)), more)


def _of_kinds(what: str, kinds: Sequence[str | None], more: str) -> Iterable[str]:
    """How many answers have what a separate step named, or name none; nothing where all do."""
    if "attributed" in kinds:
        n = kinds.count("attributed")
        yield f"{what}: of {n} answers named by a separate step, not by the program{more}"
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


_TOKENS = "tokens are estimated (within 8 % of cl100k_base on the texts tried), not GPT-4o's"
_JUDGE_PROMPT = "the judge's prompt is worded by ragbench, with the same three criteria"
_CONTAIN = "a gold answer that normalises to nothing must match exactly, not always"


def _all(*names: str) -> tuple[Measure, ...]:
    return tuple(Measure(name) for name in names)


def _four(*prefixes: str) -> tuple[str, ...]:
    parts = ("em", "f1", "precision", "recall")
    return tuple(f"{prefix}_{part}" for prefix in prefixes for part in parts)


_ALL = (
    Protocol(
        name="hotpotqa",
        description="HotpotQA's official script: answer, supporting facts and joint",
        source="hotpot_evaluate_v1.py (Yang et al. 2018, arXiv:1809.09600)",
        measures=_all("em", "f1", *_four("sp", "joint")),
        datasets=("hotpotqa",),
        view="paragraph",
        golds="first",
        unchecked=("the official numbers are over the 7,405 questions of the development set",),
    ),
    Protocol(
        name="musique",
        description="MuSiQue's official script: answer with aliases, supporting paragraphs",
        source="evaluate_v1.0.py (Trivedi et al. 2022, arXiv:2108.00573)",
        measures=_all("em", "f1", "support_f1"),
        datasets=("musique",),
        view="paragraph",
        unchecked=("MuSiQue-Full, with unanswerable pairs, is not computed",),
    ),
    Protocol(
        name="2wiki",
        description="2WikiMultiHopQA's official script: answer, sentences, evidence and joint",
        source="2wikimultihop_evaluate_v1.1.py (Ho et al. 2020, arXiv:2011.01060)",
        measures=_all("em", "f1", *_four("sp", "evidence", "joint")),
        datasets=("2wikimultihopqa",),
        view="paragraph",
    ),
    Protocol(
        name="ircot",
        description="IRCoT's evaluation: DROP's EM and F1 beside HotpotQA's",
        source="evaluate.py of IRCoT (Trivedi et al. 2023, arXiv:2212.10509)",
        measures=_all("drop_em", "drop_f1", "em", "f1"),
        datasets=("hotpotqa", "musique", "2wikimultihopqa"),
        view="paragraph",
        setting="pooled",
        k=(2, 4, 6, 8),
        questions=500,
        temperature=0.0,
        prompt="20 hand-written chains per data set as demonstrations, a separate reader",
        unchecked=(
            "BM25 by Elasticsearch over the data set's own corpus, at most 15 paragraphs in all",
            "k and distractors chosen on 100 development questions; mean of three sets of "
            "demonstrations",
            "support is not predicted: the official joint numbers there are of dummies",
        ),
    ),
    Protocol(
        name="hipporag2",
        description="HippoRAG 2's evaluation: EM, SQuAD F1 and passage recall",
        source="HippoRAG 2 (Gutiérrez et al. 2025, arXiv:2502.14802) and its code",
        measures=_all("em", "squad_f1", "recall@2", "recall@5"),
        datasets=("hotpotqa", "musique", "2wikimultihopqa"),
        view="paragraph",
        setting="pooled",
        k=(5,),
        questions=1000,
        temperature=0.0,
        prompt="one MuSiQue chain as demonstration for all data; the text after 'Answer:'",
        unchecked=(
            "recall there compares passage strings of one ranking; here pids of the union",
            "its IRCoT reads up to 200 passages per thought unless told otherwise",
        ),
    ),
    Protocol(
        name="arag",
        description="A-RAG's evaluation: contain-match and judged accuracy of what is not blank",
        source="A-RAG (Du et al. 2026) and its code",
        measures=(
            Measure("judge_arag", "not_blank", label="LLM-Acc"),
            Measure("contain", "not_blank", label="Cont-Acc"),
            Measure("retrieved_tokens"),
        ),
        datasets=("arag", "graphrag_bench"),
        view="chunk",
        setting="pooled",
        k=(5,),
        golds="first",
        judge="rule arag: no question, exactly 'correct'; gpt-5-mini at temperature 0",
        judge_model="gpt-5-mini",
        temperature=0.0,
        answer_styles=("free", "long"),
        prompt="no instruction to answer briefly",
        always=(_JUDGE_PROMPT, _CONTAIN, _TOKENS),
        unchecked=(
            "15 loops in the example configuration, 10 if unset; 128,000 tokens of messages",
            "a failed question counts as predicted and wrong: there its error is its prediction",
            "the paper names the judge; its code takes the model of its environment",
        ),
    ),
    Protocol(
        name="linearrag",
        description="LinearRAG's evaluation: contain-match and judged accuracy over all",
        source="LinearRAG (arXiv:2510.10114) and its code",
        measures=(
            Measure("judge_arag", "all", label="LLM-Acc"),
            Measure("contain", "all", label="Contain-Acc"),
        ),
        datasets=("arag", "graphrag_bench"),
        view="chunk",
        setting="pooled",
        k=(5,),
        golds="first",
        judge="rule linearrag: no question, exactly 'correct'; the answering model",
        self_judged=True,
        answer_styles=("free", "long"),
        prompt="HippoRAG's reading prompt without a demonstration; 2,000 tokens",
        always=(_JUDGE_PROMPT, _CONTAIN),
    ),
    Protocol(
        name="graphrag-bench",
        description="GraphRAG-Bench's generation scores by question type",
        source="generation_eval.py of GraphRAG-Bench (Xiang et al. 2025, arXiv:2506.05690)",
        measures=(
            Measure("rouge_l", "scored", ("Fact Retrieval", "Complex Reasoning")),
            *(
                Measure("answer_correctness", "scored", (kind,), f"answer_correctness, {kind}")
                for kind in (
                    "Fact Retrieval",
                    "Complex Reasoning",
                    "Contextual Summarize",
                    "Creative Generation",
                )
            ),
            Measure("coverage", "scored", ("Contextual Summarize", "Creative Generation")),
            Measure("faithfulness", "scored", ("Creative Generation",)),
        ),
        datasets=("graphrag_bench",),
        view="chunk",
        setting="pooled",
        golds="first",
        judge="statements by an LM at temperature 0; similarity by bge-large-en-v1.5",
        judged_by="statements",
        temperature=0.0,
        answer_styles=("long",),
        always=(
            "the judge's prompts are worded by ragbench, without demonstrations; statements are "
            "matched by number",
            "an unreadable reply is unscored here; published, it can score 1 for two empty lists",
            "coverage takes the gold statements of answer_correctness, not a second list of facts",
            "ROUGE-L here stems no words",
        ),
        unchecked=("means leave out what has no score: read the number beside each",),
    ),
)

PROTOCOLS: Mapping[str, Protocol] = {protocol.name: protocol for protocol in _ALL}


def get_protocol(name: str) -> Protocol:
    """The protocol called `name`.

    Raises:
        UnknownNameError: there is none.
    """
    if name not in PROTOCOLS:
        raise UnknownNameError("protocol", name, PROTOCOLS)
    return PROTOCOLS[name]
