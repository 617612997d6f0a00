"""Tables for people: a run's summary, a comparison. Markup in data has no effect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ragbench.experiments.compare import index_cost, index_lines, whole_cost
from ragbench.experiments.records import RunCard, StoredRecords, read_json
from ragbench.experiments.report.grid import Grid, for_machines, print_grid
from ragbench.experiments.report.means import half, with_intervals
from ragbench.experiments.report.run_names import told_apart
from ragbench.experiments.runs import (
    error_of,
    headline_intervals,
    members,
    stop_lines,
    summarize,
    treatments,
)

if TYPE_CHECKING:
    from ragbench.experiments.runs import Evaluation, PolicyScores, Spent, Summary
    from ragbench.metrics import Grouping


#: Columns of the table of runs, the least important one first.
LEAST = ("path", "p95 s", "searches", "failed", "p50 s", "tokens", "calls")
#: Column of what a server billed, where a provider's cache made that another sum than "cost $".
PAID = "paid $"
#: Column of "cost $" with the program's own index in it, where a program has one.
WITH_INDEX = "with index $"
#: Share of questions without a readable reply above which a table warns.
UNREADABLE_SHARE = 0.2


def plain(text: object) -> Text:
    """`text` as rich prints it: no markup read, control characters shown as blanks."""
    return Text("".join(c if c.isprintable() else " " for c in str(text)))


def console() -> Console:
    """The console for prose, wide where it is a file; stderr where stdout is for machines."""
    made = Console(stderr=for_machines())
    return made if made.is_terminal else Console(width=120, stderr=for_machines())


def print_runs(evaluations: Sequence[Evaluation], by: Mapping[str, Grouping] | None = None) -> None:
    """Print one table with a row per run, what each ran on, and what the table does not show.

    `by` are the breakdowns wanted.
    """
    out = console()
    for title in dict.fromkeys(map(title_of, evaluations)):
        out.print(plain(title), soft_wrap=True)
    print_table(run_table(evaluations), "runs", drop=LEAST)
    if by:
        out.print(plain("results by group of questions"))
        print_table(group_table(evaluations, by), "groups", drop=LEAST)
    out.print(plain("calls, path (longest chain of calls), searches, tokens: per question"))
    named = list(zip(label_runs(evaluations), evaluations, strict=True))
    for evaluation in evaluations:
        if len(evaluations) > 1:
            out.print(plain(f"{evaluation.folder}"), soft_wrap=True)
        for line in (*notes(evaluation), *index_lines(evaluation, named)):
            out.print(plain(line), soft_wrap=True)
        print_failures(out, evaluation)
    if len(evaluations) == 1:
        out.print(plain(f"records: {evaluations[0].folder}"), soft_wrap=True)


def title_of(evaluation: Evaluation) -> str:
    """Which data, retriever and LM a run used."""
    card = evaluation.card
    identity, split = card.identity, card.identity.get("split")
    total = card.data_card.get("questions")
    part = f"{card.questions} of {total} questions" if card.questions and total else "questions"
    return (
        f"{card.data.name}: {part} ({'all' if split == 'all' else f'{split} split'}), "
        f"{card.data.setting}, {identity.get('retriever')}, {card.model}, {card.adapter}"
    )


def run_table(evaluations: Sequence[Evaluation], labels: Sequence[str] = ()) -> Table:
    """One row per run, called by `labels` or by its program and what tells it from the others."""
    table = Table(box=box.MARKDOWN)
    rows = [with_intervals(row(e.card, e.summary), e.records) for e in evaluations]
    if any(e.summary.billed.list_usd for e in evaluations):
        for cells, evaluation in zip(rows, evaluations, strict=True):
            cells[PAID] = money(evaluation.summary.billed.cost_usd)
    if any(index_cost(e.card) for e in evaluations):
        for cells, evaluation in zip(rows, evaluations, strict=True):
            cells[WITH_INDEX] = money(whole_cost(evaluation))
    for cells, label in zip(rows, labels or label_runs(evaluations), strict=True):
        cells["program"] = label
    for name in rows[0]:
        table.add_column(name, justify="left" if name == "program" else "right", no_wrap=True)
    for cells in rows:
        table.add_row(*(plain(value) for value in cells.values()))
    return table


def label_runs(evaluations: Sequence[Evaluation]) -> list[str]:
    """A name for each run: its program, and what tells it from others of that program.

    Runs that no setting tells apart have their folder's name, too.
    """
    names = [row(e.card, e.summary)["program"] for e in evaluations]
    labels = told_apart([e.card for e in evaluations], names)
    twice = {label for label, n in Counter(labels).items() if n > 1}
    return [
        f"{label}, {evaluation.folder.name}" if label in twice else label
        for label, evaluation in zip(labels, evaluations, strict=True)
    ]


def group_table(evaluations: Sequence[Evaluation], by: Mapping[str, Grouping]) -> Table:
    """A row per run and group of questions, with the columns of `run_table`."""
    rows: list[dict[str, str]] = []
    for evaluation in evaluations:
        first = {"run": evaluation.folder.name} if len(evaluations) > 1 else {}
        for name, group, records in members(evaluation.records, by):
            cells = with_intervals(row(evaluation.card, summarize(records)), records)
            del cells["program"]
            rows.append({**first, "by": name, "group": group, **cells})
    table = Table(box=box.MARKDOWN)
    for name in rows[0] if rows else ():
        text = name in ("run", "by", "group")
        table.add_column(name, justify="left" if text else "right", no_wrap=True)
    for cells in rows:
        table.add_row(*map(plain, cells.values()))
    return table


def print_table(table: Table, name: str, *, drop: Sequence[str] = ()) -> None:
    """Print `table` in the format of the command; `name` is what JSON calls it.

    On a terminal that is too narrow the columns in `drop` are left out, the first one first.
    """
    print_grid(grid_of(table, drop=drop), name)


def grid_of(table: Table, *, drop: Sequence[str] = ()) -> Grid:
    """The texts of `table`; `drop` are the columns to leave out where there is no room."""
    columns = [str(column.header) for column in table.columns]
    rows = zip(*([str(cell) for cell in column.cells] for column in table.columns), strict=True)
    left = frozenset(str(c.header) for c in table.columns if c.justify != "right")
    return Grid(columns, list(rows), left, drop)


def row(card: RunCard, summary: Summary) -> dict[str, str]:
    """The cells of one run by column name.

    Calls, tokens and cost are as if nothing were cached, cost at list price.
    """
    n = max(summary.n, 1)
    as_if, latency = summary.as_if, summary.latency_s
    variant = card.knobs.get("variant", "")
    name = card.system + (f" ({variant})" if variant not in ("", "default") else "")
    return {
        "program": name + _arm(card.identity),
        "n": str(summary.n),
        "EM": _score(summary.scores.get("em")),
        "F1": _score(summary.scores.get("f1")),
        "failed": str(summary.failed),
        "calls": f"{as_if.calls / n:.1f}",
        "path": f"{summary.critical_path_calls / n:.1f}",
        "searches": f"{summary.retrievals / n:.1f}",
        "tokens": f"{as_if.tokens / n:,.0f}",
        "cost $": money(as_if.cost_usd),
        "p50 s": f"{latency.get('p50', 0):.1f}",
        "p95 s": f"{latency.get('p95', 0):.1f}",
    }


def _arm(identity: dict[str, Any]) -> str:
    """A suffix for what was done to the program beside its knobs, such as " compiled"."""
    votes = identity.get("votes", 1)
    return (
        (" compiled" if identity.get("compiled") else "")
        + (", form repaired" if identity.get("form") else "")
        + (f", {votes:g} votes" if votes > 1 else "")
    )


def notes(evaluation: Evaluation) -> list[str]:
    """What the table does not show: failures by class, fall-backs, billing, unreadable lines."""
    summary = evaluation.summary
    lines = stop_lines(evaluation.stopped_by, evaluation.progress)
    lines += _kept_estimate(evaluation)
    intervals = headline_intervals(evaluation.records)
    if intervals:
        shown = ", ".join(f"{m} [{i.low:.3f}, {i.high:.3f}]" for m, i in intervals.items())
        lines.append(f"95 % intervals of the means: {shown}")
    billed = summary.billed
    lines.append(
        f"billed: {billed.calls} of {summary.as_if.calls} calls, "
        f"{money(billed.cost_usd)} ${paid_in_words(billed)}"
    )
    lost = evaluation.lost
    if lost.attempts:
        lines.append(
            f"billed in addition: {lost.calls} calls, {money(lost.cost_usd)} $, for questions that "
            "a kill kept from leaving a record, or an index that it kept from being finished"
        )
    if evaluation.replaced:
        lines.append(f"including {evaluation.replaced} failed attempts that were repeated")
    events = {**summary.counts, "adapter_fallback": summary.as_if.fallbacks}
    shown = ", ".join(f"{name} {n}" for name, n in sorted(events.items()) if n)
    if shown:
        lines.append(f"events: {shown}")
    reasons = ", ".join(f"{k} {v}" for k, v in sorted(summary.stop_reasons.items()))
    lines.append(f"stop reasons: {reasons or 'none'}")
    n, unreadable = len(evaluation.records), evaluation.unreadable
    if unreadable > UNREADABLE_SHARE * n:
        lines.append(
            f"warning: no reply of the model could be read for {unreadable} of {n} questions; "
            "look at one with `ragbench show run`, and try another --adapter or model"
        )
    return [*lines, *unread_lines(evaluation.corrupt)]


def unread_lines(corrupt: Sequence[int]) -> list[str]:
    """What to say of lines of records that could not be read."""
    if not corrupt:
        return []
    numbers = ", ".join(map(str, corrupt))
    return [f"warning: records.jsonl line {numbers} could not be read and was left out"]


def paid_in_words(billed: Spent) -> str:
    """What else there is to say of what was billed: the provider's cache, and failed attempts."""
    words = []
    if billed.list_usd:
        words.append(f"list price {money(billed.list_usd)} $")
    if read := billed.cache_read_tokens:
        words.append(f"{read:,} prompt tokens from the provider's cache")
    if failed := billed.tokens_of_failed_attempts:
        words.append(f"{failed:,} tokens of failed attempts included")
    return f" ({'; '.join(words)})" if words else ""


def print_failures(out: Console, evaluation: Evaluation) -> None:
    """Print failures by class and the scores under three treatments; nothing if none failed."""
    if evaluation.summary.errors:
        out.print(plain("failures (scored 0; asked again by the next run)"))
        print_table(failure_table(evaluation.records), "failures")
    means = evaluation.summary.treatments
    if means:
        out.print(plain(_treatment_line(means)), soft_wrap=True)
        print_table(treatment_table(means, treatments(evaluation)), "failure policies")


def failure_table(records: StoredRecords) -> Table:
    """A row per boundary and class of error: number, and the message of the first by id."""
    qids_of: dict[tuple[str, str], list[str]] = {}
    for qid, error in sorted(records.column(error_of).items()):
        if error:
            boundary, _, name = error.partition("/")
            qids_of.setdefault((boundary, name), []).append(qid)
    table = Table(box=box.MARKDOWN)
    for name in ("failed at", "error", "n", "for example"):
        table.add_column(name, justify="right" if name == "n" else "left", no_wrap=True)
    for (boundary, error), some in sorted(qids_of.items()):
        failure = records[some[0]].failure
        example = " ".join(f"{some[0]}: {failure.message if failure else ''}".split())
        short = example if len(example) <= 80 else example[:77] + "..."
        table.add_row(*map(plain, (boundary, error, len(some), short)))
    return table


def treatment_table(
    scores: Mapping[str, PolicyScores], records: Mapping[str, StoredRecords]
) -> Table:
    """The headline scores and their intervals, a row per treatment of failed questions."""
    names = list(dict.fromkeys(n for of_policy in scores.values() for n in of_policy.scores))
    table = Table(box=box.MARKDOWN)
    table.add_column("questions that failed", no_wrap=True)
    for name in ("n", "failed", *(name.upper() for name in names)):
        table.add_column(plain(name), justify="right", no_wrap=True)
    for treatment, of_policy in scores.items():
        halves = headline_intervals(records[treatment])
        cells = [_score(of_policy.scores.get(name)) + half(halves.get(name)) for name in names]
        table.add_row(*map(plain, (treatment, of_policy.n, of_policy.failed, *cells)))
    return table


def _treatment_line(treatments: Mapping[str, PolicyScores]) -> str:
    first, last = treatments["scored 0"].failed, treatments["retried"].failed
    return (
        f"{first} questions failed at first, {last} fail now; scored 0 and left out: by the first "
        "record of each question; retried: by its last, as in the table above"
    )


def _kept_estimate(evaluation: Evaluation) -> list[str]:
    """What a whole run took beside what `--dry-run` said of it, if that was asked before."""
    from ragbench.experiments.estimates import ESTIMATE, Estimate  # slow: loads the optimizers

    path = evaluation.folder / ESTIMATE
    if not path.is_file() or not evaluation.progress.complete:
        return []
    took = evaluation.summary.as_if
    estimate = read_json(path, Estimate)
    if estimate.questions != evaluation.progress.questions:
        return []
    return [estimate.against(calls=took.calls, tokens=took.tokens, cost=took.cost_usd)]


def money(usd: float | None) -> str:
    """A sum in dollars, "unknown" where a price is."""
    return "unknown" if usd is None else f"{usd:.4f}"


def _score(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
