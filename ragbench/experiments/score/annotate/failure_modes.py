"""Failure modes after A-RAG's error analysis (Du et al. 2026, arXiv:2602.03442, appendix D).

Two levels, as there: what failed, and how. Rules decide what a record shows: a limit was reached,
no answer was given, the corpus lacks the answer, the answer is right in substance. A model reads
the steps of the others, the first `MOST` of a run as the paper does, and is asked twice, so that
the agreement of the two readings stands beside the shares. The names `reasoning_chain` and
`entity_confusion` are the paper's; how each is worded for the model is ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dspy

from ragbench.experiments.score.annotate.annotator import Annotated, Annotation, Unit, shown
from ragbench.experiments.score.annotate.journal import Result
from ragbench.metrics import Cause, cohens_kappa
from ragbench.record import Record, Step
from ragbench.signatures import ClassifyFailure

#: Wrong answers of a run that a model is asked about.
MOST = 100
#: Tokens of passages shown with a question, and characters of a step.
CONTEXT_TOKENS = 6000
_STEP = 400
#: What failed, in the order in which tables show it.
LEVELS = ("judge", "corpus", "reasoning_chain", "system")

_BY_RULE: Mapping[str, tuple[str, str]] = {
    "reading/wrong_form": ("judge", "judge_error"),
    "data/metrics_disagree": ("judge", "judge_error"),
    "data/answer_not_in_gold": ("corpus", "answer_missing"),
    "control/budget": ("reasoning_chain", "limit_reached"),
    "control/loop": ("reasoning_chain", "limit_reached"),
    "control/gave_up": ("reasoning_chain", "gave_up"),
    "control/no_search": ("reasoning_chain", "wrong_strategy"),
}
_BY_MODEL: Mapping[str, tuple[str, str]] = {
    "judged_wrongly": ("judge", "judge_error"),
    "passages_missing": ("corpus", "answer_missing"),
    "entity_confused": ("reasoning_chain", "entity_confusion"),
    "search_misdirected": ("reasoning_chain", "wrong_strategy"),
    "question_misread": ("reasoning_chain", "question_misunderstood"),
    "inference_wrong": ("reasoning_chain", "wrong_inference"),
}


class FailureModes(Annotation):
    """The failure mode of each wrong answer; `causes` are those of the rules, by question id."""

    name = "failure_mode"
    signature = ClassifyFailure
    levels = LEVELS

    def __init__(self, causes: Mapping[str, Cause]) -> None:
        self.rules = {qid: _by_rule(cause) for qid, cause in causes.items()}
        undecided = (qid for qid, cause in sorted(self.rules.items()) if cause.kind == "undecided")
        self._open = set(list(undecided)[:MOST])

    def units(self, record: Record) -> Sequence[Unit]:
        """Two readings, where the rules leave it open."""
        if record.qid not in self._open:
            return ()
        context, cut = shown(record.passages, max_tokens=CONTEXT_TOKENS)
        inputs = {
            "context": context,
            "steps": [_line(step) for step in record.steps],
            "question": record.question,
            "gold_answers": record.answers,
            "answer": record.answer_text,
        }
        return [
            Unit(record.qid, (*inputs.values(), repeat), inputs, cut=cut, repeat=repeat)
            for repeat in range(2)
        ]

    def read(self, unit: Unit, reply: dspy.Prediction) -> str:
        """The failure that was chosen."""
        return str(reply.failure)

    def cause(self, record: Record, results: Sequence[Result | None]) -> Cause:
        """The failure mode by the first reading; that of the rules where there is none."""
        first = results[0] if results else None
        if first is None:
            return self.rules[record.qid]
        if first.value is None:
            return Cause("reasoning_chain", "undecided", first.why, by="model")
        level, kind = _BY_MODEL[first.value]
        return Cause(level, kind, f"the model says: {first.value.replace('_', ' ')}", by="model")

    def summarize(self, records: Sequence[Record], annotated: Annotated) -> dict[str, Any]:
        """Beside the counts, how far the two readings agree."""
        rows = [annotated.values(qid) for qid in annotated.units]
        pairs = [(a, b) for a, b in rows if a is not None and b is not None]
        return {
            **annotated.counts(),
            "second_reading": {
                "n": len(pairs),
                "same": sum(a == b for a, b in pairs),
                "cohen_kappa": cohens_kappa([a for a, _ in pairs], [b for _, b in pairs]),
            },
        }


def _by_rule(cause: Cause) -> Cause:
    if cause.name in _BY_RULE:
        return Cause(*_BY_RULE[cause.name], cause.detail, cause.hop)
    if cause.level == "control":
        return Cause("system", cause.kind, cause.detail, cause.hop)
    return Cause("reasoning_chain", "undecided", cause.detail, cause.hop)


def _line(step: Step) -> str:
    parts = (step.action, step.input, step.thought, step.observation)
    return " | ".join(" ".join(part.split())[:_STEP] for part in parts if part)
