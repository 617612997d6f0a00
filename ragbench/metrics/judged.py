"""What a judge said of an answer, read from the record; the asking is done when a run is scored.

A verdict stands in the record's `scores` (1.0 correct, 0.0 incorrect) under the name of its rule.
An answer that the judge gave no usable verdict on has none: it is out of the mean and counted as
`unscored` beside it.
"""

from ragbench.metrics.base import METRICS, Metric, Record, failed

#: Metric -> the rule of judging that fills it.
JUDGED = {
    "judge": "correct by meaning, as a judge sees it with the question",
    "judge_arag": "correct by A-RAG's and LinearRAG's rule: a judge that is not shown the question",
}
_SOURCES = {"judge": "", "judge_arag": "A-RAG (Du et al. 2026), LinearRAG (arXiv:2510.10114)"}


def _register(name: str) -> None:
    def score(record: Record) -> float | None:
        if failed(record):
            return 0.0
        found = (record.get("scores") or {}).get(name)
        return None if found is None else float(found)

    METRICS.register(name)(Metric(name, score, JUDGED[name], _SOURCES[name]))


for _name in JUDGED:
    _register(_name)
