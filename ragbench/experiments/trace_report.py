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
    lines += _plan(record)
    labels = _labels(record)
    lines.append("passages")
    for place, passage in enumerate(record["passages"]):
        mark = "*" if passage["pid"] in gold else " "
        label = f"[{labels[place]}] " if place < len(labels) else ""
        lines.append(f"  {mark} {label}{passage['title']} | {passage['text'][:120]}")
    if not record["passages"]:
        lines.append("    none")
    if record["failure"]:
        failure = record["failure"]
        lines.append(
            f"failed    {failure['boundary']}: {failure['error']}: {failure['message'][:300]}"
        )
    else:
        lines.append(f"answer    {record['answer']}  ({record['stop_reason']})")
        lines += _citations(record, labels)
    if record["answers"]:
        scores = ", ".join(f"{name} {value:.2f}" for name, value in record["scores"].items())
        lines.append(f"gold      {' / '.join(record['answers'])}  ({scores})")
    return [*lines, *_stages(record), _cost(record)]


def _plan(record: Record) -> list[str]:
    """The plan as it ended: each look-up, what it waits for, what it was asked and found out."""
    lines = ["plan"] if record.get("plan") else []
    for node in record.get("plan") or ():
        wanted = node.get("query") or node.get("question") or ""
        after = f" (after {', '.join(node['depends_on'])})" if node.get("depends_on") else ""
        asked = " / ".join(node.get("queries") or ())
        asked = f", asked: {asked}" if asked not in ("", wanted) else ""
        found = "; ".join(f"{k} = {', '.join(v)}" for k, v in (node.get("values") or {}).items())
        lines.append(
            f"    {node['id']}: {wanted}{after}{asked}" + (f" -> {found}" if found else "")
        )
    return lines


def _labels(record: Record) -> list[str]:
    """The labels of the first passages, where the program gave them any."""
    given = [step["notes"]["labels"] for step in record["steps"] if "labels" in step["notes"]]
    return list(given[-1]) if given else []


def _citations(record: Record, labels: list[str]) -> list[str]:
    numbers = [n for n in record.get("citations") or () if isinstance(n, int)]
    titles = [passage["title"] for passage in record["passages"]]
    cited = [
        f"[{labels[n - 1] if n <= len(labels) else n}] {titles[n - 1]}"
        for n in numbers
        if 0 < n <= len(titles)
    ]
    return ["cited     " + "; ".join(cited)] if cited else []


def _stages(record: Record) -> list[str]:
    stages = record.get("stages") or {}
    told = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in stages.items())
    return [f"stages    {told}"] if told else []


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
