"""Supporting facts: sentences or paragraphs that a program names as proof of its answer.

The scores are those of HotpotQA v1 (sentences, and joint with the answer), MuSiQue v1.0
(paragraphs) and 2WikiMultiHopQA v1.1 (titles without case, and evidence triples). The named facts
are the program's `citations` and `facts`, or the record's `attribution` and `attributed_triples`,
which later steps fill in. `support_kind` and `evidence_kind` tell which, and summaries count them
separately. A retrieved passage is not a citation.
"""

import itertools
import math
from collections.abc import Callable, Collection, Hashable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from ragbench.metrics.answer import best, exact_match, hotpot_overlap
from ragbench.metrics.base import METRICS, Metric, once
from ragbench.metrics.text import strip_punctuation
from ragbench.record import Fact, Record

Kind = Literal["cited", "attributed"]


class SetScore(NamedTuple):
    """Exact match, precision, recall and F1 of a predicted set."""

    em: float
    precision: float
    recall: float
    f1: float


ZERO = SetScore(0.0, 0.0, 0.0, 0.0)


def set_score(pred: Collection[Hashable], gold: Collection[Hashable]) -> SetScore:
    """Compute HotpotQA's score of a predicted set. For two empty sets EM is 1 and F1 is 0.

    Args:
        pred: Predicted items.
        gold: Gold items.
    """
    hits = sum(item in gold for item in pred)
    missed = sum(item not in pred for item in gold)
    return _of_counts(hits, len(pred), hits + missed)


def _of_counts(hits: int, predicted: int, gold: int) -> SetScore:
    precision = hits / max(predicted, 1)
    recall = hits / max(gold, 1)
    exact = hits == predicted == gold
    return SetScore(float(exact), precision, recall, harmonic(precision, recall))


def musique_support_score(pred: Collection[Hashable], gold: Collection[Hashable]) -> SetScore:
    """Compute MuSiQue's score of predicted paragraphs: HotpotQA's, but F1 is 1 for empty sets.

    Args:
        pred: Predicted paragraphs.
        gold: Gold paragraphs.
    """
    score = set_score(pred, gold)
    if pred or gold:
        return score
    return score._replace(f1=1.0)


def fold_titles(facts: Collection[Fact]) -> list[Fact]:
    """Return facts with lower-case titles, as 2Wiki compares them. Duplicates count twice."""
    return [(title.lower(), index) for title, index in facts]


def evidence_score(
    pred: Collection[Sequence[str]], gold: Sequence[Collection[Sequence[str]]]
) -> SetScore:
    """Compute 2Wiki's score of predicted triples.

    Args:
        pred: Predicted triples.
        gold: For each gold triple all of its forms, by the aliases of its entities.
    """
    triples = set(map(_fold_triple, pred))
    gold_forms: set[tuple[str, ...]] = set()
    for forms in gold:
        gold_forms.update(map(_fold_triple, forms))
    return _of_counts(len(triples & gold_forms), len(triples), len(gold))


def joint(*scores: SetScore) -> SetScore:
    """Return the products of EMs, precisions and recalls, and the F1 of the products."""
    em, precision, recall, _ = map(math.prod, zip(*scores, strict=True))
    return SetScore(em, precision, recall, harmonic(precision, recall))


def harmonic(precision: float, recall: float) -> float:
    """Return the F1 of a precision and a recall. 0 if both are 0.

    Args:
        precision: Precision, in [0, 1].
        recall: Recall, in [0, 1].
    """
    if precision + recall:
        return 2 * precision * recall / (precision + recall)
    return 0.0


@once
def support_kind(record: Record) -> Kind | None:
    """Return the source of the record's sentence support. None without a named sentence.

    If a system names sentences, but none for this question, the question scores 0.
    """
    if record.cites_sentences or any(_is_fact(item) for item in record.citations or ()):
        return "cited"
    if record.attribution is not None:
        return "attributed"
    return None


@once
def predicted_facts(record: Record) -> set[Fact] | None:
    """Return the sentences named as proof of the answer. None if the program names none.

    A cited passage makes no claim about each of its sentences, so citations of whole passages give
    no facts.
    """
    items = record.attribution
    if support_kind(record) == "cited":
        items = record.citations or []
    if items is None:
        return None
    return {(item[0], item[1]) for item in items if _is_fact(item)}


@once
def predicted_pids(record: Record) -> set[str] | None:
    """Return the passages named as proof of the answer. None if the program names none.

    A citation is a number (from 1, into the record's passages), a passage id, or a fact. A citation
    of no existing passage remains in the set, so that it lowers precision.
    """
    items = record.attribution if record.citations is None else record.citations
    if items is None:
        if record.cites_sentences:
            return set()
        return None
    pids: dict[Any, str] = {p.title: p.pid for p in reversed(record.passages)}
    pids |= {number: p.pid for number, p in enumerate(record.passages, start=1)}
    cited = set()
    for item in items:
        place = item[0] if _is_fact(item) else item
        if place is item and not isinstance(item, int):
            cited.add(str(item))
        else:
            cited.add(pids.get(place, f"no passage {place}"))
    return cited


@once
def fact_score(record: Record) -> SetScore | None:
    """Score the named sentences. None without gold facts or named sentences.

    A failed record with gold facts scores 0. 2WikiMultiHopQA, whose questions have evidence
    triples, compares titles without case.
    """
    gold: Collection[Fact] = {(title, int(index)) for title, index in record.support}
    if not gold:
        return None
    if record.failed:
        return ZERO
    pred: Collection[Fact] | None = predicted_facts(record)
    if pred is None:
        return None
    if gold_triples(record):
        return set_score(fold_titles(pred), fold_titles(gold))
    return set_score(pred, gold)


@once
def paragraph_score(record: Record) -> SetScore | None:
    """Score the named passages against `gold_pids`. None as for `fact_score`."""
    if not record.gold_pids:
        return None
    if record.failed:
        return ZERO
    pred = predicted_pids(record)
    if pred is None:
        return None
    return musique_support_score(pred, set(record.gold_pids))


def evidence_kind(record: Record) -> Kind | None:
    """Return the source of the record's triples. None if it names none.

    The triples of a program are in its `facts`. A separate step fills in `attributed_triples`.
    """
    if any(map(_is_triple, record.facts or ())):
        return "cited"
    if record.attributed_triples is not None:
        return "attributed"
    return None


def gold_triples(record: Record) -> list[list[list[str]]]:
    """Return the gold evidence: for each triple its three parts, for each part its names.

    A part has several names if the data was loaded with its alias file. Empty without evidence.
    """
    extra = record.extra
    if extra.get("evidence_forms"):
        forms: list[list[list[str]]] = extra["evidence_forms"]
        return forms
    triples = []
    for triple in extra.get("evidences") or ():
        triples.append([[term] for term in triple])
    return triples


@once
def triple_score(record: Record) -> SetScore | None:
    """Score the named triples against the data's evidence. None as for `fact_score`."""
    gold = gold_triples(record)
    if not gold:
        return None
    if record.failed:
        return ZERO
    items = record.facts if evidence_kind(record) == "cited" else record.attributed_triples
    if items is None:
        return None
    forms = [list(itertools.product(*options)) for options in gold]
    return evidence_score(list(filter(_is_triple, items)), forms)


def answer_score(record: Record) -> SetScore:
    """Return EM, precision, recall and F1 of the answer, each the best over gold answers."""
    if record.failed:
        return ZERO
    overlaps = [hotpot_overlap(record.answer_text, gold) for gold in record.answers]
    em = best(exact_match, record.answer_text, record.answers)
    return SetScore(em, *map(max, zip(*overlaps, strict=True)))


@once
def joint_score(record: Record) -> SetScore | None:
    """Return the joint score of answer and sentences, in 2WikiMultiHopQA also of evidence."""
    scores = [answer_score(record)]
    for score in (fact_score, triple_score) if gold_triples(record) else (fact_score,):
        of_proof = score(record)
        if of_proof is None:
            return None
        scores.append(of_proof)
    return joint(*scores)


def _is_fact(item: Any) -> bool:
    return isinstance(item, list | tuple) and list(map(type, item)) == [str, int]


def _is_triple(item: Any) -> bool:
    return isinstance(item, list | tuple) and list(map(type, item)) == [str, str, str]


def _fold_triple(triple: Sequence[str]) -> tuple[str, ...]:
    return tuple(" ".join(strip_punctuation(term.lower()).split()) for term in triple)


def _part(field: str, score: Callable[[Record], SetScore | None], record: Record) -> float | None:
    scores = score(record)
    if scores is None:
        return None
    return float(getattr(scores, field))


def _register(
    family: str, score: Callable[[Record], SetScore | None], subject: str, source: str
) -> None:
    """Register the scores of `family`. Its precision and recall are not listed."""
    for field in SetScore._fields:
        words = {"em": "exact match", "f1": "F1"}.get(field, field)
        value = partial(_part, field, score)
        metric = Metric(f"{family}_{field}", value, f"{words} of {subject}", source)
        METRICS.register(metric.name, listed=field in ("em", "f1"))(metric)


_OFFICIAL = "hotpot_evaluate_v1.py; for 2WikiMultiHopQA 2wikimultihop_evaluate_v1.1.py"

_register("sp", fact_score, "the sentences named as support", _OFFICIAL)
_register("joint", joint_score, "answer and support (2Wiki: and evidence) together", _OFFICIAL)
_register("support", paragraph_score, "the paragraphs named as support", "MuSiQue v1.0")
_register("evidence", triple_score, "the evidence triples named (2Wiki)", _OFFICIAL)
