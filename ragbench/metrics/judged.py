"""Scores that a model gave when the run was scored, read from the record.

They stand in the record's `scores` under the name of their metric. An answer without a usable reply
has none: it is out of the mean and counted as `unscored` beside it.
"""

from ragbench.metrics.base import METRICS, Metric
from ragbench.record import Record


def asked_metric(name: str, description: str, source: str = "", *, worst: float = 0.0) -> None:
    """Register a metric that a model fills; a failed record has the `worst` score, 0 or 1."""

    def score(record: Record) -> float | None:
        if record.failed:
            return worst
        value = record.scores.get(name)
        return None if value is None else float(value)

    METRICS.register(name)(
        Metric(name, score, description, source, worst=worst, higher_is_better=worst == 0.0)
    )


#: Metrics of claims, which one pass fills.
GROUNDED = ("chain_fidelity_judged", "hallucination_rate_judged")
#: Metrics that a judge fills.
JUDGED = ("judge", "judge_arag", *GROUNDED)

asked_metric("judge", "correct by meaning, as a judge sees it with the question")
asked_metric(
    "judge_arag",
    "correct by A-RAG's and LinearRAG's rule: a judge that is not shown the question",
    "A-RAG (Du et al. 2026), LinearRAG (arXiv:2510.10114)",
)
asked_metric(
    "chain_fidelity_judged",
    "share of the sentences thought that are grounded in what was retrieved, by a judge",
)
asked_metric(
    "hallucination_rate_judged",
    "share of the answer's claims not grounded in what was retrieved, by a judge",
    worst=1.0,
)
