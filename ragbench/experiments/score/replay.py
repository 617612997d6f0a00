"""Why an answer is wrong, by experiment: it is asked again with what may have been missing.

A reader answers each wrong question over what was shown, then with the gold passages that were not
shown, with the gold passages first, and with the gold passages alone: at most four calls, none of
which searches. The first change that makes it right is the cause; that the bare form of the
recorded answer is right takes no call.

    form         the answer is right once it is cut to its bare form
    chance       over the same passages the reader is right: a step of the program, or chance
    retrieval    with the gold passages that were not shown
    order        with the gold passages first
    distraction  with the gold passages alone
    reading      not even then

The interventions are those of contexteval. The reader is plain, so that programs are asked alike:
what a program's own reading adds or loses shows as `chance`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ragbench import signatures
from ragbench.experiments.runs.clusters import clusters_of
from ragbench.experiments.runs.summary import Evaluation
from ragbench.experiments.score.annotation import Annotation, Unit, annotate, shown, spending
from ragbench.experiments.score.asking import Asking
from ragbench.experiments.store import RunFolder, locked
from ragbench.metrics import Interval, get_metric, mean_interval
from ragbench.passages import Passage
from ragbench.programs.wrappers import bare_answer
from ragbench.record import Record, ShownPassage

#: Causes in the order in which they are tried, and what mends each.
CAUSES = {
    "form": "a shorter answer",
    "chance": "asking again, or another reader",
    "retrieval": "finding the gold passages",
    "order": "showing the gold passages first",
    "distraction": "showing fewer other passages",
    "reading": "a stronger reader",
}
#: Tokens of passages that a prompt shows.
_MAX_TOKENS = 8000
#: Name of a call -> the cause that it stands for where its answer is right.
_VARIANTS = {"unchanged": "chance", "given": "retrieval", "first": "order", "alone": "distraction"}


class Replay(Annotation):
    """Asks wrong questions again; `texts` has the gold passages that a record does not hold."""

    name = "replay"
    signature = signatures.AnswerFromContext

    def __init__(self, wrong: frozenset[str], texts: Mapping[str, Passage]) -> None:
        self.wrong = wrong
        self.texts = texts

    def units(self, record: Record) -> Sequence[Unit]:
        """The variants of a wrong question, in order; none where its gold is not known."""
        if record.qid not in self.wrong or not record.gold_pids:
            return ()
        seen: dict[str, ShownPassage | Passage] = {}
        for p in record.passages:
            seen[p.pid] = p
        before = list(seen.values())
        if record.shown is not None:
            before = [seen[pid] for pid in record.shown if pid in seen]
        gold: list[ShownPassage | Passage] = []
        for pid in record.gold_pids:
            passage = seen.get(pid) or self.texts.get(pid)
            if passage is None:
                return ()
            gold.append(passage)
        missing = [passage for passage in gold if passage not in before]
        distractors = [passage for passage in before if passage not in gold]
        contexts = {"unchanged": before}
        if missing:
            contexts["given"] = [*before, *missing]
        if distractors:
            contexts["first"] = [*gold, *distractors]
        contexts["alone"] = gold
        units = []
        for variant, passages in contexts.items():
            lines, cut = shown(passages, max_tokens=_MAX_TOKENS)
            inputs = {"context": lines, "question": record.question}
            key_values = (record.question, lines)
            units.append(Unit(record.qid, key_values, inputs, variant, cut))
        return units


@dataclass(frozen=True)
class Worth:
    """What mending a part of the system is worth: the mean gain over all questions."""

    part: str
    gain: float
    interval: Interval | None


@dataclass(frozen=True)
class Replayed:
    """The causes of a run's wrong answers; `unknown` are those whose gold is not at hand."""

    folder: Path
    questions: int
    causes: Mapping[str, str]
    unknown: Sequence[str]
    worth: Sequence[Worth]
    spent: str


def replay(
    folder: Path, asking: Asking, *, texts: Mapping[str, Passage], metric: str = "em"
) -> Replayed:
    """Asks the wrong questions of the run in `folder` again and returns what mends each.

    `texts` are passages of the corpus by pid. Replies stand in the run's journal, so that nothing
    is asked twice.
    """
    opened = RunFolder(folder)
    run = Evaluation(opened)
    measure = get_metric(metric)
    records = {}
    wrong = []
    for qid, record in run.records.items():
        score = measure.score(record)
        if score is not None and not record.failed:
            records[qid] = record
            if score < 1:
                wrong.append(qid)
    kind = Replay(frozenset(wrong), texts)
    with locked(folder):
        annotated = annotate(opened, records.values(), kind, asking)
    causes: dict[str, str] = {}
    unknown = []
    for qid in wrong:
        pairs = annotated.units.get(qid, ())
        answers = {}
        for unit, reply in pairs:
            if reply and reply.value:
                answers[unit.data] = reply.value
        cause = _cause(records[qid], answers, metric)
        if cause is None:
            unknown.append(qid)
        else:
            causes[qid] = cause
    return Replayed(
        folder=folder,
        questions=len(records),
        causes=causes,
        unknown=unknown,
        worth=_worth(run, list(records), causes),
        spent=spending(kind.summarize(list(records.values()), annotated)),
    )


def _cause(record: Record, answers: Mapping[str, str], metric: str) -> str | None:
    """Returns the first cause whose change makes the answer right; None where nothing was asked."""
    if _is_right(record, bare_answer(record.answer_text, record.question), metric):
        return "form"
    if not answers:
        return None
    for variant, cause in _VARIANTS.items():
        if variant in answers and _is_right(record, answers[variant], metric):
            return cause
    return "reading"


def _is_right(record: Record, answer: str, metric: str) -> bool:
    score = get_metric(metric).score(replace(record, answer=answer, scores={}))
    return score is not None and score >= 1


def _worth(run: Evaluation, qids: Sequence[str], causes: Mapping[str, str]) -> list[Worth]:
    """Returns what perfect retrieval, and a perfect reader of what was found, would gain."""
    of_question = clusters_of(run.records)
    if of_question:
        clusters = [of_question.get(qid, qid) for qid in qids]
    else:
        clusters = None
    steps = {
        "perfect retrieval": ("retrieval",),
        "a perfect reader of what was shown": ("order", "distraction", "reading"),
    }
    worth = []
    for step, mended in steps.items():
        gains = [float(causes.get(qid) in mended) for qid in qids]
        mean = sum(gains) / len(gains) if gains else 0.0
        worth.append(Worth(step, mean, mean_interval(gains, (0.0, 1.0), clusters)))
    return worth
