"""Runs against each other, question by question: scores with a verdict, and what a question costs.

An arm is one run, or the runs of one program or optimizer: compile seeds, and repeats of each. The
scores of a program are means over its repeats, unless those differ as wholes (`metrics.repeats`).
Scores of an arm are `(runs, questions)`. Every difference is B minus A.
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
    differ_as_wholes,
    estimate_difference,
    get_metric,
    with_extremes,
    without_interval,
)
from ragbench.metrics.stats.estimates import Clusters

Floats = NDArray[np.float64]
#: The runs of one arm, over the same questions.
Arm = Sequence[Evaluation]
#: Why two repeats have no interval.
THREE_REPEATS = "an interval over repeats needs three: --repeats 3"
#: What a question costs, as if nothing had been cached, in words and by its metric.
MEASURES = {"calls": "calls", "tokens": "tokens", "cost $": "cost_usd", "latency s": "latency_s"}


class Shared:
    """Questions that runs share, and the clusters in which they vary together.

    `qids` are sorted; `clusters` are as `clusters_of` has them.
    """

    def __init__(self, qids: Iterable[str], run: Evaluation) -> None:
        """The questions `qids`, which `run` has as well."""
        self.qids = sorted(qids)
        self.clusters = clusters_of(run.records.only(self.qids))

    @classmethod
    def within(cls, arm: Arm) -> "Shared":
        """The questions that all runs of one arm have."""
        return cls(set(arm[0].records).intersection(*(run.records for run in arm)), arm[0])

    @classmethod
    def by(cls, runs: Iterable[Evaluation], *, common: bool) -> "Shared":
        """The questions that all `runs` have; all of each, unless `common`."""
        every = iter(runs)
        base = next(every)
        qids = set(base.records)
        for run in every:
            qids.intersection_update(shared_questions(base, run, common=common))
        return cls(qids, base)

    def scores(self, runs: Arm, metric: str) -> Floats:
        """The scores of the questions in each of `runs`, NaN where one has none."""
        rows = []
        for run in runs:
            of_question = run.records.column(get_metric(metric).score)
            rows.append([of_question[qid] for qid in self.qids])
        return np.array(rows, dtype=np.float64)

    def complete(self, runs: Arm, metric: str) -> tuple[list[str], Floats]:
        """The questions that every one of `runs` has a score of, and their scores."""
        scores = self.scores(runs, metric)
        in_all = np.isnan(scores).sum(axis=0) == 0
        # Question by question in memory, in which order they are added up.
        return list(compress(self.qids, in_all)), np.asfortranarray(scores[:, in_all])

    def scored(self, runs: Arm, metric: str) -> tuple[list[str], Floats]:
        """As `complete`.

        Raises:
            CompareError: the runs were scored by different judges, or none has an answer that is
                scored in all.
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
            f"{metric}: no question has it in every run; `ragbench score` fills what a judge or an "
            "attribution gives, else choose another metric"
        )

    def compare(self, a: Arm, b: Arm, metric: str, method: Method | None = None) -> Comparison:
        """Compare arm `b` with arm `a` over the questions that have the metric in some run.

        If only some runs have a score of a question, the verdict is the one that holds both with
        the worst and with the best score for the missing ones. Two repeats have no interval.
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
        asked = list(compress(self.qids, partly))
        for ends in (kind.score_range, kind.score_range[::-1]):
            filled = np.where(missing, np.repeat(ends, [len(a), len(b)])[:, None], scores)
            extremes.append(self._compared(a, b, asked, filled[:, partly], metric, method))
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
        """Return the mean of an arm over the questions that all its runs have a score of.

        Its 95 % interval is that of questions by their clusters, and of programs if it has several.
        Both are None without a score. Two repeats have no interval.
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
        """Compare arm `b` with `a` by `measure`, a metric without bounds: nothing is tested.

        None if it is not known of every question.
        """
        amounts = self.scores([*a, *b], measure)
        if np.isnan(amounts).any():
            return None
        return self._compared(a, b, self.qids, amounts, measure)

    def changed(self, a: Arm, b: Arm) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The questions that `b` fixes, and that it breaks.

        A question is right in an arm where more than half of its runs answered exactly right.
        """
        right = []
        for arm in (a, b):
            right.append((self.scores(arm, "em") == 1).sum(axis=0) > len(arm) / 2)
        before, after = right
        fixed = tuple(compress(self.qids, after & ~before))
        return fixed, tuple(compress(self.qids, before & ~after))


def programs_of(arm: Arm, scores: Floats, groups: Clusters) -> Floats:
    """The scores of each program of an arm `(programs, questions)`, of those of its runs.

    Runs in one folder of repeats are one program, and so are all of fewer than `LEAST_SEEDS`
    compiled ones. They are programs of their own where they differ as wholes. `groups` are the
    clusters of the questions.
    """
    alike = len({run.card.compiled for run in arm}) < LEAST_SEEDS
    programs: dict[Path | None, list[int]] = {}
    for at, run in enumerate(arm):
        place = None if alike else folder_of_repeats(run.folder)
        programs.setdefault(place, []).append(at)
    rows: list[Floats] = []
    for places in programs.values():
        repeats = scores[places]
        if differ_as_wholes(repeats, groups):
            rows.extend(repeats)
        else:
            rows.append(repeats.mean(axis=0))
    return np.array(rows)


def is_pair_of_repeats(arm: Arm) -> bool:
    """Return whether the arm is one program that was asked twice.

    Two repeats may differ as wholes, as where a server changed between them, and do not show it.
    """
    folders = {folder_of_repeats(run.folder) for run in arm}
    return len(arm) == 2 and len(folders) == 1 and None not in folders


def groups_of(clusters: Mapping[str, Hashable], qids: Iterable[str]) -> Clusters:
    """The cluster of each of `qids`; None where every question stands alone."""
    if clusters:
        return [clusters[qid] for qid in qids]
    return None


def read_for(run: Evaluation, metrics: Iterable[str]) -> None:
    """Parse every record of `run` once, for its summary and for comparisons by `metrics`."""
    scores = [get_metric(name).score for name in (*metrics, *MEASURES.values())]
    run.read([*scores, question])


def shared_questions(a: Evaluation, b: Evaluation, *, common: bool = False) -> list[str]:
    """Ids of the questions that both runs have; all of both, unless `common`."""
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
    """The digest of the data; of a twin, whose questions have the same ids, of the original."""
    return str(run.card.data_card.get("twin_of") or run.card.data.digest)
