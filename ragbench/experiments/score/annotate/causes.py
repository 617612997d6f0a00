"""Causes of wrong answers by a model, where the rules see only that two strings differ.

Rules decide most causes from the record, and these stay as they are. Whether a wrong answer means
the same, is a part of the gold answer, or another thing of its kind is a question of meaning
(`metrics.errors.UNDECIDED` lists the causes): there a model chooses one of six, and its causes are
marked as the model's. A reply that cannot be read, after a second try, leaves the cause undecided.
"""

from collections.abc import Mapping, Sequence

import dspy

from ragbench.experiments.score.annotate.annotator import Annotated, Annotation, Unit, shown
from ragbench.metrics import UNDECIDED, Cause, union
from ragbench.record import Record
from ragbench.signatures import ExplainMistake

#: Tokens of passages shown with a question.
CONTEXT_TOKENS = 6000


class Causes(Annotation):
    """The causes that rules cannot decide; `causes` are those of the rules, by question id."""

    name = "mistake"
    signature = ExplainMistake

    def __init__(self, causes: Mapping[str, Cause]) -> None:
        self.rules = causes

    def units(self, record: Record) -> Sequence[Unit]:
        """One, where the rules leave the cause open."""
        if record.qid not in self.rules or self.rules[record.qid].name not in UNDECIDED:
            return ()
        context, cut = shown(record.passages, max_tokens=CONTEXT_TOKENS)
        inputs = {
            "context": context,
            "question": record.question,
            "gold_answers": record.answers,
            "answer": record.answer_text,
        }
        return (Unit(record.qid, tuple(inputs.values()), inputs, cut=cut),)

    def read(self, unit: Unit, reply: dspy.Prediction) -> str:
        """The mistake that was chosen."""
        return str(reply.mistake)

    def cause(self, record: Record, annotated: Annotated | None) -> Cause:
        """The cause that the model's choice stands for; the rules' where it was not asked."""
        rule = self.rules[record.qid]
        asked = annotated.units.get(record.qid) if annotated else None
        reply = asked[0][1] if asked else None
        if reply is None:
            return rule
        if reply.value is None:
            return Cause(rule.level, "undecided", reply.why, rule.hop, by="model")
        gold = set(record.gold_pids)
        all_there = bool(gold) and gold <= set(union(record))
        among = rule.kind == "among_words"
        same = ("reading", "wrong_form") if among else ("data", "metrics_disagree")
        lacking = ("data", "answer_not_in_gold") if all_there else ("retrieval", "answer_not_seen")
        level, kind = {
            "same_meaning": same,
            "part_of_it": ("reading", "partial"),
            "wrong_entity": ("reading", "same_type"),
            "wrong_kind": ("reading", "other_type"),
            "no_answer": ("control", "gave_up"),
            "passages_lack_it": lacking,
        }[reply.value]
        said = str(reply.value).replace("_", " ")
        return Cause(level, kind, f"the model says: {said}", by="model")
