"""Tables for people: a run's summary, a comparison. Markup in data has no effect."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ragbench.experiments.budget import ESTIMATE, Estimate
from ragbench.experiments.groups import members
from ragbench.experiments.limited import stop_lines
from ragbench.experiments.summary import summarize

if TYPE_CHECKING:
    from ragbench.experiments.evaluate import Evaluation
    from ragbench.metrics.aggregate import Grouping


def plain(text: object) -> Text:
    """`text` as rich prints it: no markup read, control characters shown as blanks."""
    return Text("".join(c if c.isprintable() else " " for c in str(text)))


def console() -> Console:
    """The console that tables go to; wide enough for them where the output is a file."""
    found = Console()
    return found if found.is_terminal else Console(width=120)


def print_runs(evaluations: Sequence[Evaluation], by: Mapping[str, Grouping] | None = None) -> None:
    """Print one table with a row per run, what each ran on, and what the table does not show.

    `by` are the breakdowns wanted.
    """
    out = console()
    for title in dict.fromkeys(map(title_of, evaluations)):
        out.print(plain(title), soft_wrap=True)
    print_table(out, run_table(evaluations))
    if by:
        out.print(plain("by kind of question"))
        print_table(out, group_table(evaluations, by))
    out.print(plain("calls, path (calls that wait for each other), searches, tokens: per question"))
    for evaluation in evaluations:
        if len(evaluations) > 1:
            out.print(plain(f"{evaluation.folder}"), soft_wrap=True)
        for line in notes(evaluation):
            out.print(plain(line), soft_wrap=True)
        print_failures(out, evaluation)
    if len(evaluations) == 1:
        out.print(plain(f"records: {evaluations[0].folder}"), soft_wrap=True)


def title_of(evaluation: Evaluation) -> str:
    """Which data, retriever and LM a run used."""
    card = evaluation.card
    identity = card["identity"]
    return (
        f"{card['data']['name']} {identity.get('split')} ({card['data'].get('setting')}), "
        f"{identity.get('retriever')}, {card['model']}, {card.get('adapter')}"
    )


def run_table(evaluations: Sequence[Evaluation], labels: Sequence[str] = ()) -> Table:
    """One row per run, called by its program or, where they are given, by `labels`."""
    table = Table(box=box.MARKDOWN)
    rows = [row(e.card["identity"], e.card, e.summary) for e in evaluations]
    for cells, label in zip(rows, labels, strict=False):
        cells["program"] = label
    for name in rows[0]:
        table.add_column(name, justify="left" if name == "program" else "right", no_wrap=True)
    for cells in rows:
        table.add_row(*(plain(value) for value in cells.values()))
    return table


def group_table(evaluations: Sequence[Evaluation], by: Mapping[str, Grouping]) -> Table:
    """A row per run and group of questions, with the columns of `run_table`."""
    rows: list[dict[str, str]] = []
    for evaluation in evaluations:
        first = {"run": evaluation.folder.name} if len(evaluations) > 1 else {}
        for name, group, records in members(evaluation.records.values(), by):
            cells = row(evaluation.card["identity"], evaluation.card, summarize(records))
            del cells["program"]
            rows.append({**first, "by": name, "group": group, **cells})
    table = Table(box=box.MARKDOWN)
    for name in rows[0] if rows else ():
        text = name in ("run", "by", "group")
        table.add_column(name, justify="left" if text else "right", no_wrap=True)
    for cells in rows:
        table.add_row(*map(plain, cells.values()))
    return table


def print_table(out: Console, table: Table) -> None:
    """Print `table` whole, also past the edge of the terminal, and without blank lines around."""
    wide = Console(width=1000)
    with wide.capture() as captured:
        wide.print(table)
    lines = [line.rstrip() for line in captured.get().splitlines() if line.strip()]
    out.print(Text.from_ansi("\n".join(lines)), soft_wrap=True)


def row(identity: dict[str, Any], card: dict[str, Any], summary: dict[str, Any]) -> dict[str, str]:
    """The cells of one run by column name; calls, tokens and cost are as if nothing were cached."""
    n = max(summary["n"], 1)
    as_if, latency = summary["as_if"], summary["latency_s"]
    variant = card["knobs"].get("variant", "")
    name = identity["program"] + (f" ({variant})" if variant not in ("", "default") else "")
    tokens = as_if["prompt_tokens"] + as_if["completion_tokens"]
    return {
        "program": name + _arm(identity),
        "n": str(summary["n"]),
        "EM": _score(summary["scores"].get("em")),
        "F1": _score(summary["scores"].get("f1")),
        "failed": str(sum(summary["failures"].values())),
        "calls": f"{as_if['calls'] / n:.1f}",
        "path": f"{summary['critical_path_calls'] / n:.1f}",
        "searches": f"{summary['retrievals'] / n:.1f}",
        "tokens": f"{tokens / n:,.0f}",
        "cost $": money(as_if["cost_usd"]),
        "p50 s": f"{latency.get('p50', 0):.1f}",
        "p95 s": f"{latency.get('p95', 0):.1f}",
    }


def _arm(identity: dict[str, Any]) -> str:
    """What was done to the program beside its knobs, such as " compiled"."""
    votes = identity.get("votes", 1)
    return (
        (" compiled" if identity.get("compiled") else "")
        + (", form repaired" if identity.get("form") else "")
        + (f", {votes} votes" if votes > 1 else "")
    )


def notes(evaluation: Evaluation) -> list[str]:
    """What the table does not show: failures by class, fall-backs, billing, unreadable lines."""
    summary = evaluation.summary
    lines = stop_lines(evaluation.stopped_by, evaluation.progress)
    lines += _kept_estimate(evaluation)
    billed = summary["billed"]
    lines.append(
        f"billed in the records: {billed['calls']} of {summary['as_if']['calls']} calls, "
        f"{money(billed['cost_usd'])} $"
    )
    lost = evaluation.lost
    if lost.attempts:
        lines.append(
            f"billed beside them: {lost.calls} calls, {money(lost.cost_usd)} $, of questions that "
            "a kill kept from leaving a record"
        )
    if evaluation.earlier:
        lines.append(f"with the calls of {len(evaluation.earlier)} failed tries that were repeated")
    events = {**summary["counts"], "adapter_fallback": summary["as_if"]["fallbacks"]}
    shown = ", ".join(f"{name} {n}" for name, n in sorted(events.items()) if n)
    if shown:
        lines.append(f"counted: {shown}")
    reasons = ", ".join(f"{k} {v}" for k, v in sorted(summary["stop_reasons"].items()))
    lines.append(f"ended by: {reasons or 'nothing'}")
    if evaluation.corrupt:
        numbers = ", ".join(map(str, evaluation.corrupt))
        lines.append(f"warning: records.jsonl line {numbers} could not be read and was left out")
    return lines


def print_failures(out: Console, evaluation: Evaluation) -> None:
    """Print failures by class and the scores under three treatments; nothing if none failed."""
    if evaluation.summary["errors"]:
        out.print(plain("failures, scored 0 and asked again on the next run"))
        print_table(out, failure_table(evaluation.records.values()))
    found = evaluation.summary.get("treatments")
    if found:
        out.print(plain(_treatment_line(found)), soft_wrap=True)
        print_table(out, treatment_table(found))


def failure_table(records: Iterable[Mapping[str, Any]]) -> Table:
    """A row per boundary and class of error: number, and the message of the first by id."""
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for record in sorted(records, key=lambda r: str(r["qid"])):
        if record["failure"]:
            key = (record["failure"]["boundary"], record["failure"]["error"])
            found.setdefault(key, []).append(record)
    table = Table(box=box.MARKDOWN)
    for name in ("failed at", "error", "n", "for example"):
        table.add_column(name, justify="right" if name == "n" else "left", no_wrap=True)
    for (boundary, error), some in sorted(found.items()):
        example = f"{some[0]['qid']}: {' '.join(str(some[0]['failure']['message']).split())}"
        short = example if len(example) <= 80 else example[:77] + "..."
        table.add_row(*map(plain, (boundary, error, len(some), short)))
    return table


def treatment_table(treatments: Mapping[str, Mapping[str, Any]]) -> Table:
    """The headline scores, a row per treatment of failed questions."""
    names = list(dict.fromkeys(n for found in treatments.values() for n in found["scores"]))
    table = Table(box=box.MARKDOWN)
    table.add_column("questions that failed", no_wrap=True)
    for name in ("n", "failed", *(name.upper() for name in names)):
        table.add_column(plain(name), justify="right", no_wrap=True)
    for treatment, found in treatments.items():
        scores = [_score(found["scores"].get(name)) for name in names]
        table.add_row(*map(plain, (treatment, found["n"], found["failed"], *scores)))
    return table


def _treatment_line(treatments: Mapping[str, Mapping[str, Any]]) -> str:
    first, last = treatments["scored 0"]["failed"], treatments["retried"]["failed"]
    return (
        f"{first} questions failed at first, {last} fail now; scored 0 and left out: by the first "
        "record of each question; retried: by its last, as in the table above"
    )


def _kept_estimate(evaluation: Evaluation) -> list[str]:
    """What a whole run took beside what `--dry-run` said of it, if that was asked before."""
    path = evaluation.folder / ESTIMATE
    if not path.is_file() or not evaluation.progress.complete:
        return []
    took = evaluation.summary["as_if"]
    tokens = took["prompt_tokens"] + took["completion_tokens"]
    found = Estimate.from_dict(json.loads(path.read_text("utf-8")))
    if found.questions != evaluation.progress.questions:
        return []
    return [found.against(calls=took["calls"], tokens=tokens, cost=took["cost_usd"])]


def money(usd: float | None) -> str:
    """A sum in dollars, "unknown" where a price is."""
    return "unknown" if usd is None else f"{usd:.4f}"


def _score(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
