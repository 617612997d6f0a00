"""Evidence: for programs that name no triples, a model writes the facts an answer is derived from.

One call per question whose data has gold triples (2WikiMultiHopQA), apart from the one that names
sentences. The passages that the program retrieved are shown; the data's relations are not listed,
so a right fact in other words counts as wrong. It is what a reader derives afterwards, and marked
as attributed. A reply that cannot be read, or has more than `MOST_TRIPLES`, is asked for once more
and then has no score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import dspy

from ragbench.experiments.score.annotate.annotator import Annotated, Annotation, Unit, shown
from ragbench.experiments.score.annotate.wording import spending
from ragbench.metrics import evidence_kind, gold_triples
from ragbench.record import Record
from ragbench.signatures import AttributeTriples

#: Tokens of passages shown in one call; later ones are left out, and the cut is counted.
MAX_TOKENS = 6000
#: Twice what the longest gold chains have.
MOST_TRIPLES = 10


class Evidence(Annotation):
    """Fills `attributed_triples` of every answer that names none."""

    name = "evidence"
    signature = AttributeTriples

    def concerns(self, records: Sequence[Record]) -> bool:
        """Whether the data has gold triples."""
        return any(not record.failed and gold_triples(record) for record in records)

    def units(self, record: Record) -> Sequence[Unit]:
        """One, where the data has gold triples, the program named none and passages are there."""
        if not (_is_silent(record) and record.passages):
            return ()
        context, cut = shown(record.passages, max_tokens=MAX_TOKENS)
        inputs = {"context": context, "question": record.question, "answer": record.answer_text}
        return (Unit(record.qid, tuple(inputs.values()), inputs, cut=cut),)

    def unusable(self, unit: Unit, reply: dspy.Prediction) -> str:
        """Why the triples cannot be used."""
        return f"more than {MOST_TRIPLES} triples" if len(reply.triples) > MOST_TRIPLES else ""

    def read(self, unit: Unit, reply: dspy.Prediction) -> list[list[str]]:
        """Subject, relation and object of each triple."""
        return [[triple.subject, triple.relation, triple.object] for triple in reply.triples]

    def fill(self, record: Record, values: Sequence[Any]) -> Record:
        """`record` with the triples attributed to it."""
        if not values or values[0] is None:
            return record
        return replace(record, attributed_triples=[(s, r, o) for s, r, o in values[0]])

    def summarize(self, records: Sequence[Record], annotated: Annotated) -> dict[str, Any]:
        """Beside the counts: answers with triples of their own, or without passages."""
        counts = annotated.counts()
        of_data = [r for r in records if not r.failed and gold_triples(r)]
        silent = [record for record in of_data if _is_silent(record)]
        return {
            **counts,
            "attributed": counts["asked"] - counts["unscored"],
            "named_themselves": len(of_data) - len(silent),
            "no_passages": len(silent) - len(annotated.units),
        }

    @staticmethod
    def describe(name: str, summary: Mapping[str, Any]) -> list[str]:
        """One line."""
        return [
            f"triples by {summary['model']}: {summary['attributed']} answers; "
            f"{summary['named_themselves']} name their own, {summary['no_passages']} have no "
            "passages, " + spending(summary)
        ]


def _is_silent(record: Record) -> bool:
    return bool(gold_triples(record)) and evidence_kind(record) != "cited"
