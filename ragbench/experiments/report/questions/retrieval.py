"""Retrieval settings side by side: runs that differ in nothing else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ragbench.experiments.report.grid import Grid
from ragbench.experiments.report.questions.section import (
    Named,
    Section,
    Titled,
    amount,
    mean_cell,
)
from ragbench.experiments.report.run_names import settings_of
from ragbench.metrics import Metric, cluster_of, get_metric, mean_interval, usable_clusters

#: Settings that decide what is found, and how much of it is shown.
_SETTINGS = frozenset(
    {"retriever", "k", "view", "setting", "corpus_file", "passage_tokens", "context_tokens"}
)
_FOUND = ("recall", "all_recall")
_SPENT = ("retrieved_tokens", "calls", "tokens")
_LEAD = (
    "Runs of one program, LM and data that differ in retrieval alone. Recall is the share of a "
    "question's gold passages among those retrieved, all_recall that of questions with all of them."
)


def retrieval(runs: Sequence[Named], metric: Metric) -> Section | None:
    """A row per run of each group that differs in retrieval alone; None where there is none."""
    groups: dict[str, list[Named]] = {}
    for run in runs:
        rest = {k: v for k, v in settings_of(run.run.card).items() if not _is_retrieval(k)}
        key = json.dumps([rest, run.run.card.compiled], sort_keys=True, default=str)
        groups.setdefault(key, []).append(run)
    compared = [group for group in groups.values() if len(group) > 1]
    differing = _differing(compared)
    if not differing:
        return None
    rows = []
    for group in compared:
        for run in group:
            settings = settings_of(run.run.card)
            shown = [_text(settings.get(name)) for name in differing]
            rows.append([run.run.card.system, *shown, *_measured(run, metric)])
    columns = ("program", *differing, "n", metric.name, *_FOUND, *_SPENT)
    grid = Grid(columns, rows, frozenset({"program", *differing}))
    return Section(
        "retrieval",
        "Retrieval settings",
        _LEAD,
        [Titled("retrieval", "Side by side", grid, "spending is per question, as if uncached")],
    )


def _is_retrieval(name: str) -> bool:
    return name in _SETTINGS or name.startswith("retriever.")


def _differing(groups: Sequence[Sequence[Named]]) -> list[str]:
    """Settings that differ within a group; those of another kind of retriever do not count."""
    names: dict[str, None] = {}
    for group in groups:
        each = [settings_of(run.run.card) for run in group]
        for name in dict.fromkeys(name for settings in each for name in settings):
            kinds = {settings.get("retriever") for settings in each if name in settings}
            if name.startswith("retriever.") and len(kinds) > 1:
                continue
            mine = [s for s in each if name in s] if name.startswith("retriever.") else each
            if len({_text(settings.get(name)) for settings in mine}) > 1:
                names[name] = None
    return sorted(names, key=lambda name: (name != "retriever", name))


def _measured(run: Named, metric: Metric) -> list[str]:
    records = run.run.records
    scores = {q: s for q, s in records.column(metric.score).items() if s is not None}
    names = list(records.only(scores).column(cluster_of).values())
    interval = mean_interval(list(scores.values()), metric.score_range, usable_clusters(names))
    mean = sum(scores.values()) / len(scores) if scores else 0.0
    means = {name: _mean(run, name) for name in (*_FOUND, *_SPENT)}
    return [
        str(len(records)),
        mean_cell(mean, interval) if scores else "-",
        *("-" if means[name] is None else f"{means[name]:.3f}" for name in _FOUND),
        *("-" if means[name] is None else amount(means[name], name) for name in _SPENT),
    ]


def _mean(run: Named, name: str) -> float | None:
    column = run.run.records.column(get_metric(name).score)
    known = [value for value in column.values() if value is not None]
    return sum(known) / len(known) if known else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "-" if value is None else json.dumps(value)
