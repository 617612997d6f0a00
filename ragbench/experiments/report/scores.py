"""Tables of a scored run: metrics, failures, breakdowns, costs, budgets, judges, protocols."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ragbench.experiments.report.table import Column, Table, print_table, say, with_interval
from ragbench.experiments.report.tables import name_of_system, unread_lines
from ragbench.experiments.runs import GROUP_NAMES
from ragbench.experiments.score.scoring import Scored, describe
from ragbench.metrics import (
    cluster_of,
    highest_spend,
    mean_interval,
    under_curve,
    usable_clusters,
    within_budget,
)

#: What a row of a breakdown holds beside its means.
_NO_METRIC = frozenset({"n", "n_failed", "intervals"})
#: The searches that have a column of their own in the table of gold passages.
_SEARCHES = 6
#: Shares of the dearest question's spending at which accuracy is shown.
SHARES = (0.25, 0.5, 0.75, 1.0)
_EFFICIENCY = {
    "per_retrieval": "F1 per search",
    "per_1000_tokens": "F1 per 1,000 tokens",
    "per_usd": "F1 per $",
    "per_second": "F1 per second",
}
_MEAN = Column("mean", kind="mean", interval=True)
_LATENCY = {"p50": "latency p50 s", "p95": "latency p95 s"}
_RESOURCES = {"calls": "calls", "tokens": "tokens", "cost_usd": "cost $", "latency_s": "latency s"}


def print_scores(runs: Sequence[Scored]) -> None:
    """Print the tables of all `runs`, and what the tables do not show."""
    for run in runs:
        say(f"{name_of(run)}: {run.folder}")
    for make in _TABLES:
        table = make(runs)
        if table.rows:
            print_table(table)
    for run in runs:
        prefix = f"{name_of(run)}: " if len(runs) > 1 else ""
        say(*(prefix + line for line in notes(run)))


def name_of(run: Scored) -> str:
    """Program, variant and data of a run."""
    return f"{name_of_system(run.card)} on {run.card.data.name}, {run.card.model}"


def metric_table(runs: Sequence[Scored]) -> Table:
    """A row per metric, a column per run; n where not every question has the score."""
    names = column_names(runs)
    scores = [run.summary["scores"] for run in runs]
    rows = [
        {"metric": words} | dict(zip(names, (r.summary[key] for r in runs), strict=True))
        for words, key in (("questions", "n"), ("failed", "n_failed"))
    ]
    for metric in dict.fromkeys(metric for by_metric in scores for metric in by_metric):
        row: dict[str, Any] = {"metric": metric}
        for name, by_metric in zip(names, scores, strict=True):
            score = by_metric.get(metric, {})
            row |= with_interval(name, score.get("mean"), score.get("interval"))
            row[f"{name}_n"] = score.get("n")
        rows.append(row)
    columns = [Column("metric")]
    for name, run in zip(names, runs, strict=True):
        columns.append(Column(name, kind="mean", interval=True))
        if any(score["n"] != run.summary["n"] for score in run.summary["scores"].values()):
            columns.append(Column(f"{name}_n", f"n of {name}" if len(runs) > 1 else "n", "count"))
    return Table("metrics", columns, rows)


def failure_table(runs: Sequence[Scored]) -> Table:
    """Failed questions as the worst score and left out, for the metrics that they change."""
    rows: list[dict[str, Any]] = []
    for run in runs:
        for name, score in run.summary["scores"].items():
            failures = score.get("failures")
            if failures is None or failures["excluded"] == failures["as_worst"]:
                continue
            row = {"run": run.folder.name, "metric": name, "failed": failures["n"]}
            row |= with_interval("as_worst", score["mean"], score.get("interval"))
            without = failures.get("excluded_interval")
            rows.append(row | with_interval("left_out", failures["excluded"], without))
    columns = (
        Column("run"),
        Column("metric"),
        Column("failed", kind="count"),
        Column("as_worst", "as worst", "mean", interval=True),
        Column("left_out", "left out", "mean", interval=True),
    )
    title = "policies for failed questions: scored as the worst, and left out"
    return Table("failures", columns, rows, title)


def breakdown_table(runs: Sequence[Scored]) -> Table:
    """A row per run and group of questions."""
    rows: list[dict[str, Any]] = []
    metrics: dict[str, None] = {}
    for run in runs:
        for by, groups in run.summary["breakdowns"].items():
            for group, found in groups.items():
                row = {"run": run.folder.name, "by": GROUP_NAMES.get(by, by), "group": group,
                       "n": found["n"], "failed": found["n_failed"]}  # fmt: skip
                for name in found.keys() - _NO_METRIC:
                    row |= with_interval(name, found[name], found.get("intervals", {}).get(name))
                metrics |= dict.fromkeys(name for name in found if name not in _NO_METRIC)
                rows.append(row)
    columns = [
        *([Column("run")] if len(runs) > 1 else []),
        Column("by"),
        Column("group"),
        Column("n", kind="count"),
        Column("failed", kind="count", drop=len(metrics) + 1),
        *(Column(name, kind="mean", interval=True, drop=at) for at, name in enumerate(metrics)),
    ]
    return Table("groups", columns, rows, "results by group of questions")


def efficiency_table(runs: Sequence[Scored]) -> Table:
    """The summed F1 over what was spent, a column per run; "-" where nothing was, or is unknown."""
    names = column_names(runs)
    rows = [
        {"efficiency": words}
        | dict(zip(names, (r.summary[of].get(key) for r in runs), strict=True))
        for of, words_of in (("efficiency", _EFFICIENCY), ("latency_s", _LATENCY))
        for key, words in words_of.items()
    ]
    columns = [Column("efficiency"), *(Column(name, kind="number") for name in names)]
    return Table("costs", columns, rows, "cost, as if nothing had been cached")


def budget_table(runs: Sequence[Scored]) -> Table:
    """Exact match over all questions when only answers within a budget count, and its area.

    Each with its 95 % interval, of which the budgets' own uncertainty is no part. The budgets are
    shares of the dearest question of all `runs`, so that the columns compare.
    """
    rows: list[dict[str, Any]] = []
    for resource, words in _RESOURCES.items():
        highest = [highest_spend(run.records, resource) for run in runs]
        limit = max((most for most in highest if most), default=0.0)
        for run, most in zip(runs, highest, strict=True):
            if most:
                row: dict[str, Any] = {"run": run.folder.name, "within": words, "limit": limit}
                for share in SHARES:
                    scores = within_budget(run.records, resource, share * limit)
                    row |= _mean(run, f"{share:.0%}", scores)
                row |= _mean(run, "area", under_curve(run.records, resource, limit))
                rows.append(row)
    columns = (
        Column("run"),
        Column("within"),
        *(Column(f"{s:.0%}", kind="score", interval=True, drop=d)
          for s, d in zip(SHARES, (3, 1, 4, 0), strict=True)),
        Column("limit", "of", "number", drop=2),
        Column("area", kind="score", interval=True),
    )  # fmt: skip
    title = "exact match within a share of the highest cost of a question, and area"
    return Table("budgets", columns, rows, title)


def gold_table(runs: Sequence[Scored]) -> Table:
    """Of each gold passage, in the data's order, by which search it was first found.

    Shares are of the questions that have such a passage; no row where no gold passages are known.
    """
    by_run = [(run, run.summary.get("gold_by_search") or {}) for run in runs]
    last = max((int(n) for _, found in by_run for row in found.values() for n in row
                if n != "never"), default=1)  # fmt: skip
    heads = [str(number) for number in range(1, min(last, _SEARCHES) + 1)]
    rows = []
    for run, found in by_run:
        for place, counts in found.items():
            n = sum(counts.values())
            shares = {f"search {name}": counts.get(name, 0) / n for name in heads}
            shares["never"] = counts.get("never", 0) / n
            row = {"run": run.folder.name, "gold": place, "n": n, **shares}
            rows.append(row | {f"after {_SEARCHES}": max(0.0, 1 - sum(shares.values()))})
    columns = [
        Column("run"), Column("gold", "gold passage"), Column("n", kind="count"),
        *(Column(f"search {name}", kind="share") for name in heads),
        *([Column(f"after {_SEARCHES}", kind="share")] if last > _SEARCHES else []),
        Column("never", kind="share"),
    ]  # fmt: skip
    return Table("gold passages", columns, rows, "which search first found each gold passage")


_TABLES = (
    metric_table, failure_table, breakdown_table, efficiency_table, budget_table, gold_table,
)  # fmt: skip


def notes(run: Scored) -> list[str]:
    """What the tables do not show: where support comes from, judges, protocol, bad lines."""
    summary, lines = run.summary, list[str]()
    for words, kinds in (("supporting sentences", summary["support_kinds"]),
                         ("evidence triples", summary["evidence_kinds"])):  # fmt: skip
        if kinds:
            counts = ", ".join(f"{kind} {n}" for kind, n in kinds.items())
            lines.append(f"{words}: {counts} of {summary['n']}")
    for name, found in summary["judges"].items():
        lines += describe(name, found)
    if "protocol" in summary:
        lines += protocol_lines(summary["protocol"])
    return [*lines, *unread_lines(run.damaged)]


def protocol_lines(protocol: Mapping[str, Any]) -> Iterator[str]:
    """The scores under a protocol, every deviation, and what was not checked."""
    yield f"protocol {protocol['name']}"
    for name, score in protocol["scores"].items():
        empty = score.get("without_score")
        note = f", {empty} without the score count 0" if empty else ""
        cell = _MEAN.cell(with_interval("mean", score["mean"], score.get("interval")))
        yield f"  {name}: {cell} over {score['n']} ({score['over']}{note})"
    yield from (f"  {name}: no question has it" for name in protocol["missing"])
    yield from (f"  differs: {text}" for text in protocol["deviations"])
    yield from (f"  not checked: {text}" for text in protocol["unchecked"])


def column_names(runs: Sequence[Scored]) -> list[str]:
    """What the column of each run is called: "mean" where there is but one."""
    if len(runs) == 1:
        return ["mean"]
    names = [run.folder.name for run in runs]
    return [f"{n} {i}" if names.count(n) > 1 else n for i, n in enumerate(names, start=1)]


def _mean(run: Scored, name: str, scores: Sequence[float]) -> dict[str, float | None]:
    """The mean of scores in [0, 1], one of each record of `run`, with its interval."""
    clusters = usable_clusters([cluster_of(record) for record in run.records])
    interval = mean_interval(scores, (0.0, 1.0), clusters)
    return with_interval(name, sum(scores) / len(scores), interval)
