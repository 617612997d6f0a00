"""Why answers are wrong: the causes of runs as a table, and examples to read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from ragbench.errors import UnknownNameError
from ragbench.experiments.records import locked, read_card
from ragbench.experiments.report.tables import console, plain, print_table, unread_lines
from ragbench.experiments.runs import groupings, members, reopen, stop_lines
from ragbench.experiments.score import scored_records
from ragbench.experiments.score.annotate import (
    Asking,
    Causes,
    FailureModes,
    annotate,
    check_judge,
    spending,
)
from ragbench.metrics import UNDECIDED, Cause, cause_of
from ragbench.record import Record

#: Taxonomy -> the annotation that files wrong answers under it.
TAXONOMIES: Mapping[str, type[Causes] | type[FailureModes]] = {
    "ragbench": Causes,
    "arag": FailureModes,
}


@dataclass(frozen=True)
class Errors:
    """The wrong answers of a run, each with its cause, by qid.

    `groups` are its questions by breakdown and group; `asked` is what a model came to, if asked.
    """

    folder: Path
    program: str
    n: int
    wrong: Sequence[tuple[Record, Cause]]
    groups: Sequence[tuple[str, str, Collection[str]]] = ()
    asked: Mapping[str, Any] | None = None
    #: What the table does not show: lines that cannot be read, questions not asked.
    notes: Sequence[str] = ()
    levels: Sequence[str] = Causes.levels


def errors_of(
    folder: Path,
    *,
    asking: Asking | None = None,
    allow_self: bool = False,
    closed_book: Path | None = None,
    taxonomy: str = "ragbench",
) -> Errors:
    """The wrong answers of the run in `folder`; verdicts of a judge count where it was scored.

    With `asking`, a model gives the causes that rules cannot decide; it must not be the model that
    answered, unless `allow_self`. `closed_book` is a run without retrieval, for a breakdown;
    `taxonomy` is a key of `TAXONOMIES`.

    Raises:
        RagbenchError: it is not a run folder, has no records, or the model cannot be asked.
    """
    by = groupings(closed_book)
    card = read_card(folder)
    stored = scored_records(folder)
    records = list(stored.values())
    causes = [(record, cause_of(record)) for record in records]
    by_rules = {record.qid: cause for record, cause in causes if cause is not None}
    kind = TAXONOMIES[taxonomy](by_rules)
    wrong = [record for record in records if record.qid in by_rules]
    asked, results = None, dict[str, Sequence[Any]]()
    if asking is not None:
        check_judge(records, asking.lm, allow_self=allow_self)
        with locked(folder):
            annotated = annotate(folder, records, kind, asking)
        results = {qid: annotated.results(qid) for qid in annotated.units}
        asked = kind.summarize(records, annotated)
    caused = [(record, kind.cause(record, results.get(record.qid, ()))) for record in wrong]
    groups = members(stored, by)
    run = reopen(folder)
    notes = [*stop_lines("", run.progress), *unread_lines(run.corrupt)]
    return Errors(folder, card.system, len(records), caused, groups, asked, notes, kind.levels)


def print_errors(runs: Sequence[Errors], *, show: int = 0, cause: str | None = None) -> None:
    """Print the table of causes, and `show` examples of each; of `cause` alone where it is given.

    `cause` is a level (`reading`) or a level and a kind (`reading/partial`).

    Raises:
        UnknownNameError: no wrong answer has such a cause.
    """
    names = {c.name for run in runs for _, c in run.wrong}
    if cause is not None and not any(_matches(name, cause) for name in names):
        raise UnknownNameError("cause", cause, names | {name.partition("/")[0] for name in names})
    out = console()
    print_table(cause_table(runs), "causes")
    out.print(plain("results by group of questions: wrong answers, and their causes"))
    print_table(group_table(runs), "groups")
    for run in runs:
        prefix = f"{run.folder}: " if len(runs) > 1 else ""
        for line in (_who_says(run), *run.notes):
            out.print(plain(prefix + line), soft_wrap=True)
    for run in runs:
        for line in example_lines(run, show=show, cause=cause):
            out.print(plain(line), soft_wrap=True)


def cause_table(runs: Sequence[Errors]) -> Table:
    """A row per level and per cause within it, a column per run: number and share of all."""
    table = Table(box=box.MARKDOWN)
    table.add_column("cause", no_wrap=True)
    for run in runs:
        name = run.program if len(runs) == 1 else f"{run.program}, {run.folder.name}"
        table.add_column(plain(name), justify="right", no_wrap=True)
    levels = [Counter(cause.level for _, cause in run.wrong) for run in runs]
    kinds = [Counter(cause.name for _, cause in run.wrong) for run in runs]
    table.add_row("questions", *(str(run.n) for run in runs))
    table.add_row("wrong", *(_share(len(run.wrong), run.n) for run in runs))
    for level in runs[0].levels:
        counts = [counted[level] for counted in levels]
        table.add_row(level, *(_share(n, run.n) for n, run in zip(counts, runs, strict=True)))
        for name in sorted({name for kind in kinds for name in kind if _matches(name, level)}):
            cells = [
                f"{kind[name]}{_hops(run, name)}{_by_model(run, name)}"
                for kind, run in zip(kinds, runs, strict=True)
            ]
            table.add_row(plain(f"  {name.partition('/')[2]}"), *cells)
    return table


def group_table(runs: Sequence[Errors]) -> Table:
    """A row per run and group of questions: how many there are, are wrong, and by level."""
    table = Table(box=box.MARKDOWN)
    heads = ["run"] if len(runs) > 1 else []
    for name in (*heads, "by", "group", "n", "wrong", *runs[0].levels):
        text = name in ("run", "by", "group")
        table.add_column(name, justify="left" if text else "right", no_wrap=True)
    for run in runs:
        levels = {record.qid: cause.level for record, cause in run.wrong}
        for by, group, qids in run.groups:
            in_group = Counter(levels[qid] for qid in qids if qid in levels)
            n = len(qids)
            cells = [
                by,
                group,
                n,
                _share(in_group.total(), n),
                *(in_group[level] for level in run.levels),
            ]
            first = [run.folder.name] if heads else []
            table.add_row(*(plain(cell) for cell in [*first, *cells]))
    return table


def _who_says(run: Errors) -> str:
    """Which causes are a rule's and which a model's."""
    if run.asked is None:
        weak = sum(c.name in UNDECIDED or c.kind == "undecided" for _, c in run.wrong)
        more = (
            f"; {weak} of them see only that strings differ, --judge LM asks a model"
            if weak
            else ""
        )
        return f"causes are determined by rules from the record alone (docs/metrics.md){more}"
    asked = run.asked
    by_model = sum(cause.by == "model" for _, cause in run.wrong)
    undecided = sum(cause.by == "model" and cause.kind == "undecided" for _, cause in run.wrong)
    return (
        f"{len(run.wrong) - by_model} causes by rules, {by_model - undecided} by "
        f"{asked['model']}; {_second_reading(asked)}{spending(asked)}"
    )


def _second_reading(asked: Mapping[str, Any]) -> str:
    row = asked.get("second_reading")
    if not row:
        return ""
    kappa = "-" if row["cohen_kappa"] is None else f"{row['cohen_kappa']:.3f}"
    return f"a second reading says the same of {row['same']} of {row['n']} (kappa {kappa}); "


def example_lines(run: Errors, *, show: int, cause: str | None = None) -> list[str]:
    """The first `show` examples of each cause, by qid."""
    lines: list[str] = []
    chosen = [(r, c) for r, c in run.wrong if cause is None or _matches(c.name, cause)]
    for name in sorted({c.name for _, c in chosen}) if show else []:
        some = [(record, c) for record, c in chosen if c.name == name]
        lines.append(f"{name}: {len(some)} in {run.folder}")
        for record, its_cause in some[:show]:
            lines += _example(record, its_cause)
    return lines


def _example(record: Record, cause: Cause) -> list[str]:
    hop = f"; hop {cause.hop}" if cause.hop else ""
    answer = "none" if record.answer is None else repr(record.answer[:300])
    lines = [
        f"  {record.qid}  {record.question}",
        f"    answer {answer}; gold {' / '.join(record.answers)[:300]!r}",
        f"    why: {cause.detail or cause.kind}{hop} (by {cause.by})",
    ]
    if record.searches:
        queries = "; ".join(search.query[:80] for search in record.searches[:6])
        lines.append(f"    searched: {queries}")
    return lines


def _matches(name: str, wanted: str) -> bool:
    return name == wanted or name.partition("/")[0] == wanted


def _hops(run: Errors, name: str) -> str:
    hops = Counter(c.hop for _, c in run.wrong if c.name == name and c.hop)
    if not hops:
        return ""
    return " (" + ", ".join(f"hop {hop}: {n}" for hop, n in sorted(hops.items(), key=str)) + ")"


def _by_model(run: Errors, name: str) -> str:
    n = sum(cause.name == name and cause.by == "model" for _, cause in run.wrong)
    return f" ({n} by the model)" if n else ""


def _share(part: int, whole: int) -> str:
    return f"{part} ({part / whole:.0%})" if part else "0"
