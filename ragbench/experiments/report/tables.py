"""Tables of runs: scores, gold in context, spending, failures, totals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ragbench.experiments.compare.spending import index_lines
from ragbench.experiments.report.brief import refusal_lines, run_sections
from ragbench.experiments.report.names import label_runs
from ragbench.experiments.report.rows import (
    ABSTENTION,
    known_columns,
    memory_row,
    protocol_labels,
    protocol_row,
    row_of_questions,
    row_of_run,
)
from ragbench.experiments.report.sections import Report, full
from ragbench.experiments.report.table import Column, Table, counted
from ragbench.experiments.runs.clusters import clusters_of
from ragbench.experiments.runs.summary import (
    GOLD_IN_CONTEXT,
    GOLD_RETRIEVED,
    Evaluation,
    failure_of,
    is_upper_bound,
    members,
    or_unknown,
    retrieval_is_selective,
    stop_lines,
    summarize,
)
from ragbench.experiments.store import StoredRecords
from ragbench.metrics import get_metric
from ragbench.record import Totals

if TYPE_CHECKING:
    from ragbench.experiments.score.protocols import Protocol

#: Fraction of questions without a readable reply above which a table warns.
UNREADABLE_SHARE = 0.2
#: Fraction of right answers without gold in context above which a line explains them.
KNOWN_SHARE = 1 / 3

_COLUMNS = (
    Column("n", kind="count"),
    Column("em", "EM", "score", interval=True),
    Column("f1", "F1", "score", interval=True),
    Column(GOLD_IN_CONTEXT, "gold in context", "score", drop=1),
    Column(GOLD_RETRIEVED, "gold retrieved", "score", drop=7),
    Column("answer_rate", "answer rate", "score", interval=True, drop=6),
    Column("selective_accuracy", "selective accuracy", "score", interval=True, drop=6),
    Column("correct_refusal_rate", "correct refusals", "score", interval=True, drop=6),
    Column("memory", "memory", "gain", interval=True, drop=6),
    Column("memory_n", "open n", kind="count", drop=6),
    Column("failed", kind="count"),
    Column("calls", kind="amount", drop=3),
    Column("sequential_calls", "sequential calls", "amount", drop=9),
    Column("searches", kind="amount", drop=8),
    Column("tokens", kind="amount", drop=4),
    Column("embedder_tokens", "embedder tokens", "amount", drop=8),
    Column("cost_usd", "$/1,000", "usd_1000", drop=2),
    Column("index_usd", "index $", "usd", drop=3),
    Column("p50_s", "p50 s", "seconds", drop=5),
    Column("p95_s", "p95 s", "seconds", drop=7),
)
#: Note below a table of runs.
LEGEND = (
    "calls, sequential calls (longest chain), searches and tokens are per question, $ for 1,000, "
    "as if nothing were cached"
)
LEGEND_OF_MARK = (
    "\u2020: the first search can return every passage of most questions, or the index has no "
    "summary, edge or community, so the row does not measure the search of the program; "
    "--setting pooled searches all passages"
)
LEGEND_OF_GOLD = (
    "\u2021: receives the gold passages: an upper bound for reading, not a usable program"
)
LEGEND_OF_CONTEXT = (
    "; gold in context: share of questions with every gold passage in the LM's context; gold "
    "retrieved: with every gold passage retrieved"
)


def runs_report(
    evaluations: Sequence[Evaluation], by_group: bool = False, protocol: Protocol | None = None
) -> Report:
    """Yield a table with a row per run, the settings of each, and notes.

    Args:
        evaluations: The runs.
        by_group: Add results by group of questions.
        protocol: Protocol whose scores are further columns.
    """
    table = run_table(evaluations)
    report = _whole_report(evaluations, table, by_group, protocol)
    if len(evaluations) > 1 and not by_group and protocol is None:
        yield from run_sections(evaluations, table.rows)
        report = full(report)
    yield from report


def _whole_report(
    evaluations: Sequence[Evaluation], table: Table, by_group: bool, protocol: Protocol | None
) -> Report:
    yield from dict.fromkeys(map(title_of, evaluations))
    if protocol is not None:
        scored = [protocol_row([run], protocol) for run in evaluations]
        columns = [*table.columns, *known_columns(scored, protocol_labels(protocol))]
        rows = [{**row, **beside} for row, beside in zip(table.rows, scored, strict=True)]
        table = replace(table, columns=columns, rows=rows)
    yield table
    if by_group:
        yield "results by group of questions"
        yield group_table(evaluations)
    for evaluation in evaluations:
        if len(evaluations) > 1:
            yield f"{evaluation.folder}"
        yield from (*notes(evaluation), *index_lines(evaluation))
        if evaluation.summary.errors:
            yield failure_table(evaluation.records)
    if len(evaluations) == 1:
        yield f"records: {evaluations[0].folder}"


def title_of(evaluation: Evaluation) -> str:
    """Return the data, retriever and LM of a run."""
    card = evaluation.card
    split = card.identity.get("split")
    sizes = {"all": card.data_card.get("questions"), **(card.data_card.get("splits") or {})}
    total = sizes.get(split)
    counted = "questions"
    if card.questions and total:
        counted = f"{card.questions} of {total} questions"
    how = (card.data.setting, card.identity.get("retriever"), card.model, card.adapter)
    return (
        f"{card.data.name}: {counted} ({'all' if split == 'all' else f'{split} split'}), "
        f"{', '.join(str(name) for name in how if name)}"
    )


def run_table(evaluations: Sequence[Evaluation], labels: Sequence[str] = ()) -> Table:
    """Return a table with one row per run.

    Args:
        evaluations: The runs.
        labels: Name of each run. Default: program and distinguishing settings.
    """
    rows = []
    legends: dict[str, None] = {}
    for label, run in zip(labels or label_runs(evaluations), evaluations, strict=True):
        row = {"program": label, **row_of_run(run), **memory_row(run, evaluations)}
        if is_upper_bound(run.summary):
            row["mark"] = "\u2021"
            legends[LEGEND_OF_GOLD] = None
        elif not retrieval_is_selective(run.summary):
            row["mark"] = "\u2020"
            legends[LEGEND_OF_MARK] = None
        rows.append(row)
    notes = list(legends)
    columns = [Column("program"), *_known(rows)]
    if notes:
        marks = {row["mark"] for row in rows if "mark" in row}
        columns.append(Column("mark", "".join(sorted(marks))))
    for row in rows:
        if row.get("partly"):
            notes.append(f"{row['program']}: means of {', '.join(row['partly'])}")
    notes += refusal_lines(evaluations, [row["program"] for row in rows])
    gold_in_context = any(column.name == GOLD_IN_CONTEXT for column in columns)
    notes.insert(0, LEGEND + (LEGEND_OF_CONTEXT if gold_in_context else ""))
    sizes = sizes_in_words(row["n"] for row in rows)
    caption = f"Means with 95 % intervals over {sizes} questions; differences are not tested"
    return Table("runs", columns, rows, notes=notes, caption=caption)


def sizes_in_words(sizes: Iterable[int]) -> str:
    """Return numbers of questions as text, such as "100" or "80 to 100"."""
    ascending = sorted(sizes)
    return " to ".join(f"{n:,}" for n in dict.fromkeys((ascending[0], ascending[-1])))


def _known(rows: Sequence[Mapping[str, Any]]) -> list[Column]:
    """Return the columns, without gold in context, index and embedder if no run has them."""
    left_out = set[str]()
    if all(row[GOLD_IN_CONTEXT] is None for row in rows):
        left_out |= {GOLD_IN_CONTEXT, GOLD_RETRIEVED}
    if not any(row["embedder_tokens"] for row in rows):
        left_out.add("embedder_tokens")
    for name in (*ABSTENTION, "index_usd", "memory", "memory_n"):
        if not any(name in row for row in rows):
            left_out.add(name)
    return [column for column in _COLUMNS if column.name not in left_out]


def group_table(evaluations: Sequence[Evaluation]) -> Table:
    """Return a row per run and group of questions, with the columns of `run_table`."""
    rows = []
    for evaluation in evaluations:
        for name, group, records in members(evaluation.records):
            row = {"run": evaluation.folder.name, "by": name, "group": group}
            rows.append(row | row_of_questions(summarize(records), records))
    identifying = [Column("run")] if len(evaluations) > 1 else []
    return Table("groups", [*identifying, Column("by"), Column("group"), *_known(rows)], rows)


def notes(evaluation: Evaluation) -> list[str]:
    """Return notes on a run: totals, events, unsupported right answers, and warnings."""
    summary = evaluation.summary
    lines = stop_lines(evaluation.stopped_by, evaluation.progress)
    as_if = summary.as_if
    billed = summary.billed
    if not evaluation.card.unknown:
        lines.append(
            f"in all: {as_if.calls:,} calls, {as_if.tokens:,} tokens, "
            f"{or_unknown(as_if.cost_usd)} $; billed: {_bill(billed)}"
        )
    prepared = evaluation.prepared
    lost = evaluation.lost
    if prepared.attempts:
        so_far = "" if evaluation.card.index else " so far"
        lines.append(f"index{so_far}: billed {_bill(prepared)}, {prepared.all_tokens:,} tokens")
    if lost.attempts:
        lines.append(
            f"billed in addition: {_bill(lost)}, for questions without a record, since the run "
            "was killed"
        )
    for word, totals in (("", billed), ("index: ", prepared), ("lost questions: ", lost)):
        if totals.unanswered:
            most = f"{totals.possible_tokens:,} tokens, {or_unknown(totals.possible_usd)} $"
            lines.append(
                f"{word}possibly billed in addition: {totals.unanswered:,} requests whose reply "
                f"was lost, at most {most}"
            )
    if again := evaluation.records.n_replaced:
        lines.append(f"including {again} failed attempts that were repeated")
    lines += gold_lines(evaluation)
    lines += _cluster_lines(evaluation.records)
    events = {**summary.counts, "adapter_fallback": summary.as_if.fallbacks}
    if counted := ", ".join(f"{name} {n}" for name, n in sorted(events.items()) if n):
        lines.append(f"events: {counted}")
    reasons = ", ".join(f"{k} {v}" for k, v in sorted(summary.stop_reasons.items()))
    lines.append(f"stop reasons: {reasons or 'none'}")
    n = len(evaluation.records)
    unreadable = evaluation.unreadable
    if unreadable > UNREADABLE_SHARE * n:
        lines.append(
            f"warning: no reply of the model could be read for {unreadable} of {n} questions; "
            "inspect one with `ragbench show run`, and try another --adapter or model"
        )
    return [*lines, *unread_lines(evaluation.records.damaged)]


def _bill(totals: Totals) -> str:
    return f"{totals.calls:,} calls, {or_unknown(totals.cost_usd)} $"


def _cluster_lines(records: StoredRecords) -> list[str]:
    """Return a line on the clusters of a run, or nothing if each question is its own."""
    sizes = Counter(clusters_of(records).values())
    if not sizes:
        return []
    clusters = counted(len(sizes), "cluster")
    return [f"questions that vary together: {clusters}, the largest of {max(sizes.values())}"]


def without_gold(records: StoredRecords) -> tuple[int, int]:
    """Count the right answers (EM 1) without all gold passages, and all right answers.

    Only questions with known gold passages count.
    """
    names = ("em", GOLD_IN_CONTEXT)
    right, gold_in_context = (records.column(get_metric(name).score) for name in names)
    shares = []
    for qid, em in right.items():
        if em == 1 and gold_in_context[qid] is not None:
            shares.append(gold_in_context[qid])
    return sum(share != 1 for share in shares), len(shares)


def gold_lines(evaluation: Evaluation) -> list[str]:
    """Return a line on right answers without gold in context, and its likely reason."""
    without, right = without_gold(evaluation.records)
    if not without:
        return []
    line = f"right without gold in context: {without} of {right}"
    if without > KNOWN_SHARE * right:
        line += (
            "; the model knows or guesses these answers, or reads them from facts of an index "
            "instead of passages"
        )
        if evaluation.card.data.name != "synthetic":
            line += "; `--dataset synthetic --setting pooled` has fictional questions"
    return [line]


def unread_lines(damaged: Sequence[str]) -> list[str]:
    """Return a warning about questions whose records were skipped, if any."""
    if not damaged:
        return []
    return [f"warning: skipped the damaged record of {', '.join(damaged)}"]


def failure_table(records: StoredRecords) -> Table:
    """Return a row per boundary and class of error: count, and the first message by id."""
    by_class: dict[tuple[str, str], dict[str, Any]] = {}
    for qid, failure in sorted(records.column(failure_of).items()):
        if failure:
            key = (failure.boundary, failure.error)
            message = " ".join(failure.message.split())
            row = {"boundary": key[0], "error": key[1], "n": 0, "qid": qid, "message": message}
            by_class.setdefault(key, row)["n"] += 1
    rows = [by_class[key] for key in sorted(by_class)]
    columns = (Column("boundary", "failed at"), Column("error"), Column("n", kind="count"),
               Column("qid", "for example"), Column("message", most=80))  # fmt: skip
    title = "failures (scored 0; retried by the next run)"
    if any(row["boundary"] == "import" for row in rows):
        title = "failures (scored 0)"
    return Table("failures", columns, rows, title)
