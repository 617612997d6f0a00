"""Tables of a scored run (metrics, judges, protocols), and causes of its wrong answers."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragbench.errors import UnknownNameError
from ragbench.experiments.report.names import name_of_system
from ragbench.experiments.report.sections import Report
from ragbench.experiments.report.table import Column, Table, with_interval
from ragbench.experiments.report.tables import unread_lines
from ragbench.experiments.runs.summary import Evaluation, stop_lines
from ragbench.experiments.score.annotation import annotate, spending
from ragbench.experiments.score.asking import JudgeSession
from ragbench.experiments.score.judging import Causes, FailureModes, check_judge
from ragbench.experiments.score.scoring import Scored, describe
from ragbench.experiments.store import RunFolder, locked
from ragbench.metrics import UNDECIDED, Cause, cause_of, get_metric
from ragbench.metrics.answer import is_answerable
from ragbench.record import Record

_MEAN = Column("mean", kind="mean", interval=True)
#: Levels of causes, in the order in which tables show them.
LEVELS = ("retrieval", "reading", "control", "data")


def scores_report(runs: Sequence[Scored]) -> Report:
    """Yield the table of all `runs`, then its notes."""
    labels = [f"{name_of_system(r.card)} on {r.card.data.name}, {r.card.model}" for r in runs]
    for name, run in zip(labels, runs, strict=True):
        yield f"{name}: {run.folder}"
    yield metric_table(runs)
    for name, run in zip(labels, runs, strict=True):
        prefix = f"{name}: " if len(runs) > 1 else ""
        for line in notes(run):
            yield prefix + line


def metric_table(runs: Sequence[Scored]) -> Table:
    """Return a row per metric and a column per run, with n if it varies."""
    folders = [run.folder.name for run in runs]
    labels = [f"{n} {i}" if folders.count(n) > 1 else n for i, n in enumerate(folders, start=1)]
    labels = labels if len(runs) > 1 else ["mean"]
    rows: dict[str, dict[str, Any]] = {}
    columns = [Column("metric")]
    for label, run in zip(labels, runs, strict=True):
        n = run.summary["n"]
        rows.setdefault("questions", {"metric": "questions"})[label] = n
        rows.setdefault("failed", {"metric": "failed"})[label] = run.summary["n_failed"]
        columns.append(Column(label, kind="mean", interval=True))
        scores = run.summary["scores"]
        for metric, score in scores.items():
            row = rows.setdefault(metric, {"metric": metric})
            row |= with_interval(label, score["mean"], score.get("interval"))
            row[f"{label}_n"] = score["n"]
        if any(score["n"] != n for score in scores.values()):
            head = f"n of {label}" if len(runs) > 1 else "n"
            columns.append(Column(f"{label}_n", head, "count"))
    return Table("metrics", columns, list(rows.values()))


def notes(run: Scored) -> list[str]:
    """Return the notes on a table: sources of support, judges, protocol, damaged records."""
    summary = run.summary
    lines = list[str]()
    for words, kinds in (("supporting sentences", summary["support_kinds"]),
                         ("evidence triples", summary["evidence_kinds"])):  # fmt: skip
        if kinds:
            counts = ", ".join(f"{kind} {n}" for kind, n in kinds.items())
            lines.append(f"{words}: {counts} of {summary['n']}")
    for name in summary.get("missing", ()):
        lines.append(f"{name}: no question has a score (`ragbench show metric {name}`)")
    for name, judge in summary["judges"].items():
        lines += describe(name, judge)
    if "protocol" in summary:
        lines += protocol_lines(summary["protocol"])
    return [*lines, *unread_lines(run.damaged)]


def protocol_lines(protocol: Mapping[str, Any]) -> Iterator[str]:
    """Yield the scores under a protocol, every deviation, and unchecked requirements."""
    yield f"protocol {protocol['name']}"
    for name, score in protocol["scores"].items():
        empty = score.get("without_score")
        note = f", {empty} without the score count 0" if empty else ""
        cell = _MEAN.cell(with_interval("mean", score["mean"], score.get("interval")))
        yield f"  {name}: {cell} over {score['n']} ({score['over']}{note})"
    yield from (f"  {name}: no question has it" for name in protocol["missing"])
    for text in protocol["deviations"]:
        yield f"  differs: {text}"
    yield from (f"  not checked: {text}" for text in protocol["unchecked"])


@dataclass(frozen=True)
class Errors:
    """Wrong answers of a run with their causes; `asked` is the summary of a model's causes."""

    folder: Path
    n: int
    wrong: Sequence[tuple[Record, Cause]]
    asked: Mapping[str, Any] | None
    #: Notes on damaged records and on questions that were not asked.
    notes: Sequence[str]


def errors_of(
    folder: Path,
    *,
    asking: JudgeSession | None = None,
    allow_self: bool = False,
    metric: str = "em",
    modes: bool = False,
) -> Errors:
    """Find the wrong answers of a run and their causes.

    Verdicts of a judge count if the run was scored by one.

    Args:
        folder: Folder of the run.
        asking: LM that decides the causes that rules cannot decide. None: rules only.
        allow_self: Allow the LM that answered.
        metric: Metric of answers. An answer below 1 is wrong.
        modes: Ask for A-RAG's failure modes instead.

    Returns:
        The wrong answers.

    Raises:
        ConfigError: The LM answered the questions itself.
    """
    opened = RunFolder(folder, check=True)
    run = Evaluation(opened)
    records = list(run.records.values())
    score = get_metric(metric).score
    rejected = Cause("data", "metrics_disagree", f"only {metric} rates it as wrong")
    rules = {}
    for record in records:
        cause = cause_of(record)
        if cause is None and not is_answerable(record):
            continue
        if (score(record) or 0.0) < 1:
            rules[record.qid] = cause or rejected
    kind = FailureModes(rules) if modes else Causes(rules)
    annotated = None
    if asking is not None:
        check_judge(records, asking.lm, allow_self=allow_self)
        with locked(folder):
            annotated = annotate(opened, records, kind, asking)
    wrong = []
    for record in records:
        if record.qid in kind.rules:
            wrong.append((record, kind.cause(record, annotated)))
    return Errors(
        folder,
        len(records),
        wrong,
        kind.summarize(records, annotated) if annotated else None,
        [*stop_lines("", run.progress), *unread_lines(run.records.damaged)],
    )


def errors_report(runs: Sequence[Errors], *, show: int = 0, cause: str | None = None) -> Report:
    """Yield the table of causes, and examples of each.

    Args:
        runs: Wrong answers of each run.
        show: Number of examples of each cause.
        cause: Restrict examples to a level (`reading`) or a cause (`reading/partial`).

    Raises:
        UnknownNameError: No answer has that cause.
    """
    causes: set[str] = set()
    for run in runs:
        for _, cause_of_answer in run.wrong:
            causes.update((cause_of_answer.level, cause_of_answer.name))
    if cause is not None and cause not in causes:
        raise UnknownNameError("cause", cause, causes)
    for run in runs:
        prefix = f"{run.folder}: " if len(runs) > 1 else ""
        for line in (_who_says(run), *run.notes):
            yield prefix + line
    yield _cause_table(runs)
    for run in runs:
        yield from _example_lines(run, show, cause)


def _cause_table(runs: Sequence[Errors]) -> Table:
    """Return a row per level and cause of each run: count and share of questions."""
    rows = []
    for run in runs:
        levels = Counter(cause.level for _, cause in run.wrong)
        kinds = Counter(cause.name for _, cause in run.wrong)
        counts = {"questions": run.n, "wrong": len(run.wrong)}
        for level in LEVELS:
            counts[level] = levels[level]
            for kind in sorted(kinds):
                if kind.startswith(f"{level}/"):
                    counts[kind] = kinds[kind]
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
        line = "rules determine the causes from the record only (docs/metrics.md)"
        if weak:
            line += (
                f"; {weak} of them show only that strings differ (add --judge LM to ask a model)"
            )
        return line
    by_rules = sum(cause.by != "model" for cause in causes)
    decided = sum(cause.by == "model" and cause.kind != "undecided" for cause in causes)
    return f"{by_rules} causes by rules, {decided} by {run.asked['model']}; {spending(run.asked)}"


def _example_lines(run: Errors, show: int, cause_shown: str | None) -> list[str]:
    """Return lines with the first `show` examples of each cause, with their ids."""
    by_cause: dict[str, list[tuple[Record, Cause]]] = {}
    for record, cause in run.wrong:
        if cause_shown in (None, cause.name, cause.level):
            by_cause.setdefault(cause.name, []).append((record, cause))
    lines: list[str] = []
    for name, cases in sorted(by_cause.items()) if show else ():
        lines.append(f"{name}: {len(cases)} in {run.folder}")
        for record, cause in cases[:show]:
            hop = f"; hop {cause.hop}" if cause.hop else ""
            answer = "none"
            if record.answer is not None:
                answer = repr(record.answer[:300])
            lines += [
                f"  {record.qid}  {record.question}",
                f"    answer {answer}; gold {' / '.join(record.answers)[:300]!r}",
                f"    why: {cause.detail or cause.kind}{hop} (by {cause.by})",
            ]
            if queries := "; ".join(search.query[:80] for search in record.searches[:6]):
                lines.append(f"    searched: {queries}")
    return lines
