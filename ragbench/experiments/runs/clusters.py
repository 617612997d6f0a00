"""Clusters of the questions of a run, and means of its metrics over them.

A cluster is the unit of every interval and of every test (see `ragbench.data.clusters`).
"""

from collections.abc import Mapping

from ragbench.data import linked
from ragbench.experiments.store import StoredRecords, varies_with
from ragbench.metrics import Bounds, Mean, mean_of


def clusters_of(records: StoredRecords) -> dict[str, str]:
    """Return the cluster of each question by id. Empty if every question is its own cluster."""
    if clusters_of not in records.memo:
        keys = records.column(varies_with)
        qids = list(keys)
        firsts = linked(list(keys.values()))
        named = {qid: qids[at] for qid, at in zip(qids, firsts, strict=True)}
        records.memo[clusters_of] = named if len(set(firsts)) < len(qids) else {}
    clusters: dict[str, str] = records.memo[clusters_of]
    return clusters


def mean_of_run(
    records: StoredRecords, scores: Mapping[str, float | None], bounds: Bounds
) -> Mean | None:
    """Compute the mean of `scores` over the questions of a run, by their clusters.

    Args:
        records: Records of the run.
        scores: Scores by question id. None marks a question without a score.
        bounds: Least and greatest score. None if there are no bounds.

    Returns:
        The mean with its interval. None if no question has a score.
    """
    return mean_of(scores, bounds, clusters_of(records))
