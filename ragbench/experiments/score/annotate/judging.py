"""The judge: a model decides whether an answer means the gold one.

Two rules. `ragbench` shows the question and all gold answers and reads a typed verdict strictly; a
reply that cannot be read is asked for once more and is then `unscored`, a class of its own. `arag`
is that of A-RAG and LinearRAG: no question, the first gold answer, right only if the reply,
stripped and in lower case, is exactly "correct". A-RAG divides by the predictions that are not
blank, failed questions among them, LinearRAG by all; both stand in the summary. The prompt is ours:
theirs has the same three criteria.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import dspy

from ragbench.errors import ConfigError
from ragbench.experiments.score.annotate.annotator import (
    Annotated,
    Annotation,
    Unit,
    number,
    spending,
)
from ragbench.ledger import calling
from ragbench.lms import RagbenchLM
from ragbench.metrics import (
    best,
    cohens_kappa,
    contains,
    exact_match,
    is_blank_answer,
    krippendorff_alpha,
)
from ragbench.record import Record
from ragbench.signatures import JudgeAnswer

Rule = Literal["ragbench", "arag", "linearrag"]

#: Rule -> the metric that its verdicts fill; A-RAG's and LinearRAG's differ in denominator alone.
METRIC_OF: Mapping[str, str] = {
    "ragbench": "judge",
    "arag": "judge_arag",
    "linearrag": "judge_arag",
}

_WITHOUT_QUESTION = """\
You grade answers.

Generated answer: {answer}
Gold answer: {gold}

The generated answer is right if it holds the key information of the gold answer, agrees with it \
in its facts, and says nothing against it. Reply with one word and nothing else: correct or \
incorrect."""


class Judging(Annotation):
    """Fills the metric of its rule; the first verdict is the score.

    It is given at the judge's own temperature. The repeats are asked for with another seed at a
    higher one, and tell how stable the judge is.
    """

    signature = JudgeAnswer

    def __init__(self, rule: Rule, repeats: int = 1) -> None:
        self.rule, self.repeats = rule, repeats
        self.name = METRIC_OF[rule]

    def units(self, record: Record) -> Sequence[Unit]:
        """One for each verdict."""
        ours = self.rule == "ragbench"
        golds = record.answers if ours else record.answers[:1]
        inputs = {"question": record.question, "gold_answers": golds, "answer": record.answer}
        parts = (record.question if ours else None, golds, record.answer)
        return [Unit(record.qid, (n, *parts), inputs, repeat=n) for n in range(self.repeats)]

    def ask(self, unit: Unit, lm: RagbenchLM) -> str:
        """The reply: a verdict, or by A-RAG's rule any text."""
        if self.rule == "ragbench":
            return str(super().ask(unit, lm))
        gold = unit.inputs["gold_answers"][0]
        with calling("JudgeWithoutQuestion", "judge"):
            reply = lm(_WITHOUT_QUESTION.format(answer=unit.inputs["answer"], gold=gold))[0]
        said = reply["text"] if isinstance(reply, dict) else reply
        return str(said or "").strip().lower()[:200]

    def read(self, unit: Unit, reply: dspy.Prediction) -> str:
        """The verdict."""
        return str(reply.verdict)

    def scores(self, record: Record, values: Sequence[Any]) -> dict[str, float | None]:
        """1.0, 0.0, or None for unscored."""
        label = _label(values[0])
        return {self.name: None if label is None else float(label == "correct")}

    def summarize(self, records: Sequence[Record], annotated: Annotated) -> dict[str, Any]:
        """Counts, accuracies by denominator, and agreement of one judge.

        `accuracy_all` divides by all questions, `accuracy_not_blank` by those whose prediction is
        not blank, where a question that an error ended counts as predicted and wrong; in both, what
        is not judged correct is not right. Both are None as long as an answer has not been asked
        about. `accuracy_scored` leaves the unscored out.
        """
        n, answered = len(records), sum(not record.failed for record in records)
        labels = {
            qid: [_label(reply.value) for _, reply in some if reply]
            for qid, some in annotated.units.items()
        }
        labels = {qid: row for qid, row in labels.items() if row}
        first = [row[0] for row in labels.values()]
        correct, incorrect = first.count("correct"), first.count("incorrect")
        whole = answered == len(labels)
        return {
            **annotated.counts(),
            "rule": self.rule,
            "n": n,
            "failed": n - answered,
            "correct": correct,
            "incorrect": incorrect,
            "unscored": first.count(None),
            "not_asked": answered - len(labels),
            "accuracy_all": _share(correct, n) if whole else None,
            "accuracy_not_blank": _share(correct, _not_blank(records)) if whole else None,
            "accuracy_scored": _share(correct, correct + incorrect),
            "repeats": _repeats([row for row in labels.values() if len(row) > 1]),
            "contain": self._against_contain(records, labels),
        }

    def _against_contain(
        self, records: Sequence[Record], labels: Mapping[str, Sequence[str | None]]
    ) -> dict[str, Any]:
        """Contain-match and exact match beside the judge, over the gold answers that it saw."""
        seen = None if self.rule == "ragbench" else 1
        answered = [record for record in records if not record.failed]
        contain, exact = (
            {r.qid: best(metric, r.answer_text, r.answers[:seen]) for r in answered}
            for metric in (contains, exact_match)
        )
        scored = {q: float(row[0] == "correct") for q, row in labels.items() if row[0] is not None}
        pairs = [(contain[qid], score) for qid, score in scored.items()]
        matches = [score for qid, score in scored.items() if exact[qid]]
        return {
            "all": _share(sum(contain.values()), len(records)),
            "not_blank": _share(sum(contain.values()), _not_blank(records)),
            "n": len(pairs),
            "same": _share(sum(a == b for a, b in pairs), len(pairs)),
            "cohen_kappa": cohens_kappa([a for a, _ in pairs], [b for _, b in pairs]),
            "only_contain": sum(a > b for a, b in pairs),
            "only_judge": sum(a < b for a, b in pairs),
            "exact": len(matches),
            "exact_rejected": matches.count(0.0),
        }

    @staticmethod
    def describe(name: str, summary: Mapping[str, Any]) -> list[str]:
        """What a judge said, with every denominator, and how far it can be believed."""
        contain, repeats = summary["contain"], summary["repeats"]
        same = f"agrees with the judge on {number(contain['same'])} of {contain['n']}"
        lines = [
            f"{name} by {summary['model']}: {summary['correct']} correct, "
            f"{summary['incorrect']} incorrect, {summary['failed']} failed, {spending(summary)}",
            f"  accuracy: {number(summary['accuracy_all'])} of all (LinearRAG's denominator), "
            f"{number(summary['accuracy_not_blank'])} of those not blank (A-RAG's), "
            f"{number(summary['accuracy_scored'])} of those with a verdict",
            f"  contain-match: {number(contain['all'])} of all, {number(contain['not_blank'])} of "
            f"those not blank; {same} (kappa {number(contain['cohen_kappa'])}); right only by "
            f"contain {contain['only_contain']}, only by the judge {contain['only_judge']}",
        ]
        if contain["exact_rejected"]:
            lines.append(
                f"  it rejects {contain['exact_rejected']} of {contain['exact']} answers that "
                "match a gold answer exactly: it cannot be trusted far"
            )
        if repeats:
            lines.append(
                f"  {repeats['raters']} verdicts on each of {repeats['n']}: all agree on "
                f"{number(repeats['all_agree'])}, Cohen's kappa {number(repeats['cohen_kappa'])}, "
                f"Krippendorff's alpha {number(repeats['krippendorff_alpha'])}"
            )
        return lines


def check_judge(records: Sequence[Record], lm: RagbenchLM, *, allow_self: bool) -> None:
    """Do nothing if `lm` answered none of `records`; its weights count, not its address.

    Raises:
        ConfigError: it judges its own answers, and that is not allowed.
    """
    models = {
        call.model.partition("@")[0]
        for record in records
        for call in record.ledger.calls
        if call.kind == "lm"
    }
    if lm.model.partition("@")[0] in models and not allow_self:
        raise ConfigError(
            f"{lm.model} answered these questions, and a model favours its own answers; "
            "give another --judge, or --allow-self-judge"
        )


def _not_blank(records: Sequence[Record]) -> int:
    """Predictions that are not blank; a question that an error ended has its message as one."""
    return sum(r.failure is not None or not is_blank_answer(r.answer) for r in records)


def _label(value: Any) -> str | None:
    return value if value in ("correct", "incorrect") else None


def _repeats(rows: Sequence[Sequence[str | None]]) -> dict[str, Any] | None:
    if not rows:
        return None
    pairs = [(a, b) for a, b, *_ in rows if a is not None and b is not None]
    same = sum(len(set(row)) == 1 for row in rows)
    return {
        "n": len(rows),
        "raters": max(map(len, rows)),
        "all_agree": _share(same, len(rows)),
        "cohen_kappa": cohens_kappa([a for a, _ in pairs], [b for _, b in pairs]),
        "krippendorff_alpha": krippendorff_alpha(rows),
    }


def _share(part: float, whole: int) -> float | None:
    return part / whole if whole else None
