"""Which questions of a run vary together: the unit of every interval and of every test."""

from collections.abc import Hashable, Sequence

from ragbench.data import find_clusters
from ragbench.experiments.store import StoredRecords, varies_with


def clusters_of(records: StoredRecords) -> dict[str, str]:
    """The cluster of each question; empty where there is one for each.

    As the data set names them; where its records do not say, by shared gold passages, or by the
    wording of questions that have none. Where all share one, no interval can be given.
    """
    if clusters_of not in records.memo:
        records.memo[clusters_of] = _clusters(records)
    clusters: dict[str, str] = records.memo[clusters_of]
    return clusters


def _clusters(records: StoredRecords) -> dict[str, str]:
    column = records.column(varies_with)
    keys: list[Sequence[Hashable]] = []
    clusters: list[str] = []
    for value in column.values():
        if isinstance(value, str):
            clusters.append(value)
            keys.append([("named", value)])
        else:
            keys.append(value)
    qids = list(column)
    if len(clusters) < len(qids):
        clusters = [qids[at] for at in find_clusters(keys)]
    if len(set(clusters)) == len(clusters):
        return {}
    return dict(zip(qids, clusters, strict=True))
