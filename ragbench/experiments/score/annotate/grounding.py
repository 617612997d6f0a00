"""Grounding by a judge: which claims of a program its passages support, as a model sees it.

The claims are the sentences of the thoughts, and of the answer (`metrics.judged`); a short answer
is put as an answer to its question. The judge labels at most `MOST_CLAIMS` at once; where a claim
has no usable label, the question is unscored in what it concerns. What no passage was retrieved for
is not supported, and not asked about.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dspy

from ragbench.experiments.score.annotate.annotator import (
    Annotated,
    Annotation,
    Unit,
    annotate_units,
    numbered,
    shown,
    spending,
)
from ragbench.experiments.score.annotate.asking import Asking
from ragbench.metrics import claims_of_answer, claims_of_chain, says_something
from ragbench.record import Record, ShownPassage
from ragbench.signatures import LabelClaims

MOST_CLAIMS = 8
#: Tokens of passages shown with them; later ones are left out, and the cut is counted.
CONTEXT_TOKENS = 8000

#: Whether the passages support a claim; None for unscored.
Label = bool | None


@dataclass(frozen=True)
class Group:
    """Claims of one text, and the passages that they are held against."""

    qid: str
    claims: Sequence[str]
    shown: Sequence[str]  # the claims as the judge sees them
    passages: Sequence[ShownPassage]

    def units(self) -> list[Unit]:
        """Parts of at most `MOST_CLAIMS` claims."""
        if not self.passages or not self.claims:
            return []
        context, cut = shown(self.passages, max_tokens=CONTEXT_TOKENS)
        units = []
        for start in range(0, len(self.shown), MOST_CLAIMS):
            claims = list(self.shown[start : start + MOST_CLAIMS])
            inputs = {"context": context, "claims": numbered(claims)}
            units.append(Unit(self.qid, (context, claims), inputs, len(claims), cut))
        return units

    def labels(self, values: Iterator[Any]) -> list[Label]:
        """The label of each claim, from as many of `values` as the group has units."""
        if not self.passages:
            return [False] * len(self.claims)
        labels: list[Label] = []
        while len(labels) < len(self.claims):
            n = min(MOST_CLAIMS, len(self.claims) - len(labels))
            value = next(values, None)
            labels += value if value is not None and len(value) == n else [None] * n
        return labels


class Grounding(Annotation):
    """Fills the judged chain fidelity and hallucination rate."""

    name = "grounding"
    signature = LabelClaims

    def units(self, record: Record) -> Sequence[Unit]:
        """The claims of the thoughts, and those of the answer."""
        return [unit for group in groups_of(record) for unit in group.units()]

    def unusable(self, unit: Unit, reply: dspy.Prediction) -> str:
        """Why the labels cannot be used."""
        fits = len(reply.verdicts) == unit.data
        return "" if fits else "another number of verdicts than of claims"

    def read(self, unit: Unit, reply: dspy.Prediction) -> list[bool]:
        """Whether each claim is supported."""
        return [label == "supported" for label in reply.verdicts]

    def scores(self, record: Record, values: Sequence[Any]) -> dict[str, float | None]:
        """Both metrics; None where a claim has no label, or there is no claim."""
        every = iter(values)
        chain, answer = (_share(group.labels(every)) for group in groups_of(record))
        return {
            "chain_fidelity_judged": chain,
            "hallucination_rate_judged": None if answer is None else 1 - answer,
        }

    def summarize(self, records: Sequence[Record], annotated: Annotated) -> dict[str, Any]:
        """Beside the counts: how many claims are supported, are not, and have no label."""
        labels: list[Label] = []
        for record in records:
            if not record.failed:
                values = iter(annotated.values(record.qid))
                labels += [one for group in groups_of(record) for one in group.labels(values)]
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


def groups_of(record: Record) -> tuple[Group, Group]:
    """The claims of a record's thoughts, and of its answer."""
    chain, answer = claims_of_chain(record), claims_of_answer(record)
    in_words = [
        text if says_something(text) else f'The answer to "{record.question}" is: {text}'
        for text in answer
    ]
    passages = record.passages
    return Group(record.qid, chain, chain, passages), Group(record.qid, answer, in_words, passages)


def label_claims(
    folder: Path, groups: Sequence[Group], asking: Asking
) -> tuple[list[list[Label]], Annotated]:
    """The label of each claim of each group, and what the asking came to.

    Raises:
        RagbenchError: the LM cannot be called, or the journal cannot be written.
    """
    units = {str(i): units for i, group in enumerate(groups) if (units := group.units())}
    annotated = annotate_units(folder, units, Grounding(), asking)
    labels = [group.labels(iter(annotated.values(str(i)))) for i, group in enumerate(groups)]
    return labels, annotated


def _share(labels: Sequence[Label]) -> float | None:
    known = [label for label in labels if label is not None]
    return sum(known) / len(known) if known and len(known) == len(labels) else None
