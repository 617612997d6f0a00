"""One record as a person reads it: what was searched, thought and found, and what it cost."""

from pathlib import Path
from typing import Any

from ragbench.errors import UnknownNameError
from ragbench.experiments.report.table import Column, Table, print_table, say
from ragbench.experiments.report.tables import money
from ragbench.experiments.store import read_card, read_records
from ragbench.record import Call, Record, Step


def print_trace(record: Record) -> None:
    """Print question, steps, passages, answer and cost of one record."""
    say(*_trace(record))


def print_run(folder: Path, qid: str | None = None) -> None:
    """Print what a run is and a line per question, or the trace and calls of one question.

    Raises:
        RunError: there is no such run.
        UnknownNameError: the run has no such question.
    """
    card, records = read_card(folder), read_records(folder)
    if qid is not None:
        if qid not in records:
            raise UnknownNameError(f"question of {folder}", qid, records)
        say(*_trace(records[qid]), *call_lines(records[qid]))
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
    print_table(Table("questions", _QUESTION, [_question(record) for record in records.values()]))


_QUESTION = (
    Column("qid"),
    Column("question", most=48, drop=3),
    Column("answer", most=32),
    Column("em", "EM", "score", drop=1),
    Column("f1", "F1", "score"),
    Column("calls", kind="count", drop=2),
    Column("ended_by", "ended by"),
)


def _question(record: Record) -> dict[str, Any]:
    return {
        "qid": record.qid,
        "question": record.question,
        "answer": "failed" if record.failure else record.answer,
        "em": record.scores.get("em"),
        "f1": record.scores.get("f1"),
        "calls": record.ledger.as_if.calls,
        "ended_by": record.failure.error if record.failure else record.stop_reason,
    }


def call_lines(record: Record) -> list[str]:
    """A line per call of the question."""
    return ["calls"] + [
        f"  {number:>3}  {call.signature or call.kind}, {call.model}: {call.prompt_tokens:,} + "
        f"{call.completion_tokens:,} tokens, {money(call.cost_usd)} $, {call.latency_s:.1f} s"
        f"{_billed(call)}{', cached' if call.cached else ''}"
        f"{f', {call.error}' if call.error else ''}"
        for number, call in enumerate(record.ledger.calls, start=1)
    ]


def _billed(call: Call) -> str:
    """Remarks on a call's bill beside its tokens and list price."""
    words = ""
    if call.cache_read_tokens:
        words += f", {call.cache_read_tokens:,} tokens from the provider's cache"
    if call.paid_usd is not None:
        words += f", paid {money(call.paid_usd)} $"
    if call.failed:
        tokens = call.failed.prompt_tokens + call.failed.completion_tokens
        words += f", and {tokens:,} tokens of failed attempts"
    return words


def _trace(record: Record) -> list[str]:
    titles = {p.pid: p.title or p.pid for p in record.passages}
    gold = set(record.gold_pids)
    lines = [f"question  {record.question}"]
    for number, step in enumerate(record.steps, start=1):
        lines += _step(number, step, titles)
    lines += _plan(record)
    labels = _labels(record)
    lines.append("passages")
    for place, passage in enumerate(record.passages):
        mark = "*" if passage.pid in gold else " "
        label = f"[{labels[place]}] " if place < len(labels) else ""
        lines.append(f"  {mark} {label}{passage.title} | {passage.text[:120]}")
    if not record.passages:
        lines.append("    none")
    if record.failure:
        failure = record.failure
        lines.append(f"failed    {failure.boundary}: {failure.error}: {failure.message[:300]}")
    else:
        lines.append(f"answer    {record.answer}  ({record.stop_reason})")
        lines += _citations(record, labels)
    if record.answers:
        scores = ", ".join(f"{name} {value:.2f}" for name, value in record.scores.items())
        lines.append(f"gold      {' / '.join(record.answers)}  ({scores})")
    return [*lines, _cost(record)]


def _plan(record: Record) -> list[str]:
    """The plan as it ended: each look-up, what it waits for, what it was asked and found out."""
    lines = ["plan"] if record.plan else []
    for node in record.plan or ():
        wanted = node.get("query") or node.get("question") or ""
        after = f" (after {', '.join(node['depends_on'])})" if node.get("depends_on") else ""
        asked = " / ".join(node.get("queries") or ())
        asked = f", asked: {asked}" if asked not in ("", wanted) else ""
        values = "; ".join(f"{k} = {', '.join(v)}" for k, v in (node.get("values") or {}).items())
        lines.append(
            f"    {node['id']}: {wanted}{after}{asked}" + (f" -> {values}" if values else "")
        )
    return lines


def _labels(record: Record) -> list[str]:
    """The labels of the first passages, where the program gave them any."""
    given = [step.notes["labels"] for step in record.steps if "labels" in step.notes]
    return list(given[-1]) if given else []


def _citations(record: Record, labels: list[str]) -> list[str]:
    numbers = [n for n in record.citations or () if isinstance(n, int)]
    titles = [passage.title for passage in record.passages]
    cited = [
        f"[{labels[n - 1] if n <= len(labels) else n}] {titles[n - 1]}"
        for n in numbers
        if 0 < n <= len(titles)
    ]
    return ["cited     " + "; ".join(cited)] if cited else []


def _step(number: int, step: Step, titles: dict[str, str]) -> list[str]:
    lines = [f"step {number:<4} {step.action}" + (f": {step.input}" if step.input else "")]
    if step.thought:
        lines.append(f"          thought: {step.thought}")
    if step.observation:
        lines.append(f"          saw: {step.observation[:400]}")
    if step.pids:
        lines.append("          from: " + "; ".join(titles.get(pid, pid) for pid in step.pids))
    if step.notes:
        lines.append("          " + ", ".join(f"{k}={v}" for k, v in step.notes.items()))
    return lines


def _cost(record: Record) -> str:
    ledger = record.ledger
    total = ledger.as_if
    counts = ", ".join(f"{name} {n}" for name, n in record.counts.items())
    return (
        f"cost      {total.calls} calls (path {ledger.path.calls}), {len(record.searches)} "
        f"searches, {total.tokens} tokens, {money(total.cost_usd)} $, {record.latency_s:.1f} s"
        + (f"; {counts}" if counts else "")
    )
