"""Families of architectures against each other: agentic, recursive, RLM and the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from ragbench.errors import RagbenchError
from ragbench.experiments.compare import clusters_of, shared_questions
from ragbench.experiments.report.comparison import shown_interval
from ragbench.experiments.report.grid import Grid
from ragbench.experiments.report.questions.section import (
    Named,
    Section,
    Titled,
    amount,
    mean_cell,
)
from ragbench.metrics import Comparison, Method, Metric, compare_scores, correct, get_metric
from ragbench.programs import PROGRAMS

_LEAD = (
    "A family's score of a question is the mean over its runs here, so it depends on which of its "
    "programs were run. Differences are paired by question; p-values are corrected over all pairs "
    "of families (Holm)."
)
_SPENDING = ("calls", "tokens", "cost_usd")


def families(runs: Sequence[Named], metric: Metric) -> Section | None:
    """Means of the families and their paired differences; None for fewer than two families."""
    by_family: dict[str, list[Named]] = {}
    for run in runs:
        by_family.setdefault(_family(run), []).append(run)
    qids = _shared(runs)
    if len(by_family) < 2 or not qids:
        return None
    scores = {name: _scores(some, metric, qids) for name, some in by_family.items()}
    known = [qid for qid in qids if all(qid in column for column in scores.values())]
    if not known:
        return None
    method = Method(clusters=clusters_of(runs[0].run.records.only(known)))
    pairs = list(combinations(by_family, 2))
    compared = [
        compare_scores(
            {qid: scores[a][qid] for qid in known},
            {qid: scores[b][qid] for qid in known},
            higher_is_better=metric.higher_is_better,
            score_range=metric.score_range,
            method=method,
        )
        for a, b in pairs
    ]
    means = {a: (c.mean_a, c.interval_a) for (a, _), c in zip(pairs, compared, strict=True)}
    means |= {b: (c.mean_b, c.interval_b) for (_, b), c in zip(pairs, compared, strict=True)}
    rows = [
        [name, ", ".join(run.label for run in some), str(len(known)), mean_cell(*means[name]),
         *(amount(_spent(some, each, known), each) for each in _SPENDING)]
        for name, some in by_family.items()
    ]  # fmt: skip
    columns = ("family", "runs", "n", metric.name, *_SPENDING)
    table = Grid(columns, rows, frozenset({"family", "runs"}))
    return Section(
        "families",
        "Families: agentic, recursive, RLM",
        _LEAD,
        [
            Titled("families", "Means", table, "spending is per question, as if uncached"),
            Titled("family_differences", "Differences", _differences(pairs, correct(compared))),
        ],
    )


def _differences(pairs: Sequence[tuple[str, str]], compared: Sequence[Comparison]) -> Grid:
    rows = [
        [a, b, f"{c.difference:+.3f}", shown_interval(c.interval, 3),
         "-" if c.p_adjusted is None else f"{c.p_adjusted:.3f}", f"B is {c.verdict}"
         if not c.verdict.startswith("no difference") else c.verdict]
        for (a, b), c in zip(pairs, compared, strict=True)
    ]  # fmt: skip
    columns = ("A", "B", "B - A", "95 % interval", "p (Holm)", "verdict")
    return Grid(columns, rows, frozenset({"A", "B", "verdict"}))


def _family(run: Named) -> str:
    try:
        return PROGRAMS.get(run.run.card.program).family
    except RagbenchError:  # a system that is no program of ours, or one that is not there
        return "other"


def _shared(runs: Sequence[Named]) -> list[str]:
    """Questions that all runs have; none where they are over other data."""
    qids = list(runs[0].run.records)
    try:
        for run in runs[1:]:
            both = {*shared_questions(runs[0].run, run.run, common=True)}
            qids = [qid for qid in qids if qid in both]
    except RagbenchError:
        return []
    return qids


def _scores(runs: Sequence[Named], metric: Metric, qids: Sequence[str]) -> Mapping[str, float]:
    """The mean score of each question over `runs`, of those that all of them have."""
    columns = [run.run.records.only(qids).column(metric.score) for run in runs]
    scores = {}
    for qid in qids:
        values = [column[qid] for column in columns]
        known = [value for value in values if value is not None]
        if len(known) == len(values):
            scores[qid] = sum(known) / len(known)
    return scores


def _spent(runs: Sequence[Named], name: str, qids: Sequence[str]) -> float | None:
    """Mean spending per question over `runs`; None if one is unknown."""
    values: list[float] = []
    for run in runs:
        column = run.run.records.only(qids).column(get_metric(name).score)
        known = [value for value in column.values() if value is not None]
        if len(known) < len(column):
            return None
        values += known
    return sum(values) / len(values) if values else None
