"""Why answers are wrong: the causes of runs as a table, and examples to read."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragbench.errors import UnknownNameError
from ragbench.experiments.report.table import Column, Table, print_table, say
from ragbench.experiments.report.tables import unread_lines
from ragbench.experiments.runs import reopen, stop_lines
from ragbench.experiments.score.annotation import annotate, spending
from ragbench.experiments.score.asking import Asking
from ragbench.experiments.score.judging import Causes, check_judge
from ragbench.experiments.store import locked
from ragbench.metrics import UNDECIDED, Cause, cause_of, get_metric
from ragbench.record import Record

#: Levels of causes, in the order in which tables show them.
LEVELS = ("retrieval", "reading", "control", "data")


@dataclass(frozen=True)
class Errors:
    """The wrong answers of a run with their causes; `asked` is what a model came to, if asked."""

    folder: Path
    n: int
    wrong: Sequence[tuple[Record, Cause]]
    asked: Mapping[str, Any] | None
    #: What the table does not show: lines that cannot be read, questions not asked.
    notes: Sequence[str]


def errors_of(
    folder: Path,
    *,
    asking: Asking | None = None,
    allow_self: bool = False,
    metric: str = "em",
) -> Errors:
    """The wrong answers of the run in `folder`: those with less than 1 by `metric`.

    Verdicts of a judge count where the run was scored by one. With `asking`, a model gives the
    causes that rules cannot decide; it must not be the model that answered, unless `allow_self`.

    Raises:
        RagbenchError: it is not a run folder, has no records, or the model cannot be asked.
    """
    run = reopen(folder)
    records = list(run.records.values())
    score = get_metric(metric).score
    rejected = Cause("data", "metrics_disagree", f"{metric} alone calls it wrong")
    kind = Causes({r.qid: cause_of(r) or rejected for r in records if (score(r) or 0.0) < 1})
    annotated = None
    if asking is not None:
        check_judge(records, asking.lm, allow_self=allow_self)
        with locked(folder):
            annotated = annotate(folder, records, kind, asking)
    return Errors(
        folder,
        len(records),
        [(record, kind.cause(record, annotated)) for record in records if record.qid in kind.rules],
        kind.summarize(records, annotated) if annotated else None,
        [*stop_lines("", run.progress), *unread_lines(run.records.damaged)],
    )


def print_errors(runs: Sequence[Errors], *, show: int = 0, cause: str | None = None) -> None:
    """Print the table of causes, and `show` examples of each; of `cause` alone where it is given.

    `cause` is a level (`reading`) or a level and a kind (`reading/partial`).

    Raises:
        UnknownNameError: no wrong answer has such a cause.
    """
    names = {name for run in runs for _, c in run.wrong for name in (c.level, c.name)}
    if cause is not None and cause not in names:
        raise UnknownNameError("cause", cause, names)
    for run in runs:
        prefix = f"{run.folder}: " if len(runs) > 1 else ""
        say(*(prefix + line for line in (_who_says(run), *run.notes)))
    print_table(_cause_table(runs))
    for run in runs:
        say(*_example_lines(run, show, cause))


def _cause_table(runs: Sequence[Errors]) -> Table:
    """A row per level and per cause within it, of each run: number and share of its questions."""
    rows = []
    for run in runs:
        levels = Counter(cause.level for _, cause in run.wrong)
        kinds = Counter(cause.name for _, cause in run.wrong)
        counts = {"questions": run.n, "wrong": len(run.wrong)}
        for level in LEVELS:
            counts |= {level: levels[level]}
            counts |= {k: kinds[k] for k in sorted(kinds) if k.startswith(f"{level}/")}
        for name, n in counts.items():
            share = n / run.n if run.n else None
            rows.append({"run": run.folder.name, "cause": name, "n": n, "share": share})
    several = [Column("run")] if len(runs) > 1 else []
    columns = [*several, Column("cause"), Column("n", kind="count"), Column("share", kind="share")]
    return Table("causes", columns, rows)


def _who_says(run: Errors) -> str:
    causes = [cause for _, cause in run.wrong]
    if run.asked is None:
        weak = sum(cause.name in UNDECIDED or cause.kind == "undecided" for cause in causes)
        more = f"; {weak} of them see only that strings differ, --judge LM asks a model"
        line = "causes are determined by rules from the record alone (docs/metrics.md)"
        return line + (more if weak else "")
    by_rules = sum(cause.by != "model" for cause in causes)
    decided = sum(cause.by == "model" and cause.kind != "undecided" for cause in causes)
    return f"{by_rules} causes by rules, {decided} by {run.asked['model']}; {spending(run.asked)}"


def _example_lines(run: Errors, show: int, wanted: str | None) -> list[str]:
    """The first `show` examples of each cause, by qid."""
    by_cause: dict[str, list[tuple[Record, Cause]]] = {}
    for record, cause in run.wrong:
        if wanted in (None, cause.name, cause.level):
            by_cause.setdefault(cause.name, []).append((record, cause))
    lines: list[str] = []
    for name, some in sorted(by_cause.items()) if show else ():
        lines.append(f"{name}: {len(some)} in {run.folder}")
        for record, cause in some[:show]:
            hop = f"; hop {cause.hop}" if cause.hop else ""
            answer = "none" if record.answer is None else repr(record.answer[:300])
            lines += [
                f"  {record.qid}  {record.question}",
                f"    answer {answer}; gold {' / '.join(record.answers)[:300]!r}",
                f"    why: {cause.detail or cause.kind}{hop} (by {cause.by})",
            ]
            if queries := "; ".join(search.query[:80] for search in record.searches[:6]):
                lines.append(f"    searched: {queries}")
    return lines
