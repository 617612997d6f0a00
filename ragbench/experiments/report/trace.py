"""Report on one run by question, and on one question of it."""

from collections.abc import Iterable
from pathlib import Path

from ragbench.errors import UnknownNameError
from ragbench.experiments.report.sections import Report
from ragbench.experiments.report.table import Column, Table
from ragbench.experiments.report.tables import run_table
from ragbench.experiments.runs.summary import GOLD_IN_CONTEXT, Evaluation, or_unknown
from ragbench.experiments.store import RunFolder
from ragbench.metrics import get_metric
from ragbench.metrics.answer import is_answerable
from ragbench.metrics.retrieval import context_pids
from ragbench.programs.core import is_answer
from ragbench.record import Record

_QUESTION = (
    Column("qid"),
    Column("question", most=48, drop=3),
    Column("answer", most=32),
    Column("em", "EM", "score", drop=1),
    Column("f1", "F1", "score"),
    Column("calls", kind="count", drop=2),
    Column("ended_by", "ended by"),
)
_ROWS = "SELECT qid, question, answer, em, f1, calls, stop_reason, error FROM answers"
#: Number of passages printed in place of an answer.
_NEAREST = 3


def run_report(folder: Path, qid: str | None = None) -> Report:
    """Yield the settings of a run and a line per question, or the trace of one question.

    Args:
        folder: Folder of the run.
        qid: Id of the question. None: all questions.

    Raises:
        UnknownNameError: The run has no such question.
    """
    run = RunFolder(folder)
    card = run.card
    records = run.records
    if qid is not None:
        if qid not in records:
            raise UnknownNameError(f"question of {folder}", qid, records)
        record = records[qid]
        yield from trace_report(record)
        yield "calls"
        for number, call in enumerate(record.ledger.calls, start=1):
            remarks = ", cached" * call.cached + (f", {call.error}" if call.error else "")
            yield (
                f"  {number:>3}  {call.signature or call.kind}, {call.model}: "
                f"{call.prompt_tokens:,} + {call.completion_tokens:,} tokens, "
                f"{or_unknown(call.cost_usd)} $, {call.latency_s:.1f} s{remarks}"
            )
        return
    knobs = ", ".join(f"{name}={value}" for name, value in card.knobs.items())
    identity = card.identity
    yield from (
        f"run        {folder}",
        f"program    {identity['program']} ({knobs})",
        f"data       {card.data.name} {identity.get('split', '')}, "
        f"{card.data.setting}, {len(records)} questions",
        f"retriever  {identity.get('retriever', '')}",
        f"LM         {card.model}, {card.adapter}",
    )
    rows = {}
    for qid, question, answer, em, f1, calls, stop_reason, error in run.reader.rows(_ROWS):
        row = {"qid": qid, "question": question, "answer": answer, "em": em, "f1": f1}
        row |= {"calls": calls, "ended_by": stop_reason}
        if error is not None:
            row |= {"answer": "failed", "ended_by": error.rpartition("/")[2]}
        rows[qid] = row
    yield Table("questions", _QUESTION, [rows[qid] for qid in records])
    yield run_table([Evaluation(run)])


def answer_lines(record: Record, place: object) -> list[str]:
    """Return the answer, or a line without one and the passages nearest to the question.

    Args:
        record: The record of a question.
        place: The name of the documents that were searched.
    """
    if record.failed:
        return ["no answer"]
    if is_answer(record.answer_text):
        return [record.answer_text]
    lines = [f"{place} does not state the answer. Nearest passages:"]
    for passage in record.passages[:_NEAREST]:
        lines.append(f"  {passage.title} | {passage.text[:120]}")
    return lines


def trace_report(record: Record) -> Report:
    """Yield the question, steps, passages, answer and cost of one record."""
    titles = {p.pid: p.title or p.pid for p in record.passages}

    def named(pids: Iterable[str]) -> str:
        return "; ".join(titles.get(pid, pid) for pid in pids)

    yield f"question  {record.question}"
    for number, step in enumerate(record.steps, start=1):
        yield f"step {number:<4} {step.action}" + (f": {step.input}" if step.input else "")
        replies = {
            "thought": step.thought,
            "saw": step.observation[:400],
            "from": named(step.pids),
            "notes": ", ".join(f"{name}={value}" for name, value in step.notes.items()),
        }
        yield from (f"          {name}: {text}" for name, text in replies.items() if text)
    for number, search in enumerate(record.searches, start=1):
        yield f"search {number:<2} {search.query} (k={search.k}{', repeated' * search.cached})"
        yield f"          found: {named(search.pids) or 'nothing'}"
    yield "passages" if record.passages else "passages  none"
    in_context = context_pids(record)
    for place, passage in enumerate(record.passages, start=1):
        mark = "*" if passage.pid in record.gold_pids else " "
        cited = " (cited)" * (place in (record.citations or ()))
        hidden = " (not in context)" * (passage.pid not in in_context)
        yield f"  {mark} {passage.title} | {passage.text[:120]}{cited}{hidden}"
    if missing := [pid for pid in record.gold_pids if pid not in titles]:
        yield f"not found {'; '.join(missing)} (gold)"
    if failure := record.failure:
        yield f"failed    {failure.boundary}: {failure.error}: {failure.message[:300]}"
    else:
        yield f"answer    {record.answer}  ({record.stop_reason})"
    if record.answers:
        verdict = "not in the searched passages"
        if is_answerable(record):
            scores = (f"{name} {value:.2f}" for name, value in record.scores.items()
                      if value is not None)  # fmt: skip
            verdict = ", ".join(scores)
        yield f"gold      {' / '.join(record.answers)}  ({verdict})"
    if record.scores.get("em") == 1 and get_metric(GOLD_IN_CONTEXT).score(record) == 0:
        yield "          right without gold in context: a gold passage was missing in the context"
    yield _cost_line(record)


def _cost_line(record: Record) -> str:
    """Return the cost of a question without caching."""
    total = record.ledger.as_if
    embedded = f" and {total.other_tokens:,} of embedders" if total.other_tokens else ""
    amounts = {
        "calls": total.calls,
        "critical_path_calls": record.ledger.path.calls,
        "retrievals": len(record.searches),
        "tokens": total.tokens,
    }
    calls, path, searches, tokens = (
        or_unknown(record.known(*each), "") for each in amounts.items()
    )
    cost = or_unknown(record.known("cost_usd", total.cost_usd))
    seconds = or_unknown(record.known("latency_s", record.latency_s), ".1f")
    events = "".join(f"; {name} {n}" for name, n in record.counts.items())
    return (
        f"cost      {calls} calls (path {path}), {searches} searches, {tokens} tokens{embedded}, "
        f"{cost} $, {seconds} s{events}"
    )
