"""Comparison of a run with a run of the program `gold`: the gain of perfect retrieval."""

from collections import Counter
from pathlib import Path

from ragbench.errors import CompareError
from ragbench.experiments.compare.comparisons import compare_all
from ragbench.experiments.report.sections import Report
from ragbench.experiments.report.table import Column, Table
from ragbench.experiments.runs.summary import reopen
from ragbench.metrics import get_metric

#: Maps (run is right, `gold` is right) to the meaning of the pair.
OUTCOMES = {
    (True, True): "right in both",
    (False, True): "right only with the gold passages: retrieval",
    (False, False): "wrong even with the gold passages: reading",
    (True, False): "right only without them: chance or memory",
}
_COLUMNS = (Column("outcome"), Column("n", kind="count"), Column("share", kind="share"))


def gold_report(folder: Path, gold: Path, metric: str) -> Report:
    """Compare all questions of a run with those of a run of the program `gold`.

    Args:
        folder: Folder of the run.
        gold: Folder of a run of the program `gold` over the same questions.
        metric: Metric by which an answer is right: 1.

    Raises:
        CompareError: `gold` is of another program, data or questions.
    """
    run = reopen(folder)
    upper = reopen(gold)
    if upper.card.program != "gold":
        raise CompareError(
            f"--gold {gold} is a run of {upper.card.program}. Give a run of "
            "`ragbench eval --program gold` over the same questions."
        )
    [result] = compare_all([run, upper], metrics=[metric])
    gain = result.scores[metric]
    yield f"perfect retrieval changes {metric} by {gain.gain} over {gain.n} questions"
    score = get_metric(metric).score
    with_gold = upper.records.column(score)
    counts: Counter[tuple[bool, bool]] = Counter()
    for qid, value in run.records.column(score).items():
        gold_score = with_gold[qid]
        if value is not None and gold_score is not None:
            counts[value >= 1, gold_score >= 1] += 1
    rows = []
    for outcome, words in OUTCOMES.items():
        n = counts[outcome]
        rows.append({"outcome": words, "n": n, "share": n / counts.total()})
    yield Table("gold", _COLUMNS, rows)
