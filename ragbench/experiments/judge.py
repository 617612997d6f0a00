"""Judged accuracy: a model that did not answer says whether an answer means the gold one.

Two rules. `ragbench` shows the question and all gold answers and reads a typed verdict strictly; a
reply that cannot be read is asked for once more and is then `unscored`, a class of its own. `arag`
is that of A-RAG and LinearRAG: no question, the first gold answer, right only if the reply,
stripped and in lower case, is exactly "correct". A-RAG divides by the answered questions, LinearRAG
by all; both stand in the summary. The prompt is ours: theirs has the same three criteria.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from ragbench.errors import ConfigError
from ragbench.experiments.passes import (
    Asking,
    PassResult,
    Task,
    again,
    ask_strictly,
    key_of,
    not_failed,
    run_pass,
)
from ragbench.experiments.records import Record
from ragbench.ledger import calling
from ragbench.lms.lm import RagbenchLM
from ragbench.metrics.agreement import cohens_kappa, krippendorff_alpha
from ragbench.metrics.answer import best, contains, exact_match
from ragbench.programs.base import predict
from ragbench.signatures.judging import JudgeAnswer

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


@dataclass(frozen=True)
class Verdicts:
    """What a judge said: per question the labels of all repeats, None for unscored."""

    rule: str
    model: str
    labels: Mapping[str, Sequence[str | None]]
    result: PassResult
    why: Mapping[str, int]

    @property
    def metric(self) -> str:
        """The metric that these verdicts fill."""
        return METRIC_OF[self.rule]

    def scores(self) -> dict[str, float | None]:
        """Per question 1.0, 0.0 or None for unscored: the first verdict, at temperature 0."""
        return {
            qid: None if labels[0] is None else float(labels[0] == "correct")
            for qid, labels in self.labels.items()
        }


def check_judge(records: Sequence[Record], lm: RagbenchLM, *, allow_self: bool) -> None:
    """Do nothing if `lm` answered none of `records`; its weights count, not its address.

    Raises:
        ConfigError: it judges its own answers, and that is not allowed.
    """
    models = {
        call["model"].partition("@")[0]
        for record in records
        for call in record["ledger"]["calls"]
        if call.get("kind", "lm") == "lm"
    }
    if lm.model.partition("@")[0] in models and not allow_self:
        raise ConfigError(
            f"{lm.model} answered these questions, and a model favours its own answers; "
            "give another --judge, or --allow-self-judge"
        )


def judge(
    folder: Path, records: Sequence[Record], asking: Asking, *, rule: Rule, repeats: int = 1
) -> Verdicts:
    """Verdicts on every answered record; those in the folder's journal are not asked for again.

    The first verdict is given at the judge's own temperature and is the score; the repeats are
    asked for with another seed at a higher one, and tell how stable the judge is.

    Raises:
        RagbenchError: the judge cannot be called, or the journal cannot be written.
    """
    answered = not_failed(records)
    tasks = {
        record["qid"]: [_task(record, rule, number, asking.lm) for number in range(repeats)]
        for record in answered
    }
    result = run_pass(folder, [task for some in tasks.values() for task in some], asking)
    found = {
        qid: [result.results[task.key] for task in some if task.key in result.results]
        for qid, some in tasks.items()
    }
    labels = {qid: [_label(r.value) for r in rows] for qid, rows in found.items() if rows}
    why = Counter(r.why for rows in found.values() for r in rows if r.why)
    return Verdicts(rule, asking.lm.model, labels, result, dict(why.most_common(5)))


def _label(value: Any) -> str | None:
    return value if value in ("correct", "incorrect") else None


def _task(record: Record, rule: Rule, number: int, lm: RagbenchLM) -> Task:
    name = METRIC_OF[rule]
    golds = record["answers"] if rule == "ragbench" else record["answers"][:1]
    shown = record["question"] if rule == "ragbench" else None
    key = key_of(name, lm.model, number, shown, golds, record["answer"])
    # Repeats use other rollouts than the retry of `ask_strictly`, which has the first.
    asked = lm if number == 0 else again(lm, 10 * number)
    ask = _ask_with_question if rule == "ragbench" else _ask_without
    return Task(record["qid"], name, key, partial(ask, record, asked))


def _ask_with_question(record: Record, lm: RagbenchLM) -> str:
    reply = ask_strictly(
        predict(JudgeAnswer),
        lm,
        question=record["question"],
        gold_answers=record["answers"],
        answer=record["answer"],
    )
    return str(reply.verdict)


def _ask_without(record: Record, lm: RagbenchLM) -> str:
    text = _WITHOUT_QUESTION.format(answer=record["answer"], gold=record["answers"][0])
    with calling("JudgeWithoutQuestion", "judge"):
        reply = lm(text)[0]
    said = reply["text"] if isinstance(reply, dict) else reply
    return str(said or "").strip().lower()[:200]


def summarize_verdicts(records: Sequence[Record], verdicts: Verdicts) -> dict[str, Any]:
    """Counts, accuracies by denominator, agreement and spending of one judge, JSON-ready.

    `accuracy_all` divides by all questions, `accuracy_answered` by those that were answered; in
    both, what is not judged correct is not right. `accuracy_scored` leaves the unscored out.
    """
    scores = verdicts.scores()
    answered = not_failed(records)
    correct = sum(score == 1.0 for score in scores.values())
    incorrect = sum(score == 0.0 for score in scores.values())
    took = verdicts.result.totals()
    return {
        "rule": verdicts.rule,
        "model": verdicts.model,
        "n": len(records),
        "failed": len(records) - len(answered),
        "correct": correct,
        "incorrect": incorrect,
        "unscored": sum(score is None for score in scores.values()),
        "not_asked": len(answered) - len(scores),
        "unscored_because": dict(verdicts.why),
        "accuracy_all": _share(correct, len(records)),
        "accuracy_answered": _share(correct, len(answered)),
        "accuracy_scored": _share(correct, correct + incorrect),
        "repeats": _repeats(verdicts.labels),
        "contain": _against_contain(answered, len(records), scores, verdicts.rule),
        "as_if": asdict(took),
        "billed": asdict(verdicts.result.billed()),
    }


def _repeats(labels: Mapping[str, Sequence[str | None]]) -> dict[str, Any] | None:
    rows = [row for row in labels.values() if len(row) > 1]
    if not rows:
        return None
    pairs = [(row[0], row[1]) for row in rows if row[0] is not None and row[1] is not None]
    same = sum(len(set(row)) == 1 for row in rows)
    return {
        "n": len(rows),
        "raters": max(map(len, rows)),
        "all_agree": _share(same, len(rows)),
        "cohen_kappa": cohens_kappa([a for a, _ in pairs], [b for _, b in pairs]),
        "krippendorff_alpha": krippendorff_alpha(rows),
    }


def _against_contain(
    answered: Sequence[Record], n: int, scores: Mapping[str, float | None], rule: str
) -> dict[str, Any]:
    """Contain-match and exact match beside the judge, over the gold answers that it saw."""
    seen = None if rule == "ragbench" else 1
    contain, exact = (
        {r["qid"]: best(metric, r["answer"], r["answers"][:seen]) for r in answered}
        for metric in (contains, exact_match)
    )
    pairs = [(contain[qid], score) for qid, score in scores.items() if score is not None]
    matches = [score for qid, score in scores.items() if score is not None and exact[qid]]
    return {
        "all": _share(sum(contain.values()), n),
        "answered": _share(sum(contain.values()), len(answered)),
        "n": len(pairs),
        "same": _share(sum(a == b for a, b in pairs), len(pairs)),
        "cohen_kappa": cohens_kappa([a for a, _ in pairs], [b for _, b in pairs]),
        "only_contain": sum(a > b for a, b in pairs),
        "only_judge": sum(a < b for a, b in pairs),
        "exact": len(matches),
        "exact_rejected": matches.count(0.0),
    }


def _share(part: float, whole: int) -> float | None:
    return part / whole if whole else None
