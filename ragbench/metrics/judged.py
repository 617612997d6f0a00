"""What a judge said of an answer, read from the record; the asking is done when a run is scored.

It stands in the record's `scores` under the name of its metric. An answer that the judge gave no
usable verdict on has none: it is out of the mean and counted as `unscored` beside it.
"""

from dataclasses import dataclass

from ragbench.metrics.base import METRICS, Metric
from ragbench.record import Record


@dataclass(frozen=True)
class _Judged:
    description: str
    source: str = ""
    worst: float = 0.0


_METRICS = {
    "judge": _Judged("correct by meaning, as a judge sees it with the question"),
    "judge_arag": _Judged(
        "correct by A-RAG's and LinearRAG's rule: a judge that is not shown the question",
        "A-RAG (Du et al. 2026), LinearRAG (arXiv:2510.10114)",
    ),
    "chain_fidelity_judged": _Judged(
        "share of the sentences thought that are grounded in what was retrieved, by a judge"
    ),
    "hallucination_rate_judged": _Judged(
        "share of the answer's claims not grounded in what was retrieved, by a judge", worst=1.0
    ),
}
#: Metrics that a judge fills.
JUDGED = tuple(_METRICS)
#: Those of claims, which one pass fills.
GROUNDED = ("chain_fidelity_judged", "hallucination_rate_judged")


def _register(name: str, judged: _Judged) -> None:
    def score(record: Record) -> float | None:
        if record.failed:
            return judged.worst
        value = record.scores.get(name)
        return None if value is None else float(value)

    METRICS.register(name)(
        Metric(
            name,
            score,
            judged.description,
            judged.source,
            worst=judged.worst,
            higher_is_better=judged.worst == 0.0,
        )
    )


for _name, _metric in _METRICS.items():
    _register(_name, _metric)
