"""Grounding by a judge: which claims of a program its passages support, as a model sees it.

The claims are the sentences of the thoughts, and of the answer (`metrics.judged`); a short answer
is put as an answer to its question. The judge labels at most `MOST_CLAIMS` at once; where a claim
has no usable label, the question is unscored in what it concerns. What no passage was retrieved for
is not supported, and not asked about.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dspy

from ragbench.experiments.score.annotation import (
    Annotated,
    Annotation,
    Unit,
    numbered,
    shown,
    spending,
)
from ragbench.experiments.score.asking import UnusableError
from ragbench.metrics import claims_of_answer, claims_of_chain, says_something, share
from ragbench.record import Record
from ragbench.signatures import LabelClaims

MOST_CLAIMS = 8
#: Tokens of passages shown with them; later ones are left out, and the cut is counted.
CONTEXT_TOKENS = 8000

#: Whether the passages support a claim; None for unscored.
Label = bool | None


class Grounding(Annotation):
    """Fills the judged chain fidelity and hallucination rate."""

    name = "grounding"
    signature = LabelClaims

    def units(self, record: Record) -> Sequence[Unit]:
        """Parts of at most `MOST_CLAIMS` claims, of the thoughts and then of the answer."""
        if not record.passages:
            return []
        context, cut = shown(record.passages, max_tokens=CONTEXT_TOKENS)
        units = []
        for claims in _claims(record):
            for part in _parts(claims):
                inputs = {"context": context, "claims": numbered(part)}
                units.append(Unit(record.qid, (context, part), inputs, len(part), cut))
        return units

    def read(self, unit: Unit, reply: dspy.Prediction) -> list[bool]:
        """Whether each claim is supported."""
        if len(reply.verdicts) != unit.data:
            raise UnusableError("another number of verdicts than of claims")
        return [label == "supported" for label in reply.verdicts]

    def scores(self, record: Record, values: Sequence[Any]) -> dict[str, float | None]:
        """Both metrics; None where a claim has no label, or there is no claim."""
        chain, answer = (
            None if None in labels else share(labels.count(True), len(labels))
            for labels in _labels(record, values)
        )
        return {
            "chain_fidelity_judged": chain,
            "hallucination_rate_judged": None if answer is None else 1 - answer,
        }

    def summarize(self, records: Sequence[Record], annotated: Annotated) -> dict[str, Any]:
        """Beside the counts: how many claims are supported, are not, and have no label."""
        answered = [record for record in records if not record.failed]
        by_record = [_labels(record, annotated.values(record.qid)) for record in answered]
        labels = [label for both in by_record for some in both for label in some]
        return {
            **annotated.counts(),
            "claims": len(labels),
            "supported": labels.count(True),
            "unsupported": labels.count(False),
            "unscored": labels.count(None),
        }

    @staticmethod
    def describe(name: str, summary: Mapping[str, Any]) -> list[str]:
        """One line."""
        return [
            f"{summary['claims']} claims judged by {summary['model']}: {summary['supported']} "
            f"supported, {summary['unsupported']} not; {spending(summary)}"
        ]


def _claims(record: Record) -> tuple[Sequence[str], Sequence[str]]:
    """The claims of a record's thoughts, and of its answer, in words."""
    answer = [
        text if says_something(text) else f'The answer to "{record.question}" is: {text}'
        for text in claims_of_answer(record)
    ]
    return claims_of_chain(record), answer


def _parts(claims: Sequence[str]) -> Iterator[list[str]]:
    for start in range(0, len(claims), MOST_CLAIMS):
        yield list(claims[start : start + MOST_CLAIMS])


def _labels(record: Record, values: Sequence[Any]) -> list[list[Label]]:
    """The label of each claim of the thoughts, and of the answer, from the `values` of units."""
    every = iter(values)
    return [
        [label for part in _parts(claims) for label in _labels_of(record, part, every)]
        for claims in _claims(record)
    ]


def _labels_of(record: Record, part: Sequence[str], values: Iterator[Any]) -> Sequence[Label]:
    if not record.passages:
        return [False] * len(part)
    labels: Sequence[Label] | None = next(values, None)
    return labels if labels is not None and len(labels) == len(part) else [None] * len(part)
