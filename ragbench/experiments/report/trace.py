"""A run or one question of it as text: what was searched, thought and found, and what it cost."""

from pathlib import Path

from ragbench.errors import UnknownNameError
from ragbench.experiments.report.table import Column, Table, print_table, say
from ragbench.experiments.report.tables import money
from ragbench.experiments.store import read_card, read_records
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


def print_run(folder: Path, qid: str | None = None) -> None:
    """Print what a run is and a line per question, or the trace and calls of one question."""
    card, records = read_card(folder), read_records(folder)
    if qid is not None:
        if qid not in records:
            raise UnknownNameError(f"question of {folder}", qid, records)
        print_trace(records[qid])
        say("calls")
        for number, call in enumerate(records[qid].ledger.calls, start=1):
            more = ", cached" * call.cached + (f", {call.error}" if call.error else "")
            tokens = f"{call.prompt_tokens:,} + {call.completion_tokens:,} tokens"
            say(
                f"  {number:>3}  {call.signature or call.kind}, {call.model}: {tokens}, "
                f"{money(call.cost_usd)} $, {call.latency_s:.1f} s{more}"
            )
        return
    knobs = ", ".join(f"{name}={value}" for name, value in card.knobs.items())
    identity = card.identity
    say(
        f"run        {folder}",
        f"program    {identity['program']} ({knobs})",
        f"data       {card.data.name} {identity.get('split', '')}, "
        f"{card.data.setting}, {len(records)} questions",
        f"retriever  {identity.get('retriever', '')}",
        f"LM         {card.model}, {card.adapter}",
    )
    rows = [
        {
            "qid": record.qid,
            "question": record.question,
            "answer": "failed" if record.failure else record.answer,
            "em": record.scores.get("em"),
            "f1": record.scores.get("f1"),
            "calls": record.ledger.as_if.calls,
            "ended_by": record.failure.error if record.failure else record.stop_reason,
        }
        for record in records.values()
    ]
    print_table(Table("questions", _QUESTION, rows))


def print_trace(record: Record) -> None:
    """Print question, steps, passages, answer and cost of one record."""
    titles = {p.pid: p.title or p.pid for p in record.passages}
    say(f"question  {record.question}")
    for number, step in enumerate(record.steps, start=1):
        said = {
            "thought": step.thought,
            "saw": step.observation[:400],
            "from": "; ".join(titles.get(pid, pid) for pid in step.pids),
            "notes": ", ".join(f"{name}={value}" for name, value in step.notes.items()),
        }
        say(f"step {number:<4} {step.action}" + (f": {step.input}" if step.input else ""))
        say(*(f"          {name}: {text}" for name, text in said.items() if text))
    say("passages" if record.passages else "passages  none")
    for place, passage in enumerate(record.passages, start=1):
        mark = "*" if passage.pid in record.gold_pids else " "
        cited = " (cited)" if place in (record.citations or ()) else ""
        say(f"  {mark} {passage.title} | {passage.text[:120]}{cited}")
    if failure := record.failure:
        say(f"failed    {failure.boundary}: {failure.error}: {failure.message[:300]}")
    else:
        say(f"answer    {record.answer}  ({record.stop_reason})")
    if record.answers:
        scores = ", ".join(f"{name} {value:.2f}" for name, value in record.scores.items())
        say(f"gold      {' / '.join(record.answers)}  ({scores})")
    total = record.ledger.as_if
    counts = "".join(f"; {name} {n}" for name, n in record.counts.items())
    say(
        f"cost      {total.calls} calls (path {record.ledger.path.calls}), {len(record.searches)} "
        f"searches, {total.tokens} tokens, {money(total.cost_usd)} $, {record.latency_s:.1f} s"
        f"{counts}"
    )
