"""Tables for a terminal of 80 columns: one letter and one line for each program.

A scores most. Names are shortened by `names.short_names`; full names and LMs are in the table of
`--names`.
"""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from ragbench.experiments.compare.comparisons import RunComparison
from ragbench.experiments.recommend import Advice, RankedProgram
from ragbench.experiments.report.means import measured
from ragbench.experiments.report.names import in_common, letter_of, lm_aliases, short_names
from ragbench.experiments.report.sections import Section
from ragbench.experiments.report.table import Column, Table, counted, with_interval
from ragbench.experiments.runs.summary import GOLD_IN_CONTEXT, Evaluation, stop_lines
from ragbench.experiments.store import failed
from ragbench.metrics import Comparison, get_metric

#: Line under a table with short names.
NAMES = "full names and LMs: --names"
_KEY = Column("key", " ")
_PROGRAM = Column("program")
_COSTS = (Column("cost_usd", "$/1k", "usd_1000"), Column("p95_s", "p95 s", "seconds"))
#: Outcomes that a table shows.
_WORDS = ("better", "worse", "equivalent")
_HEADS = {"em": "EM", "f1": "F1"}


def short(kind: str, name: str, row: dict[str, float | None]) -> str:
    """Format a score or gain with its interval in few characters, such as ".660 [.58,.73]".

    Args:
        kind: "gain" adds a sign. Any other kind is a score.
        name: Name of the value.
        row: The value, and the ends of its interval as NAME_low and NAME_high.
    """
    interval = name + "_low" in row
    column = Column(name, kind="gain" if kind == "gain" else "score", interval=interval)
    return column.cell(row, narrow=True)


def gain_of(c: Comparison | None) -> str:
    """Return the difference of a comparison with its interval; empty if there is none."""
    if c is None:
        return ""
    return short("gain", "gain", with_interval("gain", c.difference, c.interval))


def word_of(c: Comparison | None) -> str:
    """Return "better", "worse" or "equivalent" if a comparison says so, else a blank."""
    return c.outcome if c and c.outcome in _WORDS else " "


def names_section(
    letters: Sequence[str], labels: Sequence[str], runs: Sequence[Evaluation]
) -> Section:
    """Return the table of full names, LMs and folders, which `--names` shows.

    Args:
        letters: Letter of each program.
        labels: Full name of each program.
        runs: A run of each program.
    """
    rows = []
    for letter, label, run in zip(letters, labels, runs, strict=True):
        row = {"key": letter, "program": label, "lm": run.card.model, "folder": str(run.folder)}
        rows.append(row)
    columns = (_KEY, _PROGRAM, Column("lm", "LM"), Column("folder"))
    return Section(table=Table("names", columns, rows), level="names")


def advice_sections(advice: Advice) -> list[Section]:
    """Return the advice with a letter and a line for each program, and its caveats."""
    letters = [letter_of(rank) for rank in range(len(advice.arms))]
    lettered = _with_letters(advice, letters)
    labels = [arm.label for arm in advice.arms]
    rows = []
    for letter, name, arm in zip(letters, short_names(labels), advice.arms, strict=True):
        rows.append({
            "key": letter,
            "program": name,
            "score": short("score", "score", {"score": arm.mean}),
            "gain": gain_of(arm.to_best),
            "word": word_of(arm.to_best),
            "cost_usd": arm.spending["cost_usd"],
            "p95_s": p95_of(arm.runs),
        })  # fmt: skip
    columns = (
        _KEY, _PROGRAM, Column("score", advice.metric.upper(), "score"),
        Column("gain", f"less {lettered.best.label}", "gain"), Column("word", " "), *_COSTS,
    )  # fmt: skip
    tests = counted(advice.family.tests, "test")
    title = f"{advice.metric.upper()}, {counted(len(advice.questions), 'question')} shared by all"
    table = Table("programs", columns, rows, f"{title}; differences corrected for {tests}")
    runs = [arm.runs[0] for arm in advice.arms]
    notes = [*_evidence_line(lettered.arms), failed_line([arm.runs for arm in advice.arms])]
    notes[-1] += f"; {NAMES}"
    notes = [*refusal_lines(runs, letters), *notes]
    brief = Section(lettered.sentences(), table, notes, "brief")
    return [brief, names_section(letters, labels, runs)]


def _with_letters(advice: Advice, letters: Sequence[str]) -> Advice:
    """Return `advice` with a letter for the label of each program."""
    renamed: dict[str, RankedProgram] = {}
    for letter, arm in zip(letters, advice.arms, strict=True):
        renamed[arm.label] = replace(arm, label=letter)
    arms = [renamed[arm.label] for arm in advice.arms]
    use = renamed[advice.use.label] if advice.use else None
    rival = renamed[advice.rival.label] if advice.rival else None
    against = renamed[advice.against.label] if advice.against else None
    best = renamed[advice.best.label]
    return replace(advice, arms=arms, use=use, best=best, rival=rival, against=against)


def _evidence_line(arms: Sequence[RankedProgram]) -> list[str]:
    counts = []
    for arm in arms:
        if arm.right and 2 * arm.without_gold >= arm.right:
            counts.append(f"{arm.label} {arm.without_gold}/{arm.right}")
    if not counts:
        return []
    return [f"half or more of the right answers had no gold in context: {', '.join(counts)}"]


def p95_of(runs: Sequence[Evaluation]) -> float | None:
    """Return the 95th percentile of the seconds of a question, a mean over runs."""
    latencies = []
    for run in runs:
        seconds = run.summary.latency_s.get("p95")
        if seconds is not None and "p95_s" not in run.card.unknown:
            latencies.append(seconds)
    return fmean(latencies) if latencies else None


def refusal_lines(runs: Sequence[Evaluation], labels: Sequence[str]) -> list[str]:
    """Return a line if some programs refuse to answer and others always answer.

    Args:
        runs: Runs of a table.
        labels: Name of each run in the table.
    """
    counts = {}
    for name, run in zip(labels, runs, strict=True):
        failures = run.records.column(failed)
        answered = run.records.column(get_metric("answer_rate").score)
        counts[name] = sum(score == 0 and not failures[qid] for qid, score in answered.items())
    refusing = [f"{name} {n}" for name, n in counts.items() if n]
    if not 0 < len(refusing) < len(counts):
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


def run_sections(runs: Sequence[Evaluation], labels: Sequence[str]) -> list[Section]:
    """Return sections with a line for each run, the highest F1 first.

    Args:
        runs: The runs.
        labels: Full name of each run.
    """
    scored = []
    for label, run in zip(labels, runs, strict=True):
        row: dict[str, Any] = {"label": label, "run": run, "cost_usd": None}
        row |= measured(run.records, "f1") | measured(run.records, "em")
        row |= measured(run.records, GOLD_IN_CONTEXT)
        scored.append(row)
    scored.sort(key=lambda row: (-(row["f1"] or 0.0), row["label"]))
    letters = [letter_of(rank) for rank in range(len(scored))]
    rows = []
    short_labels = short_names([row["label"] for row in scored])
    for letter, name, row in zip(letters, short_labels, scored, strict=True):
        run = row["run"]
        as_if = run.summary.as_if
        usd = None if as_if.cost_usd is None else as_if.cost_usd / max(run.summary.n, 1)
        rows.append({
            "key": letter, "program": name, "n": run.summary.n, "p95_s": p95_of([run]),
            "f1": short("score", "f1", row), "em": short("score", "em", {"em": row["em"]}),
            GOLD_IN_CONTEXT: short("score", "gold", {"gold": row[GOLD_IN_CONTEXT]}),
            "cost_usd": None if "cost_usd" in run.card.unknown else usd,
        })  # fmt: skip
    sizes = {row["n"] for row in rows}
    columns = [_KEY, _PROGRAM, Column("f1", "F1", "score"), Column("em", "EM", "score"), *_COSTS]
    if any(row[GOLD_IN_CONTEXT] is not None for row in scored):
        columns.append(Column(GOLD_IN_CONTEXT, "in context", "score"))
    if len(sizes) > 1:
        columns.append(Column("n", kind="count"))
    ordered = [row["run"] for row in scored]
    aliases = lm_aliases([run.card for run in ordered])
    lms = "" if len(aliases) == 1 else f"; {len(aliases)} LMs"
    failures = failed_line([[run] for run in ordered])
    table = Table("runs", columns, rows, in_common(ordered, max(sizes)))
    notes = []
    for letter, run in zip(letters, ordered, strict=True):
        notes += [f"{letter} {line}" for line in stop_lines(run.stopped_by, run.progress)]
    notes += refusal_lines(ordered, letters)
    brief = Section((), table, [*notes, f"{failures}{lms}; {NAMES}"], "brief")
    return [brief, names_section(letters, [row["label"] for row in scored], ordered)]


def comparison_section(name: str, base: str, result: RunComparison) -> Section:
    """Return one table of scores, gold in context and costs of a run against the first.

    Args:
        name: Label of the run (B).
        base: Label of the first run (A).
        result: Comparison of both.
    """
    rows = []
    scores = dict(result.scores)
    if result.gold_in_context:
        scores[GOLD_IN_CONTEXT] = result.gold_in_context
    for metric, c in scores.items():
        means = (("a", c.mean_a), ("b", c.mean_b))
        row = {side: short("score", side, {side: mean}) for side, mean in means}
        rows.append({"measure": _HEADS.get(metric, metric), **row, "gain": gain_of(c)})
        rows[-1]["word"] = word_of(c)
    for measure, cost in result.costs.items():
        if cost is None:
            rows.append({"measure": measure, "gain": "unknown", "word": " "})
            continue
        head, kind = _UNITS[measure]
        column = Column("x", kind=kind)
        ratio = f"x {cost.mean_b / cost.mean_a:.1f}" if cost.mean_a else "-"
        row = {"a": column.cell({"x": cost.mean_a}), "b": column.cell({"x": cost.mean_b})}
        rows.append({"measure": head, **row, "gain": ratio, "word": " "})
    short_a, short_b = short_names([base, name])
    columns = (
        Column("measure", " "), Column("a", "A", "score"), Column("b", "B", "score"),
        Column("gain", "difference", "gain"), Column("word", " "),
    )  # fmt: skip
    main_metric, c = next(iter(result.scores.items()))
    verdict, _, needed = c.verdict.partition(" (")
    headline = (
        f"B, {short_b}, against A, {short_a}: {main_metric} {c.gain}, {verdict or 'not tested'}"
    )
    n = max(c.n for c in result.scores.values())
    only = f"right in only one: {len(result.broken)} and {len(result.fixed)}"
    table = Table("comparison", columns, rows)
    notes = [f"{counted(n, 'question')}; {only}"]
    if needed:
        notes.append(f"{main_metric}: {needed.removesuffix(')')}")
    return Section([headline], table, notes, "brief")


#: Maps each cost to its name and kind of number.
_UNITS: dict[str, tuple[str, Any]] = {
    "calls": ("calls", "amount"),
    "tokens": ("tokens", "amount"),
    "cost $": ("$/1,000", "usd_1000"),
    "latency s": ("seconds", "seconds"),
}
