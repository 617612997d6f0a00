"""One record as a person reads it: what was searched, thought and found, and what it cost."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from ragbench.errors import UnknownNameError
from ragbench.experiments.report.table import Column, Table, print_table, say
from ragbench.experiments.report.tables import money
from ragbench.experiments.store import read_card, read_records
from ragbench.record import Call, Record, Step

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
    """Print what a run is and a line per question, or the trace and calls of one question.

    Raises:
        RunError: there is no such run.
        UnknownNameError: the run has no such question.
    """
    card, records = read_card(folder), read_records(folder)
    if qid is not None:
        if qid not in records:
            raise UnknownNameError(f"question of {folder}", qid, records)
        print_trace(records[qid])
        say(*call_lines(records[qid]))
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


def call_lines(record: Record) -> list[str]:
    """A line per call of the question."""
    return ["calls"] + [
        f"  {number:>3}  {call.signature or call.kind}, {call.model}: {call.prompt_tokens:,} + "
        f"{call.completion_tokens:,} tokens, {money(call.cost_usd)} $, {call.latency_s:.1f} s"
        f"{_remarks(call)}"
        for number, call in enumerate(record.ledger.calls, start=1)
    ]


def _remarks(call: Call) -> str:
    """What is to be said of a call beside its tokens, list price and latency."""
    words = []
    if call.cache_read_tokens:
        words.append(f"{call.cache_read_tokens:,} tokens from the provider's cache")
    if call.paid_usd is not None:
        words.append(f"paid {money(call.paid_usd)} $")
    if call.failed:
        tokens = call.failed.prompt_tokens + call.failed.completion_tokens
        words.append(f"and {tokens:,} tokens of failed attempts")
    words += ["cached"] * call.cached
    if call.error:
        words.append(call.error)
    return "".join(f", {each}" for each in words)


def print_trace(record: Record) -> None:
    """Print question, steps, passages, answer and cost of one record."""
    titles = {p.pid: p.title or p.pid for p in record.passages}
    say(f"question  {record.question}")
    for number, step in enumerate(record.steps, start=1):
        say(*_step(number, step, titles))
    say(*_plan(record), "passages")
    given = [step.notes["labels"] for step in record.steps if "labels" in step.notes]
    labels: Sequence[str] = given[-1] if given else ()
    for place, passage in enumerate(record.passages):
        mark = "*" if passage.pid in record.gold_pids else " "
        label = f"[{labels[place]}] " if place < len(labels) else ""
        say(f"  {mark} {label}{passage.title} | {passage.text[:120]}")
    if not record.passages:
        say("    none")
    if failure := record.failure:
        say(f"failed    {failure.boundary}: {failure.error}: {failure.message[:300]}")
    else:
        say(f"answer    {record.answer}  ({record.stop_reason})")
        say(*_cited(record, labels))
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


def _step(number: int, step: Step, titles: dict[str, str]) -> Iterator[str]:
    yield f"step {number:<4} {step.action}" + (f": {step.input}" if step.input else "")
    if step.thought:
        yield f"          thought: {step.thought}"
    if step.observation:
        yield f"          saw: {step.observation[:400]}"
    if step.pids:
        yield "          from: " + "; ".join(titles.get(pid, pid) for pid in step.pids)
    if step.notes:
        yield "          " + ", ".join(f"{name}={value}" for name, value in step.notes.items())


def _plan(record: Record) -> Iterator[str]:
    """The plan as it ended: each look-up, what it waits for, what it was asked and found out."""
    if record.plan:
        yield "plan"
    for node in record.plan or ():
        wanted = node.get("query") or node.get("question") or ""
        after = f" (after {', '.join(node['depends_on'])})" if node.get("depends_on") else ""
        asked = " / ".join(node.get("queries") or ())
        asked = f", asked: {asked}" if asked not in ("", wanted) else ""
        values = "; ".join(f"{k} = {', '.join(v)}" for k, v in (node.get("values") or {}).items())
        found = f" -> {values}" if values else ""
        yield f"    {node['id']}: {wanted}{after}{asked}{found}"


def _cited(record: Record, labels: Sequence[str]) -> Iterator[str]:
    titles = [passage.title for passage in record.passages]
    places = [n for n in record.citations or () if isinstance(n, int) and 0 < n <= len(titles)]
    cited = [f"[{labels[n - 1] if n <= len(labels) else n}] {titles[n - 1]}" for n in places]
    if cited:
        yield "cited     " + "; ".join(cited)
