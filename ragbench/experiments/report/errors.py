"""Why answers are wrong: the causes of runs as a table, and examples to read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragbench.errors import UnknownNameError
from ragbench.experiments.report.table import Column, Table, print_table, say
from ragbench.experiments.report.tables import unread_lines
from ragbench.experiments.runs import groupings, members, reopen, stop_lines
from ragbench.experiments.score.annotate.annotator import annotate
from ragbench.experiments.score.annotate.asking import Asking
from ragbench.experiments.score.annotate.causes import Causes
from ragbench.experiments.score.annotate.judging import check_judge
from ragbench.experiments.score.annotate.wording import spending
from ragbench.experiments.store import locked
from ragbench.metrics import UNDECIDED, Cause, cause_of, get_metric
from ragbench.record import Record

#: Levels of causes, in the order in which tables show them.
LEVELS = ("retrieval", "reading", "control", "data")


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


def errors_of(
    folder: Path,
    *,
    asking: Asking | None = None,
    allow_self: bool = False,
    closed_book: Path | None = None,
    metric: str = "em",
) -> Errors:
    """The wrong answers of the run in `folder`: those with less than 1 by `metric`.

    Verdicts of a judge count where the run was scored by one.

    With `asking`, a model gives the causes that rules cannot decide; it must not be the model that
    answered, unless `allow_self`. `closed_book` is a run without retrieval, for a breakdown.

    Raises:
        RagbenchError: it is not a run folder, has no records, or the model cannot be asked.
    """
    by = groupings(closed_book)
    run = reopen(folder)
    card = run.card
    stored = run.records
    records = list(stored.values())
    score = get_metric(metric).score
    rejected = Cause("data", "metrics_disagree", f"{metric} alone calls it wrong")
    by_rules = {r.qid: cause_of(r) or rejected for r in records if (score(r) or 0.0) < 1}
    kind = Causes(by_rules)
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
    notes = [*stop_lines("", run.progress), *unread_lines(run.records.damaged)]
    return Errors(folder, card.system, len(records), caused, groups, asked, notes)


def print_errors(runs: Sequence[Errors], *, show: int = 0, cause: str | None = None) -> None:
    """Print the table of causes, and `show` examples of each; of `cause` alone where it is given.

    `cause` is a level (`reading`) or a level and a kind (`reading/partial`).

    Raises:
        UnknownNameError: no wrong answer has such a cause.
    """
    names = {c.name for run in runs for _, c in run.wrong}
    if cause is not None and not any(_matches(name, cause) for name in names):
        raise UnknownNameError("cause", cause, names | {name.partition("/")[0] for name in names})
    for run in runs:
        prefix = f"{run.folder}: " if len(runs) > 1 else ""
        say(*(prefix + line for line in (_who_says(run), *run.notes)))
    print_table(cause_table(runs))
    print_table(group_table(runs))
    for run in runs:
        say(*example_lines(run, show=show, cause=cause))


def cause_table(runs: Sequence[Errors]) -> Table:
    """A row per level and per cause within it, of each run: number and share of its questions."""
    rows = []
    for run in runs:
        levels = Counter(cause.level for _, cause in run.wrong)
        kinds = Counter(cause.name for _, cause in run.wrong)
        rows += [_row(run, "questions", run.n), _row(run, "wrong", len(run.wrong))]
        for level in LEVELS:
            rows.append(_row(run, level, levels[level]))
            rows += [_row(run, name, kinds[name]) for name in sorted(kinds) if
                     name.startswith(f"{level}/")]  # fmt: skip
    columns = (
        *_run_column(runs), Column("cause"), Column("n", kind="count"),
        Column("share", kind="share"), Column("by_model", "by the model", "count", drop=2),
        Column("hops", "hop: n", drop=1),
    )  # fmt: skip
    return Table("causes", columns, rows)


def _row(run: Errors, name: str, n: int) -> dict[str, Any]:
    some = [cause for _, cause in run.wrong if cause.name == name]
    hops = Counter(cause.hop for cause in some if cause.hop)
    return {
        "run": run.folder.name,
        "cause": name,
        "n": n,
        "share": n / run.n if run.n else None,
        "by_model": sum(cause.by == "model" for cause in some) or None,
        "hops": ", ".join(f"{hop}: {count}" for hop, count in sorted(hops.items())),
    }


def group_table(runs: Sequence[Errors]) -> Table:
    """A row per run and group of questions: how many there are, are wrong, and by level."""
    rows = []
    for run in runs:
        levels = {record.qid: cause.level for record, cause in run.wrong}
        for by, group, qids in run.groups:
            wrong = Counter(levels[qid] for qid in qids if qid in levels)
            row = {"run": run.folder.name, "by": by, "group": group, "n": len(qids)}
            share = wrong.total() / len(qids) if qids else None
            rows.append({**row, "wrong": wrong.total(), "share": share, **wrong})
    columns = (
        *_run_column(runs), Column("by"), Column("group"), Column("n", kind="count"),
        Column("wrong", kind="count"), Column("share", kind="share"),
        *(Column(level, kind="count", drop=1) for level in LEVELS),
    )  # fmt: skip
    title = "results by group of questions: wrong answers, and their causes"
    return Table("groups", columns, rows, title=title)


def _run_column(runs: Sequence[Errors]) -> tuple[Column, ...]:
    return (Column("run"),) if len(runs) > 1 else ()


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
        f"{asked['model']}; {spending(asked)}"
    )


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
