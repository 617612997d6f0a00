"""One record as a person reads it: what was searched, thought and found, and what it cost."""

from __future__ import annotations

from typing import Any

from ragbench.experiments.records import Record
from ragbench.experiments.report import console, money, plain
from ragbench.ledger import Ledger


def print_trace(record: Record) -> None:
    """Print question, steps, passages, answer and calls of one record."""
    out = console()
    for line in trace_lines(record):
        out.print(plain(line), soft_wrap=True)


def trace_lines(record: Record) -> list[str]:
    """The lines of `print_trace`."""
    titles = {p["pid"]: p["title"] or p["pid"] for p in record["passages"]}
    gold = set(record["gold_pids"])
    lines = [f"question  {record['question']}"]
    for number, step in enumerate(record["steps"], start=1):
        lines += _step(number, step, titles)
    lines.append("passages")
    for passage in record["passages"]:
        mark = "*" if passage["pid"] in gold else " "
        lines.append(f"  {mark} {passage['title']} | {passage['text'][:120]}")
    if not record["passages"]:
        lines.append("    none")
    if record["failure"]:
        failure = record["failure"]
        lines.append(
            f"failed    {failure['boundary']}: {failure['error']}: {failure['message'][:300]}"
        )
    else:
        lines.append(f"answer    {record['answer']}  ({record['stop_reason']})")
    if record["answers"]:
        scores = ", ".join(f"{name} {value:.2f}" for name, value in record["scores"].items())
        lines.append(f"gold      {' / '.join(record['answers'])}  ({scores})")
    return [*lines, _cost(record)]


def _step(number: int, step: dict[str, Any], titles: dict[str, str]) -> list[str]:
    lines = [f"step {number:<4} {step['action']}" + (f": {step['input']}" if step["input"] else "")]
    if step["thought"]:
        lines.append(f"          thought: {step['thought']}")
    if step["observation"]:
        lines.append(f"          saw: {step['observation'][:400]}")
    if step["pids"]:
        lines.append("          from: " + "; ".join(titles.get(pid, pid) for pid in step["pids"]))
    if step["notes"]:
        lines.append("          " + ", ".join(f"{k}={v}" for k, v in step["notes"].items()))
    return lines


def _cost(record: Record) -> str:
    ledger = Ledger.from_dict(record["ledger"])
    total = ledger.as_if
    counts = ", ".join(f"{name} {n}" for name, n in record["counts"].items())
    return (
        f"cost      {total.calls} calls (path {ledger.path.calls}), {len(record['searches'])} "
        f"searches, {total.tokens} tokens, {money(total.cost_usd)} $, {record['latency_s']:.1f} s"
        + (f"; {counts}" if counts else "")
    )
