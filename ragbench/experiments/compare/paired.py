"""Paired comparisons of runs, question by question: scores with a verdict, and costs.

An arm is one run, or the runs of one program or optimizer: compile seeds, and repeats of each. The
scores of a program are means over its repeats, unless the repeats differ systematically
(`metrics.repeats`). Scores of an arm have the shape `(runs, questions)`. Every difference is B
minus A.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import compress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ragbench.errors import CompareError
from ragbench.experiments.runs.clusters import clusters_of
from ragbench.experiments.runs.summary import Evaluation, failed, folder_of_repeats
from ragbench.experiments.score import judge_of
from ragbench.experiments.store import question
from ragbench.metrics import (
    LEAST_SEEDS,
    Comparison,
    Interval,
    Method,
    compare_scores,
    estimate_difference,
    get_metric,
    repeats_differ,
    with_extremes,
    without_interval,
)
from ragbench.metrics.stats.estimates import Clusters

Floats = NDArray[np.float64]
#: The runs of one arm, over the same questions.
Arm = Sequence[Evaluation]
#: Reason that two repeats have no interval.
THREE_REPEATS = "an interval over repeats needs three: --repeats 3"
#: Measures of cost per question without caching: label -> metric.
MEASURES = {"calls": "calls", "tokens": "tokens", "cost $": "cost_usd", "latency s": "latency_s"}


class Shared:
    """Questions that runs share, with their clusters.

    `qids` are sorted. `clusters` has the format of `clusters_of`.
    """

    def __init__(self, qids: Iterable[str], run: Evaluation) -> None:
        """Select the questions `qids` of `run`."""
        self.qids = sorted(qids)
        self.clusters = clusters_of(run.records.only(self.qids))

    @classmethod
    def within(cls, arm: Arm) -> "Shared":
        """Select the questions that all runs of one arm have."""
        return cls(set(arm[0].records).intersection(*(run.records for run in arm)), arm[0])

    @classmethod
    def by(cls, runs: Iterable[Evaluation], *, common: bool) -> "Shared":
        """Select the questions of several runs.

        Args:
            runs: Runs. The first one is the base.
            common: Select the questions that all runs have. Otherwise, all runs must have the same
                ones.
        """
        every = iter(runs)
        base = next(every)
        qids = set(base.records)
        for run in every:
            qids.intersection_update(shared_questions(base, run, common=common))
        return cls(qids, base)

    def scores(self, runs: Arm, metric: str) -> Floats:
        """Return the scores, shape (runs, questions). NaN marks a missing score.

        Args:
            runs: Runs of an arm.
            metric: Name of the metric.
        """
        rows = []
        for run in runs:
            of_question = run.records.column(get_metric(metric).score)
            rows.append([of_question[qid] for qid in self.qids])
        return np.array(rows, dtype=np.float64)

    def complete(self, runs: Arm, metric: str) -> tuple[list[str], Floats]:
        """Return the questions with a score in every run, and their scores.

        Args:
            runs: Runs of an arm.
            metric: Name of the metric.

        Returns:
            Ids of the questions, and scores of shape (runs, questions).
        """
        scores = self.scores(runs, metric)
        in_all = np.isnan(scores).sum(axis=0) == 0
        # Question by question in memory, in which order they are added up.
        return list(compress(self.qids, in_all)), np.asfortranarray(scores[:, in_all])

    def scored(self, runs: Arm, metric: str) -> tuple[list[str], Floats]:
        """Return the questions with a score in every run, and their scores, after checks.

        Args:
            runs: Runs of an arm.
            metric: Name of the metric.

        Returns:
            Ids of the questions, and scores of shape (runs, questions).

        Raises:
            CompareError: The runs have different judges, or no question has an answer and a score
            in
                every run.
        """
        judges = set(filter(None, (judge_of(run.folder, metric) for run in runs)))
        if len(judges) > 1:
            raise CompareError(
                f"{metric} is by {' and by '.join(sorted(judges))}; score one again with the "
                "other's LM"
            )
        qids, scores = self.complete(runs, metric)
        for run in runs:
            of_question = run.records.column(failed)
            if not all(of_question[qid] for qid in qids):
                return qids, scores
        raise CompareError(
            f"{metric}: no question has a score in every run; compute it with `ragbench score`, or "
            "choose another metric"
        )

    def compare(self, a: Arm, b: Arm, metric: str, method: Method | None = None) -> Comparison:
        """Compare arm `b` with arm `a` over the questions that have the metric in some run.

        If only some runs have a score of a question, the verdict is the one that holds both with
        the worst and with the best score for the missing ones. Two repeats have no interval.

        Args:
            a: Runs of the first arm.
            b: Runs of the second arm.
            metric: Name of the metric.
            method: Statistical method. None: the default of the metric.
        """
        kind = get_metric(metric)
        qids, complete = self.scored([*a, *b], metric)
        of_complete = self._compared(a, b, qids, complete, metric, method)
        if is_pair_of_repeats(a) or is_pair_of_repeats(b):
            return without_interval(of_complete, THREE_REPEATS)
        scores = self.scores([*a, *b], metric)
        missing = np.isnan(scores)
        partly = missing.sum(axis=0) < len(scores)
        unscored = int(partly.sum()) - len(qids)
        if not unscored:
            return of_complete
        if kind.score_range is None:
            return with_extremes(of_complete, [replace(of_complete, interval=None)], unscored)
        extremes = []
        scored_qids = list(compress(self.qids, partly))
        for ends in (kind.score_range, kind.score_range[::-1]):
            filled = np.where(missing, np.repeat(ends, [len(a), len(b)])[:, None], scores)
            extremes.append(self._compared(a, b, scored_qids, filled[:, partly], metric, method))
        return with_extremes(of_complete, extremes, unscored)

    def _compared(
        self, a: Arm, b: Arm, qids: Sequence[str], scores: Floats, metric: str,
        method: Method | None = None,
    ) -> Comparison:  # fmt: skip
        kind = get_metric(metric)
        groups = groups_of(self.clusters, qids)
        return compare_scores(
            programs_of(a, scores[: len(a)], groups),
            programs_of(b, scores[len(a) :], groups),
            groups,
            higher_is_better=kind.higher_is_better,
            score_range=kind.score_range,
            method=method,
        )

    def mean(self, arm: Arm, metric: str) -> tuple[float | None, Interval | None]:
        """Return the mean of an arm and its 95 % interval.

        The mean is over the questions that all runs have a score of. The interval is over clusters
        of questions, and over programs if the arm has several. Two repeats have no interval.

        Args:
            arm: Runs of the arm.
            metric: Name of the metric.

        Returns:
            The mean and its interval. Both are None without a score.
        """
        qids, scores = self.complete(arm, metric)
        if not qids:
            return None, None
        groups = groups_of(self.clusters, qids)
        rows = programs_of(arm, scores, groups)
        bounds = get_metric(metric).score_range
        estimate = estimate_difference(np.zeros((1, len(qids))), rows, bounds, groups)
        if is_pair_of_repeats(arm):
            estimate = None
        return float(scores.mean()), estimate.interval() if estimate else None

    def cost(self, a: Arm, b: Arm, measure: str) -> Comparison | None:
        """Compare the cost of two arms without a test.

        Args:
            a: Runs of the first arm.
            b: Runs of the second arm.
            measure: Name of a metric without bounds.

        Returns:
            The comparison. None if the cost of a question is unknown.
        """
        amounts = self.scores([*a, *b], measure)
        if np.isnan(amounts).any():
            return None
        return self._compared(a, b, self.qids, amounts, measure)

    def changed(self, a: Arm, b: Arm) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the questions that `b` fixes, and those that it breaks.

        An arm has a question right if more than half of its runs answered exactly right.

        Args:
            a: Runs of the first arm.
            b: Runs of the second arm.
        """
        right = []
        for arm in (a, b):
            right.append((self.scores(arm, "em") == 1).sum(axis=0) > len(arm) / 2)
        before, after = right
        fixed = tuple(compress(self.qids, after & ~before))
        return fixed, tuple(compress(self.qids, before & ~after))


def programs_of(arm: Arm, scores: Floats, groups: Clusters) -> Floats:
    """Return the scores of each program of an arm.

    Runs in one folder of repeats are one program. Runs of fewer than `LEAST_SEEDS` compiled
    programs are one program too. Repeats that differ systematically count as separate programs.

    Args:
        arm: Runs.
        scores: Scores, shape (runs, questions).
        groups: Cluster of each question.

    Returns:
        Scores, shape (programs, questions).
    """
    alike = len({run.card.compiled for run in arm}) < LEAST_SEEDS
    programs: dict[Path | None, list[int]] = {}
    for at, run in enumerate(arm):
        place = None if alike else folder_of_repeats(run.folder)
        programs.setdefault(place, []).append(at)
    rows: list[Floats] = []
    for places in programs.values():
        repeats = scores[places]
        if repeats_differ(repeats, groups):
            rows.extend(repeats)
        else:
            rows.append(repeats.mean(axis=0))
    return np.array(rows)


def is_pair_of_repeats(arm: Arm) -> bool:
    """Return True if the arm has exactly two repeats of one program.

    Two repeats may differ systematically, for example after a server change, without showing it.
    """
    folders = {folder_of_repeats(run.folder) for run in arm}
    return len(arm) == 2 and len(folders) == 1 and None not in folders


def groups_of(clusters: Mapping[str, Hashable], qids: Iterable[str]) -> Clusters:
    """Return the cluster of each question, or None if questions are independent.

    Args:
        clusters: Cluster of each question by id. Empty: questions are independent.
        qids: Ids of questions.
    """
    if clusters:
        return [clusters[qid] for qid in qids]
    return None


def read_for(run: Evaluation, metrics: Iterable[str]) -> None:
    """Parse every record of a run at most once, for comparisons by metrics.

    Args:
        run: The run.
        metrics: Names of metrics.
    """
    scores = [get_metric(name).score for name in (*metrics, *MEASURES.values())]
    run.records.compute([*scores, question])


def shared_questions(a: Evaluation, b: Evaluation, *, common: bool = False) -> list[str]:
    """Return the ids of the questions that both runs have.

    Args:
        a: Run A.
        b: Run B.
        common: False requires that both have the same questions.

    Raises:
        CompareError: The runs have different data or questions, or share no question.
    """
    if origin(a) != origin(b):  # a file may have another name
        data = [run.card.data for run in (a, b)]
        key = "name"
        differing = [card.name for card in data]
        if differing[0] == differing[1]:
            key = "digest"
            differing = [card.digest[:16] for card in data]
        raise CompareError(
            f"the runs are over different data: {key} {differing[0]!r} and {differing[1]!r}; run "
            "both on the same data set, corpus, setting and seed"
        )
    shared = list(filter(b.records.__contains__, a.records))
    only_a = len(a.records) - len(shared)
    only_b = len(b.records) - len(shared)
    if (only_a or only_b) and not common:
        raise CompareError(
            f"the runs are over different questions: {only_a} only in {a.folder}, {only_b} only in "
            f"{b.folder}; finish both with one limit, or give --common to compare the shared ones"
        )
    if not shared:
        raise CompareError("the runs share no question; run `ragbench eval` on the same data first")
    return shared


def origin(run: Evaluation) -> str:
    """Return the digest of the data. For a renamed twin, return that of the original."""
    return str(run.card.data_card.get("twin_of") or run.card.data.digest)
