"""A run against a server that goes wrong in every way, and what must not have come of it.

The LM is a real HTTP server on loopback that keeps a log; the run is the real command.
"""

import threading
from collections import Counter
from pathlib import Path

from tests.fake_server import FakeServer, Fault, Hit, plausible
from tests.runs import record_rows
from tests.wire import eval_towns

#: Every way to go wrong that a run must live through.
FAULTS = (
    Fault("429"), Fault("429", retry_after=0.5), Fault("500"), Fault("503"),
    Fault("503", retry_after=1), Fault("reset"), Fault("reset_body"), Fault("truncated"),
    Fault("html"), Fault("empty"), Fault("wrong"), Fault("body", json={"choices": []}),
    Fault("body", json={"choices": [{"message": {"content": 7}}], "usage": []}),
    Fault("non_utf8"), Fault("filter"), Fault("filter_400"), Fault("huge"), Fault("drip"),
    Fault("hang", seconds=600),
)  # fmt: skip


def weather(
    folder: Path, *, n: int, timeout_s: float, workers: int
) -> tuple[list[str], Counter[str], Counter[str]]:
    """Ask `n` questions, whose first calls go wrong in the order of `FAULTS`; others do not.

    Gives what must not have happened, the faults that did by kind, and failures of questions.
    """
    seen, lock = set[str](), threading.Lock()

    def script(hit: Hit) -> str | Fault:
        with lock:
            number = len(seen)
            seen.add(hit.prompt)
            return FAULTS[number % len(FAULTS)] if len(seen) > number else plausible(hit)

    with FakeServer(script) as server:
        code, output = eval_towns(folder, server, n, "--timeout", timeout_s, "--workers", workers)
        hits = list(server.hits)
    records = record_rows(folder / "run")
    asked = Counter(str(row["qid"]) for row in records)
    billed = [hit for hit in hits if hit.outcome in ("ok", "filter")]
    calls = [call for row in records for call in row["ledger"]["calls"]]
    said = {  # by the ledger, and by the server
        "requests": (sum(call["attempts"] for call in calls), len(hits)),
        "answers": (sum(call["error"] is None for call in calls), len(billed)),
    }
    for name in ("prompt_tokens", "completion_tokens"):
        said[name] = (sum(c[name] for c in calls), sum(getattr(hit, name) for hit in billed))
    failed = [row["failure"] for row in records if row["failure"]]
    failures = Counter(f"{each['boundary']}/{each['error']}" for each in failed)
    prompts = Counter(hit.prompt for hit in hits if hit.outcome == "ok")
    bad = [f"{what} by ledger and server: {pair}" for what, pair in said.items()
           if pair[0] != pair[1]]  # fmt: skip
    bad += [f"{n - len(asked)} questions lost"] if len(asked) != n else []
    bad += [f"kept twice: {qid}" for qid, times in asked.items() if times > 1]
    bad += [f"asked again: {prompt[-80:]}" for prompt, times in prompts.items() if times > 1]
    bad += [name for name in failures if name.startswith("program")]
    bad += [output] if code != 0 else []
    return bad, Counter(hit.outcome for hit in hits if hit.outcome != "ok"), failures
