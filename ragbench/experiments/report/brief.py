"""Tables for a terminal of 80 columns: one letter and one line for each program.

A scores most. Names are shortened by `names.short_names`; full names and LMs are in the table of
`--names`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ragbench.experiments.compare.comparisons import RunComparison
from ragbench.experiments.letters import letter_of
from ragbench.experiments.recommend import Advice, RankedProgram
from ragbench.experiments.report.names import in_common, lm_aliases, short_names
from ragbench.experiments.report.rows import compared_rows
from ragbench.experiments.report.sections import Section
from ragbench.experiments.report.table import Column, Table, counted
from ragbench.experiments.runs.summary import GOLD_IN_CONTEXT, Evaluation, stop_lines
from ragbench.experiments.store import failed
from ragbench.metrics import get_metric

#: Line under a table with short names.
NAMES = "full names and LMs: --names"
_KEY = Column("key", " ")
_PROGRAM = Column("short", "program")
_COSTS = (Column("cost_usd", "$/1k", "usd_1000"), Column("p95_s", "p95 s", "seconds"))
#: Outcomes that a table shows.
_WORDS = ("better", "worse", "equivalent")
_HEADS = {"em": "EM", "f1": "F1", GOLD_IN_CONTEXT: "gold in context"}


def word_of(outcome: str) -> str:
    """Return "better", "worse" or "equivalent" if a test says so, else a blank."""
    return outcome if outcome in _WORDS else " "


def lettered(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of programs with the letter and the short name of each, A first."""
    named = []
    names = short_names([row["program"] for row in rows])
    for rank, (name, row) in enumerate(zip(names, rows, strict=True)):
        named.append({**row, "key": letter_of(rank), "short": name})
    return named


def names_section(rows: Sequence[Mapping[str, Any]], runs: Sequence[Evaluation]) -> Section:
    """Return the table of full names, LMs and folders, which `--names` shows.

    Args:
        rows: Row of each program with its letter.
        runs: A run of each program.
    """
    named = []
    for row, run in zip(rows, runs, strict=True):
        named.append({**row, "lm": run.card.model, "folder": str(run.folder)})
    columns = (_KEY, Column("program"), Column("lm", "LM"), Column("folder"))
    return Section(table=Table("names", columns, named), level="names")


def advice_sections(advice: Advice, rows: Sequence[Mapping[str, Any]]) -> list[Section]:
    """Return the advice with a letter and a line for each program, and its caveats.

    Args:
        advice: The advice.
        rows: Row of each program, in the order of the advice.
    """
    rows = lettered(rows)
    letters = [row["key"] for row in rows]
    by_letter = _with_letters(advice, letters)
    metric = advice.metric.upper()
    cost = _COSTS[0] if advice.cost == "cost_usd" else Column(advice.cost, kind="amount")
    columns = (
        _KEY, _PROGRAM, Column(advice.metric, metric, "score", narrow=True),
        Column("below_best", f"less {by_letter.best.label}", "gain", interval=True, narrow=True),
        Column("word", " "), cost, _COSTS[1],
    )  # fmt: skip
    tests = counted(advice.family.tests, "test")
    title = f"{metric}, {counted(len(advice.questions), 'question')} shared by all"
    table = Table("programs", columns, rows, f"{title}; differences corrected for {tests}")
    runs = [arm.runs[0] for arm in advice.arms]
    notes = [
        *refusal_lines(runs, letters),
        *_evidence_line(by_letter.arms),
        f"{failed_line([arm.runs for arm in advice.arms])}; {NAMES}",
    ]
    brief = Section(by_letter.sentences(), table, notes, "brief")
    return [brief, names_section(rows, runs)]


def _with_letters(advice: Advice, letters: Sequence[str]) -> Advice:
    """Return `advice` with a letter for the label of each program."""
    renamed: dict[int, Any] = {id(None): None}
    for letter, arm in zip(letters, advice.arms, strict=True):
        renamed[id(arm)] = replace(arm, label=letter, key=letter)
    ones = {
        name: renamed[id(getattr(advice, name))] for name in ("use", "best", "rival", "against")
    }
    rivals = [renamed[id(arm)] for arm in advice.rivals]
    return replace(advice, arms=[renamed[id(arm)] for arm in advice.arms], rivals=rivals, **ones)


def _evidence_line(arms: Sequence[RankedProgram]) -> list[str]:
    counts = []
    for arm in arms:
        if arm.right and 2 * arm.without_gold >= arm.right:
            counts.append(f"{arm.label} {arm.without_gold}/{arm.right}")
    if not counts:
        return []
    return [f"half or more of the right answers had no gold in context: {', '.join(counts)}"]


def refusals(run: Evaluation) -> int:
    """Return the number of questions that the program of `run` refused to answer."""
    failures = run.records.column(failed)
    answered = run.records.column(get_metric("answer_rate").score)
    return sum(score == 0 and not failures[qid] for qid, score in answered.items())


def refusal_lines(runs: Sequence[Evaluation], labels: Sequence[str]) -> list[str]:
    """Return a line if some programs refuse to answer and others always answer.

    Args:
        runs: Runs of a table.
        labels: Name of each run in the table.
    """
    refusing = []
    for name, run in zip(labels, runs, strict=True):
        if n := refusals(run):
            refusing.append(f"{name} {n}")
    if not 0 < len(refusing) < len(runs):
        return []
    return [f"refused: {', '.join(refusing)}; the others guess if they do not know"]


def failed_line(arms: Sequence[Sequence[Evaluation]]) -> str:
    """Return the number of failed questions: "0 failed" or "failed: B 3, C 1"."""
    counts = []
    for rank, runs in enumerate(arms):
        n = sum(run.summary.failed for run in runs)
        if n:
            counts.append(f"{letter_of(rank)} {n}")
    if not counts:
        return "0 failed"
    return f"failed: {', '.join(counts)} (--wide shows why)"


def run_sections(runs: Sequence[Evaluation], rows: Sequence[Mapping[str, Any]]) -> list[Section]:
    """Return sections with a line for each run, the highest F1 first.

    Args:
        runs: The runs.
        rows: Row of each run in the table of runs.
    """
    places = sorted(range(len(runs)), key=lambda at: (-(rows[at]["f1"] or 0), rows[at]["program"]))
    runs = [runs[at] for at in places]
    rows = lettered([rows[at] for at in places])
    sizes = {row["n"] for row in rows}
    columns = [
        _KEY, _PROGRAM, Column("f1", "F1", "score", interval=True, narrow=True),
        Column("em", "EM", "score", narrow=True), *_COSTS,
    ]  # fmt: skip
    if any(row[GOLD_IN_CONTEXT] is not None for row in rows):
        columns.append(Column(GOLD_IN_CONTEXT, "in context", "score", narrow=True))
    if len(sizes) > 1:
        columns.append(Column("n", kind="count"))
    notes = []
    for row, run in zip(rows, runs, strict=True):
        notes += [f"{row['key']} {line}" for line in stop_lines(run.stopped_by, run.progress)]
    notes += refusal_lines(runs, [row["key"] for row in rows])
    lms = len(lm_aliases([run.card for run in runs]))
    notes.append(failed_line([[run] for run in runs]))
    notes[-1] += f"; {lms} LMs; {NAMES}" if lms > 1 else f"; {NAMES}"
    table = Table("runs", columns, rows, in_common(runs, max(sizes)))
    return [Section((), table, notes, "brief"), names_section(rows, runs)]


def comparison_section(name: str, base: str, result: RunComparison) -> Section:
    """Return one table of scores, gold in context and costs of a run against the first.

    Args:
        name: Label of the run (B).
        base: Label of the first run (A).
        result: Comparison of both.
    """
    scores = dict(result.scores)
    if result.gold_in_context:
        scores[GOLD_IN_CONTEXT] = result.gold_in_context
    rows = []
    for row in compared_rows({}, scores):
        head = _HEADS.get(row["metric"], row["metric"])
        rows.append({**row, "measure": head, "word": word_of(row["outcome"])})
    for measure, cost in result.costs.items():
        if cost is None:
            rows.append({"measure": measure, "difference": "unknown", "word": " "})
            continue
        head, kind = _UNITS[measure]
        column = Column("x", kind=kind)
        rows.append({
            "measure": head,
            "a": column.cell({"x": cost.mean_a}),
            "b": column.cell({"x": cost.mean_b}),
            "difference": f"x {cost.mean_b / cost.mean_a:.1f}" if cost.mean_a else "-",
            "word": " ",
        })  # fmt: skip
    columns = (
        Column("measure", " "), Column("a", "A", "score", narrow=True),
        Column("b", "B", "score", narrow=True),
        Column("difference", kind="gain", interval=True, narrow=True), Column("word", " "),
    )  # fmt: skip
    short_a, short_b = short_names([base, name])
    metric, c = next(iter(result.scores.items()))
    verdict, _, needed = c.verdict.partition(" (")
    headline = f"B, {short_b}, against A, {short_a}: {metric} {c.gain}, {verdict or 'not tested'}"
    n = max(c.n for c in result.scores.values())
    only = f"right in only one: {len(result.broken)} and {len(result.fixed)}"
    notes = [f"{counted(n, 'question')}; {only}"]
    if needed:
        notes.append(f"{metric}: {needed.removesuffix(')')}")
    return Section([headline], Table("comparison", columns, rows), notes, "brief")


#: Maps each cost to its name and kind of number.
_UNITS: dict[str, tuple[str, Any]] = {
    "calls": ("calls", "amount"),
    "tokens": ("tokens", "amount"),
    "cost $": ("$/1,000", "usd_1000"),
    "latency s": ("seconds", "seconds"),
}
