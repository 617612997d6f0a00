"""The judge: a model decides if an answer matches the gold answer, and why a wrong one is wrong.

There are two rules of verdicts:

- `ragbench` shows the question and all gold answers, and reads a typed verdict strictly. It retries
  an unreadable reply once. If that fails too, the answer is `unscored`, which is a separate class.
- `arag` is the rule of A-RAG and LinearRAG: no question, the first gold answer, and correct only if
  the stripped reply in lower case equals "correct".

The protocol of each rule defines its denominator. The prompt is not the published one, but has the
same three criteria.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, Literal

from ragbench.errors import ConfigError
from ragbench.experiments.score import AnnotationSummary
from ragbench.experiments.score.annotation import (
    Annotated,
    Annotation,
    Scores,
    Unit,
    context_lines,
    spending,
)
from ragbench.experiments.score.asking import uncached
from ragbench.ledger import calling
from ragbench.lms.lm import RagbenchLM
from ragbench.metrics import UNDECIDED, Cause, best, exact_match, union
from ragbench.record import Record
from ragbench.signatures import ExplainMistake, JudgeAnswer, NameFailure
from ragbench.text_normalization import first_tokens

Rule = Literal["ragbench", "arag"]

_WITHOUT_QUESTION = """\
You grade answers.

Generated answer: {answer}
Gold answer: {gold}

The generated answer is right if it holds the key information of the gold answer, agrees with it \
in its facts, and says nothing against it. Reply with one word and nothing else: correct or \
incorrect."""

#: Token limit of the passages, or of the steps, in the prompt about a wrong answer.
CONTEXT_TOKENS = 6000
#: Token limit of one step.
_STEP_TOKENS = 300
#: Maps each failure mode of A-RAG to its level of causes.
_LEVEL_OF_MODE = {
    "entity_confusion": "reading",
    "wrong_strategy": "control",
    "misunderstanding": "reading",
    "budget": "control",
    "not_in_corpus": "retrieval",
    "no_answer": "control",
}


class Judging(Annotation):
    """Verdicts on answers, at the judge's own temperature. They fill the metric of the rule.

    Args:
        rule: Rule of verdicts.
        repeats: How often each answer is judged. Its score is the mean of the verdicts.
    """

    signature = JudgeAnswer

    def __init__(self, rule: Rule, repeats: int = 1) -> None:
        self.repeats = repeats
        self.ours = rule == "ragbench"
        self.name = "judge" if self.ours else "judge_arag"

    def units(self, record: Record) -> Sequence[Unit]:
        golds = record.answers
        answer = record.answer
        inputs = {"question": record.question, "gold_answers": golds, "answer": answer}
        key_values: tuple[Any, ...] = (record.question if self.ours else None, golds, answer)
        units = [Unit(record.qid, key_values, inputs, 0)]
        for repeat in range(1, self.repeats):
            units.append(Unit(record.qid, (*key_values, repeat), inputs, repeat))
        return units

    def ask(self, unit: Unit, lm: RagbenchLM) -> str:
        """Return the reply: a verdict, or any text under A-RAG's rule."""
        if unit.data:
            lm = uncached(lm, unit.data)
        if self.ours:
            return str(super().ask(unit, lm))
        gold = unit.inputs["gold_answers"][0]
        with calling("JudgeWithoutQuestion", "judge"):
            reply = lm(_WITHOUT_QUESTION.format(answer=unit.inputs["answer"], gold=gold))[0]
        text = reply["text"] if isinstance(reply, dict) else reply
        return str(text or "").strip().lower()[:200]

    def scores(self, record: Record, values: Sequence[Any]) -> Scores:
        verdicts = _verdicts(values)
        return {self.name: fmean(verdicts) if verdicts else None}

    def summarize(self, records: Sequence[Record], annotated: Annotated) -> AnnotationSummary:
        """Return counts of verdicts, of rejected exact matches, and of changed verdicts.

        An answer with verdicts of both kinds is `changed`, and neither correct nor incorrect.
        """
        counts = annotated.counts()
        verdicts: Counter[float | None] = Counter()
        exact: Counter[float | None] = Counter()
        not_asked = 0
        for record in records:
            if record.failed:
                continue
            not_asked += all(reply is None for _, reply in annotated.units.get(record.qid, ()))
            verdict = self.scores(record, annotated.values(record.qid))[self.name]
            if verdict not in (None, 0.0, 1.0):
                verdict = 0.5
            verdicts[verdict] += 1
            golds = record.answers
            if not self.ours:
                golds = golds[:1]
            if best(exact_match, record.answer_text, golds):
                exact[verdict] += 1
        return {
            **counts,
            "failed": len(records) - verdicts.total(),
            "correct": verdicts[1.0],
            "incorrect": verdicts[0.0],
            "changed": verdicts[0.5],
            "repeats": self.repeats,
            "unscored": verdicts[None] - not_asked,
            "exact": exact[1.0] + exact[0.5] + exact[0.0],
            "exact_rejected": exact[0.0],
        }

    @staticmethod
    def describe(name: str, summary: AnnotationSummary) -> list[str]:
        """Return the verdicts of a judge as text, with signs that it is unreliable."""
        lines = [
            f"{name} by {summary['model']}: {summary['correct']} correct, "
            f"{summary['incorrect']} incorrect, {summary['failed']} failed, {spending(summary)}"
        ]
        if summary.get("repeats", 1) > 1:
            judged = summary["correct"] + summary["incorrect"] + summary["changed"]
            share = summary["changed"] / judged if judged else 0.0
            lines.append(
                f"  judged {summary['repeats']} times: the verdict of {summary['changed']} of "
                f"{judged} answers changed ({share:.0%}); a score is the mean of the verdicts"
            )
        if summary["exact_rejected"]:
            lines.append(
                f"  it rejects {summary['exact_rejected']} of {summary['exact']} answers that "
                "match a gold answer exactly, so it is unreliable"
            )
        return lines


def _verdicts(values: Sequence[Any]) -> list[float]:
    """Return the readable verdicts on an answer: 1 for correct, 0 for incorrect."""
    score_of = {"correct": 1.0, "incorrect": 0.0}
    return [score_of[str(value)] for value in values if str(value) in score_of]


def check_judge(records: Sequence[Record], lm: RagbenchLM, *, allow_self: bool) -> None:
    """Refuse a judge that answered any of the records.

    Args:
        records: Records to judge.
        lm: The judge. Its model counts, not its address.
        allow_self: Allow it anyway.

    Raises:
        ConfigError: `lm` answered a record.
    """
    models = set()
    for record in records:
        for call in record.ledger.calls:
            if call.kind == "lm":
                models.add(call.model.partition("@")[0])
    if lm.model.partition("@")[0] in models and not allow_self:
        raise ConfigError(
            f"--judge {lm.model} answered these questions, and a model favors its own answers. "
            "Use another --judge, or add --allow-self-judge."
        )


class Causes(Annotation):
    """Causes of wrong answers that rules cannot decide.

    Rules decide most causes from the record, and these stay unchanged. Three cases depend on
    meaning:
    the answer means the same, is part of the gold answer, or is another thing of its kind. There, a
    model chooses one of six options, and the cause is marked as the model's. If the reply is
    unreadable after a retry, the cause stays undecided.

    Args:
        rules: The causes that the rules found, by question id.
    """

    name = "mistake"
    signature = ExplainMistake

    def __init__(self, rules: Mapping[str, Cause]) -> None:
        self.rules = rules

    def units(self, record: Record) -> Sequence[Unit]:
        """Return one unit if the rules leave the cause open."""
        if record.qid not in self.rules or self.rules[record.qid].name not in UNDECIDED:
            return ()
        context, cut = context_lines(record.passages, max_tokens=CONTEXT_TOKENS)
        inputs = {
            "context": context,
            "question": record.question,
            "gold_answers": record.answers,
            "answer": record.answer_text,
        }
        return (Unit(record.qid, tuple(inputs.values()), inputs, cut=cut),)

    def cause(self, record: Record, annotated: Annotated | None) -> Cause:
        """Return the cause of a wrong answer.

        Args:
            record: The record.
            annotated: Choices of the model. None: it was not asked.

        Returns:
            The cause that the model chose, or that of the rules if the model was not asked.
        """
        rule = self.rules[record.qid]
        units = annotated.units.get(record.qid) if annotated else None
        reply = units[0][1] if units else None
        if reply is None:
            return rule
        if reply.value is None:
            return Cause(rule.level, "undecided", reply.why, rule.hop, by="model")
        level, kind = self.level_and_kind(record, reply.value)
        words = reply.value.replace("_", " ")
        return Cause(level, kind, f"the model says: {words}", by="model")

    def level_and_kind(self, record: Record, value: str) -> tuple[str, str]:
        """Return level and kind of a cause that the model chose.

        Args:
            record: The record.
            value: Label that the model chose.
        """
        gold = set(record.gold_pids)
        same = ("data", "metrics_disagree")
        if self.rules[record.qid].kind == "among_words":
            same = ("reading", "wrong_form")
        lacking = ("retrieval", "answer_not_seen")
        if gold and gold <= set(union(record)):
            lacking = ("data", "answer_not_in_gold")
        return {
            "same_meaning": same,
            "part_of_it": ("reading", "partial"),
            "wrong_entity": ("reading", "same_type"),
            "wrong_kind": ("reading", "other_type"),
            "no_answer": ("control", "no_answer"),
            "passages_lack_it": lacking,
        }[value]


class FailureModes(Causes):
    """A-RAG's six failure modes (Du et al. 2026), named by a model from the steps of a program.

    Two kinds of question keep the cause of the rules and are not asked about: one that an error or
    a limit ended, and one without an answer although everything was in context.
    """

    name = "failure_mode"
    signature = NameFailure

    def units(self, record: Record) -> Sequence[Unit]:
        """Return one unit if the answer is wrong and no rule explains it."""
        rule = self.rules.get(record.qid)
        if rule is None or rule.name in ("control/budget", "control/no_answer"):
            return ()
        steps, cut = _steps_shown(record)
        retrieved = set(union(record))
        titles = {passage.pid: passage.title or passage.pid for passage in record.passages}
        gold = []
        for pid in record.gold_pids:
            gold.append(f"{titles.get(pid, pid)}: {'found' if pid in retrieved else 'not found'}")
        inputs = {
            "question": record.question,
            "gold_answers": record.answers,
            "gold_passages": gold,
            "steps": steps,
            "answer": record.answer_text,
            "ended_by": record.stop_reason or "",
        }
        return (Unit(record.qid, tuple(inputs.values()), inputs, cut=cut),)

    def level_and_kind(self, record: Record, value: str) -> tuple[str, str]:
        """Return level and kind of a mode."""
        return _LEVEL_OF_MODE[value], value


def _steps_shown(record: Record) -> tuple[list[str], bool]:
    """Return the steps and searches that fit, and True if some did not fit."""
    entries = []
    for step in record.steps:
        texts = list(filter(None, (step.input, step.thought, step.observation)))
        if texts:
            entries.append(f"{step.action}: {' | '.join(texts)}")
    titles = {passage.pid: passage.title or passage.pid for passage in record.passages}
    for search in record.searches:
        passages = "; ".join(titles.get(pid, pid) for pid in search.pids)
        entries.append(f"searched: {search.query} | found: {passages or 'nothing'}")
    lines = []
    room = CONTEXT_TOKENS
    for entry in entries:
        lines.append(first_tokens(entry, min(room, _STEP_TOKENS)))
        room -= _STEP_TOKENS
        if room <= 0:
            break
    return lines, len(lines) < len(entries)
