"""All tests of one metric over several runs, made once and corrected together.

Tables, advice, `compare` of many and the page speak from one family, so that no word contradicts
another. Every arm is compared with the best and, where there is one, with the baseline; a compiled
one also with what it was compiled from. All of these tests are one family for Holm's correction
(1979).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ragbench.errors import CompareError
from ragbench.experiments.compare.paired import Arm, compare_arms, shared_questions
from ragbench.experiments.runs.clusters import clusters_of
from ragbench.experiments.runs.summary import Evaluation
from ragbench.metrics import Comparison, Interval, Method, correct, get_metric, mean_interval


@dataclass(frozen=True)
class Standing:
    """One arm of a family.

    `mean` is over the questions of the family that the arm has a score of, seeds pooled, and
    `interval` its 95 % interval, by clusters. `to_best`, `to_baseline` and `to_before` are this arm
    minus the best, minus the baseline, and minus what it was compiled from: None for that arm
    itself, and where there is no such arm. Of such a comparison the words are in `verdict` (of
    this arm: better, worse, equivalent, no difference shown), `p_adjusted` is Holm's over the
    family, `interval` is at 95 % and `corrected_interval` at the level that the correction leaves
    it: it excludes 0 just where the verdict says so.
    """

    runs: Arm
    mean: float
    interval: Interval | None
    to_best: Comparison | None
    to_baseline: Comparison | None
    to_before: Comparison | None


@dataclass(frozen=True)
class Family:
    """The tests of `metric` over `questions`, the ids that all runs share.

    `standings` are in the order in which the arms were given; `best` and `baseline` are places in
    it. `clusters` are of questions that vary together, empty where each stands alone; `tests` is
    how many tests the correction is for.
    """

    metric: str
    questions: tuple[str, ...]
    clusters: Mapping[str, str]
    standings: tuple[Standing, ...]
    best: int
    baseline: int | None
    tests: int


def make_family(
    arms: Sequence[Arm],
    metric: str,
    *,
    baseline: int | None = None,
    common: bool = False,
    prefer: Sequence[float] = (),
    barred: Collection[int] = (),
    margin: float | None = None,
    befores: Mapping[int, int] | None = None,
) -> Family:
    """The family of `arms`, each the runs of one program (seeds), for `metric`.

    `befores` has the place of what a compiled arm was compiled from, by its own. `common` leaves
    out questions that some run has not. Of arms with equal means that with the least of `prefer`
    (such as its cost) is the best; then the first. The arms at the places `barred` cannot be it.

    Raises:
        CompareError: the runs are over other data or questions, share none with a score, or were
            scored by different judges.
    """
    kind = get_metric(metric)
    base = arms[0][0]
    questions = set(base.records)
    for arm in arms:
        for run in arm:
            if run is not base:
                questions &= set(shared_questions(base, run, common=common))
    qids = tuple(sorted(questions))
    clusters = clusters_of(base.records.only(qids))
    means = []
    intervals = []
    for arm in arms:
        scores = _pooled(arm, metric, qids)
        if not scores:
            raise CompareError(f"{arm[0].folder} has no score of {metric} for a shared question")
        groups = [clusters[qid] for qid in scores] if clusters else None
        values = list(scores.values())
        means.append(float(np.mean(values)))
        intervals.append(mean_interval(values, kind.score_range, groups))
    places = [at for at in range(len(arms)) if at not in barred]
    best = _best(places, means, prefer, higher=kind.higher_is_better)
    method = Method(clusters=clusters, margin=margin)
    befores = befores or {}
    pairs = [(best, at) for at in range(len(arms)) if at != best]
    if baseline is not None and baseline != best:
        pairs += [(baseline, at) for at in range(len(arms)) if at not in (baseline, best)]
    for after, before in befores.items():
        if (before, after) not in pairs and (after, before) not in pairs:
            pairs.append((before, after))
    tests = correct([compare_arms(arms[a], arms[b], metric, qids, method) for a, b in pairs])
    of_pair = dict(zip(pairs, tests, strict=True))

    def compared(before: int | None, after: int) -> Comparison | None:
        """One test, looked at from the end that is wanted."""
        if before is None:
            return None
        if (after, before) in of_pair:
            return of_pair[after, before].reversed()
        return of_pair.get((before, after))

    standings = []
    for at, arm in enumerate(arms):
        standings.append(
            Standing(
                runs=arm,
                mean=means[at],
                interval=intervals[at],
                to_best=compared(best, at),
                to_baseline=compared(baseline, at),
                to_before=compared(befores.get(at), at),
            )
        )
    return Family(metric, qids, clusters, tuple(standings), best, baseline, len(tests))


def default_baseline(runs: Sequence[Evaluation]) -> int | None:
    """The place of the run that others are set against, or None.

    It is the one run of plain `vanilla`, else the only run of a program as it is: not compiled,
    and without votes.
    """
    plain = []
    for at, run in enumerate(runs):
        identity = run.card.identity
        if not identity.get("compiled") and identity.get("votes", 1) == 1:
            plain.append(at)
    vanilla = [at for at in plain if runs[at].card.program == "vanilla"]
    for places in (vanilla, plain):
        if len(places) == 1:
            return places[0]
    return None


def _pooled(arm: Arm, metric: str, qids: Sequence[str]) -> dict[str, float]:
    """The mean over the runs of an arm of each question that all of them have a score of."""
    columns = [run.records.only(qids).column(get_metric(metric).score) for run in arm]
    pooled = {}
    for qid in qids:
        scores = []
        for column in columns:
            score = column[qid]
            if score is not None:
                scores.append(score)
        if len(scores) == len(arm):
            pooled[qid] = float(np.mean(scores))
    return pooled


def _best(
    places: Sequence[int], means: Sequence[float], prefer: Sequence[float], *, higher: bool
) -> int:
    def rank(at: int) -> tuple[float, float, int]:
        mean = round(means[at], 9)
        return (-mean if higher else mean, prefer[at] if prefer else 0.0, at)

    return min(places, key=rank)
