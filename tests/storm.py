"""A run against a server that goes wrong in every way, and the count of what came of it.

Used by a test with a few questions and by `benchmarks/faults.py` with many. The LM is a real HTTP
server on loopback that keeps a log; the run is the real command.
"""

import os
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from traceback import format_exception

from click.testing import CliRunner

from ragbench.cli.main import cli
from tests.fake_server import FakeServer, Fault, Hit, Script, plausible
from tests.kills import write_questions
from tests.runs import record_rows

#: Every way to go wrong that a run must live through, and how often, in parts. Those that cost a
#: whole time limit or many megabytes are rare.
FAULTS: tuple[tuple[Fault, int], ...] = (
    (Fault("429"), 8),
    (Fault("429", retry_after=0.5), 8),
    (Fault("500"), 8),
    (Fault("503"), 8),
    (Fault("503", retry_after=1), 4),
    (Fault("reset"), 8),
    (Fault("reset_body"), 8),
    (Fault("truncated"), 8),
    (Fault("html"), 4),
    (Fault("empty"), 4),
    (Fault("wrong"), 4),
    (Fault("body", json={"choices": [{"message": {"content": 7}}], "usage": []}), 4),
    (Fault("body", json={"choices": []}), 4),
    (Fault("non_utf8"), 8),
    (Fault("filter"), 4),
    (Fault("filter_400"), 4),
    (Fault("huge"), 1),
    (Fault("drip"), 1),
    (Fault("hang", seconds=600), 1),
)


@dataclass
class Outcome:
    """What came of a run; `bad` must be empty."""

    answered: int = 0
    calls: int = 0  # requests that reached the server
    faulty: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    bad: list[str] = field(default_factory=list)  # what must not have happened


def random_faults(rate: float, seed: int) -> Script:
    """`plausible`, but each request goes wrong with probability `rate`."""
    chance, lock = random.Random(seed), threading.Lock()
    faults, parts = zip(*FAULTS, strict=True)

    def script(hit: Hit) -> str | Fault:
        with lock:
            wrong = chance.random() < rate
            return chance.choices(faults, parts)[0] if wrong else plausible(hit)

    return script


def each_fault_in_turn() -> Script:
    """The first call of each question goes wrong, in the order of `FAULTS`; others do not."""
    seen: set[str] = set()
    lock = threading.Lock()

    def script(hit: Hit) -> str | Fault:
        with lock:
            number = len(seen)
            seen.add(hit.prompt)
            return FAULTS[number % len(FAULTS)][0] if len(seen) > number else plausible(hit)

    return script


#: Runs the command with these arguments; gives its exit code and all that it wrote.
Run = Callable[[list[str]], tuple[int, str]]


def in_this_process(arguments: list[str]) -> tuple[int, str]:
    """Exit code and output of `ragbench` with these arguments."""
    result = CliRunner().invoke(cli, arguments)
    shown = "".join(format_exception(result.exception)) if result.exception else ""
    return result.exit_code, result.output + shown


def in_another_process(arguments: list[str]) -> tuple[int, str]:
    """The same, started as a command of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "ragbench", *arguments],
        env={**os.environ, "OPENAI_API_KEY": "none"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


def weather(
    folder: Path, script: Script, run: Run, *, n: int, program: str, timeout_s: float, workers: int
) -> Outcome:
    """Ask `n` questions of a server with `script`, once, and compare records with its log."""
    out = folder / "run"
    questions = write_questions(folder, 3 * n)  # two fifths of them are the test split
    with FakeServer(script) as server:
        code, output = run([
            "eval", "--program", program, "--no-cache", "--dataset", "jsonl",
            "--data-file", str(questions), "--limit", str(n), "--lm", "openai/fake",
            "--api-base", server.url, "--timeout", str(timeout_s), "--workers", str(workers),
            "--out", str(out),
        ])  # fmt: skip
        outcome = _compare(out, server.hits, n)
    if code != 0 or "Traceback" in output:
        outcome.bad.append(output)
    return outcome


def _compare(out: Path, hits: list[Hit], n: int) -> Outcome:
    records = record_rows(out)
    asked = Counter(str(row["qid"]) for row in records)
    billed = [hit for hit in hits if hit.outcome in ("ok", "filter")]
    calls = [call for row in records for call in row["ledger"]["calls"]]
    said = {  # by the ledger, and by the server
        "requests": (sum(call["attempts"] for call in calls), len(hits)),
        "answers": (sum(call["error"] is None for call in calls), len(billed)),
    }
    for name in ("prompt_tokens", "completion_tokens"):
        said[name] = (sum(c[name] for c in calls), sum(getattr(hit, name) for hit in billed))
    failures = Counter(
        f"{row['failure']['boundary']}/{row['failure']['error']}"
        for row in records
        if row["failure"]
    )
    prompts = Counter(hit.prompt for hit in hits if hit.outcome == "ok")
    bad = [f"ledger and server say of {what}: {pair}" for what, pair in said.items()
           if pair[0] != pair[1]]  # fmt: skip
    bad += [f"{n - len(asked)} questions lost"] if len(asked) != n else []
    bad += [f"kept twice: {qid}" for qid, times in asked.items() if times > 1]
    bad += [f"asked again: {prompt[-80:]}" for prompt, times in prompts.items() if times > 1]
    bad += [name for name in failures if name.startswith("program")]
    faulty = Counter(hit.outcome for hit in hits if hit.outcome != "ok")
    return Outcome(len(records) - failures.total(), len(hits), faulty, failures, bad)
