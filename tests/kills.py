"""Kills commands again and again with SIGKILL, and checks that nothing is lost or repeated.

Used by tests with a few kills and by `benchmarks/kill_all.py` with hundreds. The LM is a real HTTP
server on loopback whose reply is a function of the prompt; a command is the real command line in a
process of its own, forked from a server that has imported the package, so that a start is cheap.
"""

import json
import multiprocessing
import os
import random
import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import md5
from pathlib import Path
from typing import Any
from zlib import crc32

import yaml

from ragbench.experiments.store import RunFolder
from tests.fake_server import FakeServer, Fault, Hit, plausible
from tests.runs import compile_calls, record_rows

WORKERS = 2

#: Finished piece of work, such as a question of a cell -> what is on disk of it.
Finished = dict[str, str]


@dataclass(frozen=True)
class Job:
    """A command to kill: its arguments, what it has finished, and what it comes to in the end.

    `summary` is what must not depend on kills. `unit_of` says to which piece of work a request
    belongs, `twice` what was kept twice. Where `replays` is true of a request, its reply is kept,
    so that it is not to be seen twice unless it was under way at a kill.
    """

    argv: Sequence[str]
    finished: Callable[[], Finished]
    summary: Callable[[], str]
    unit_of: Callable[[Hit], str | None] = lambda hit: None
    twice: Callable[[], list[str]] = list
    replays: Callable[[Hit], bool] = lambda hit: False
    cache: Path | None = None  # its cache folder, if not that of all


@dataclass
class Damage:
    """What the kills did; `lost`, `repeated` and `overpaid` must stay empty or 0."""

    kills: int = 0  # that found the process alive
    lost: list[str] = field(default_factory=list)  # finished work that went away or changed
    repeated: list[str] = field(default_factory=list)  # finished work that was asked or kept twice
    overpaid: int = 0  # requests sent again although kept, and not under way at a kill
    finished: int = 0
    summary: str = ""


#: Makes a job in a folder, over about this many questions, that asks the server at this address.
Make = Callable[[Path, str, int], Job]


def kill_often(
    make: Make, folder: Path, *, kills: int, n: int, seed: int = 0, calls: int = 6
) -> tuple[Damage, Damage]:
    """What the command comes to when left alone, and then with `kills` kills, in the same folder.

    `n` is how many questions its data set has; a kill comes after up to `calls` new requests.
    """
    outcomes, log, before = [], folder / "log", folder.with_name("before")
    before.mkdir(parents=True)
    with FakeServer(script, latency_s=0.02) as server:  # one: its address is in folders' names
        if make is judge_job:  # it needs a finished run, and twice the same
            _run_with_kills(eval_job(before, server.url, n), server, before / "log", 0, seed, calls)
        for times in (0, kills):
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(before, folder)
            job = make(folder, server.url, n)
            outcomes.append(_run_with_kills(job, server, log, times, seed, calls))
    return outcomes[0], outcomes[1]


def _run_with_kills(
    job: Job, server: FakeServer, log: Path, kills: int, seed: int, calls: int
) -> Damage:
    """Start the command, kill it, and again; then let it end. One kill in eight is at its start."""
    rng, damage, first = random.Random(seed), Damage(), len(server.hits)
    ended = False
    while not ended:
        before, asked = job.finished(), len(server.hits)
        process = start(job.argv, log, job.cache)
        if damage.kills < kills:
            if rng.random() < 0.125:
                time.sleep(rng.uniform(0, 1.0))
            else:
                wanted, deadline = asked + rng.randint(1, calls), time.monotonic() + 120
                while len(server.hits) < wanted and process.is_alive():
                    assert time.monotonic() < deadline
                    time.sleep(0.002)
                time.sleep(rng.uniform(0, 0.06))
            damage.kills += process.is_alive()
            process.kill()
        process.join(300)
        ended = process.exitcode == 0
        assert ended or process.exitcode == -9, f"the command failed:\n{log.read_text()[-2000:]}"
        after, hits = job.finished(), server.hits[asked:]
        damage.lost += [unit for unit, kept in before.items() if after.get(unit) != kept]
        damage.repeated += sorted({*map(job.unit_of, hits)} & before.keys()) + job.twice()
    assert damage.kills == kills, f"the work was done after {damage.kills} of {kills} kills"
    sent = [json.dumps(h.body, sort_keys=True) for h in server.hits[first:] if job.replays(h)]
    damage.overpaid = max(0, len(sent) - len(set(sent)) - WORKERS * kills)
    damage.finished, damage.summary = len(after), job.summary()
    return damage


_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(["tests.warm"])


def start(argv: Sequence[str], log: Path, cache: Path | None = None) -> Any:
    """The command in a process of its own; what it prints goes to `log`."""
    # The server of forks has the environment of the test that started it.
    kept = {"OPENAI_API_KEY": "none", "RAGBENCH_CACHE": str(cache or log.parent / "cache")}
    process = _forks.Process(target=_command, args=(list(argv), str(log), kept), daemon=True)
    process.start()
    return process


def _command(argv: list[str], log: str, environment: dict[str, str]) -> None:
    from ragbench.cli.main import main

    with open(log, "ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ.update(environment)
    sys.argv = ["ragbench", *argv]
    main()


def write_questions(folder: Path, n: int) -> Path:
    """A data set of `n` questions of one passage each; two fifths are for training or for tests."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "questions.jsonl"
    rows = [
        {
            "id": f"q{i}",
            "question": f"Which town number {i} lies on river number {i}?",
            "answer": f"Town {i}",
            "context": [{"title": f"Town {i}", "text": f"Town {i} lies on river number {i}."}],
        }
        for i in range(n)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def script(hit: Hit) -> str | Fault:
    """Right or wrong by a hash of the prompt, so that every candidate scores differently.

    Texts to embed get vectors by their hash.
    """
    if "input" in hit.body:
        rows = [[byte - 127 for byte in md5(text.encode()).digest()] for text in hit.body["input"]]
        data = [{"index": i, "embedding": row} for i, row in enumerate(rows)]
        return Fault("body", json={"data": data, "usage": {"prompt_tokens": 4 * len(rows)}})
    asked = _town(hit)
    right = asked and crc32(hit.prompt.encode()) % 2
    reply = plausible(hit).replace("some answer", f"Town {asked}" if right else "elsewhere")
    return reply.replace("some verdict", "correct" if right else "incorrect")


def _town(hit: Hit) -> str | None:
    """The number in the question that is asked, which comes after those of demonstrations."""
    asked = re.findall(r"Which town number (\d+) lies", hit.prompt)
    return asked[-1] if asked else None


def _unit_of(hit: Hit) -> str | None:
    town = _town(hit)
    return None if town is None else f"{hit.body['model']}/q{town}"


def eval_job(folder: Path, url: str, n: int) -> Job:
    """`ragbench eval` over `n` questions, without a cache."""
    out = folder / "run"
    argv = [
        "eval", "--program", "vanilla", "--k", "1", "--out", str(out), "--no-cache",
        *_asking(folder, url, n), "--limit", "0",
    ]  # fmt: skip
    return _of_runs(argv, lambda: {"fake": out}, lambda: timeless(out / "summary.json"))


def sweep_job(folder: Path, url: str, n: int) -> Job:
    """`ragbench sweep` over two LMs without a cache, and one whose program is compiled first."""
    out, file = folder / "sweep", folder / "sweep.yaml"
    fields = {
        "program": "vanilla", "k": 1, "dataset": "jsonl", "api_base": url, "adapter": "chat",
        "data_file": str(write_questions(folder, n)), "limit": None, "workers": WORKERS,
        "cache": False, "train_limit": 20, "val_limit": 10,
        "matrix": {
            "lm": [
                {"lm": "openai/fake-c", "optimizer": "bootstrap", "cache": True},
                "openai/fake-a",
                "openai/fake-b",
            ]
        },
        "baseline": {"lm": "openai/fake-a"},
    }  # fmt: skip
    file.write_text(yaml.safe_dump(fields))

    def runs() -> dict[str, Path]:
        cards = [(at.parent, json.loads(at.read_text())) for at in out.glob("cells/*/card.json")]
        return {card["identity"]["lm"].partition("/")[2]: at for at, card in cards}

    def summary() -> str:
        whole = json.loads(timeless(out / "experiment.json"))
        for cell in whole["cells"]:
            if cell["program"]:
                # With the cache on, a reply that came just before a kill is billed to the question
                # of no record, and then comes from the cache: "billed in the records" lacks it.
                del cell["summary"]["billed"]
        return json.dumps(whole)

    argv = ["sweep", str(file), "--out", str(out)]
    job = _of_runs(argv, runs, summary)
    return replace(job, replays=lambda hit: hit.body["model"] == "fake-c")


def _of_runs(
    argv: Sequence[str], runs: Callable[[], dict[str, Path]], summary: Callable[[], str]
) -> Job:
    """A job whose finished work are the records in run folders, by the name of their LM."""

    def lines() -> list[tuple[str, dict[str, Any]]]:
        rows = [(lm, row) for lm, at in runs().items() for row in record_rows(at)]
        return [(f"{lm}/{row['qid']}", row) for lm, row in rows if row["failure"] is None]

    def finished() -> Finished:
        return {unit: json.dumps(row) for unit, row in lines()}

    return Job(argv, finished, summary, _unit_of, lambda: more_than_once(u for u, _ in lines()))


def more_than_once(units: Iterable[str]) -> list[str]:
    return [unit for unit, n in Counter(units).items() if n > 1]


def judge_job(folder: Path, url: str, n: int) -> Job:
    """`ragbench score --judge` over the run of an `eval_job` in the same folder, not cached."""
    run = folder / "run"
    argv = ["score", str(run), "--judge", "openai/judge", "--api-base", url, "--no-cache"]

    def replies() -> list[dict[str, Any]]:
        found = RunFolder(run).replies()
        return [row for row in found if "key" in row and not row["provider_failed"]]

    return Job(
        [*argv, "--workers", str(WORKERS)],
        lambda: {f"judge/{row['qid']}": json.dumps(row) for row in replies()},
        lambda: timeless(run / "scores.json"),
        _unit_of,
        lambda: more_than_once(row["key"] for row in replies()),
    )


def compile_job(folder: Path, url: str, n: int, *, optimizer: str) -> Job:
    """`ragbench compile` with a cache; its finished work are the lines of its journal of calls."""
    out = folder / "compiled"
    argv = [
        "compile", "--program", "vanilla", "--k", "1", "--optimizer", optimizer, "--out", str(out),
        *_asking(folder, url, n), "--train-limit", "0", "--val-limit", "0",
        "--opt-set", "rounds=2", "--opt-set", "bootstrapped=6", "--opt-set", "labeled=0",
    ]  # fmt: skip

    def journal() -> Finished:
        return {f"line {i}": line for i, line in enumerate(compile_calls(out))}

    def summary() -> str:
        sidecar = json.loads((out / "sidecar.json").read_text())
        return (out / "program.json").read_text() + json.dumps(sidecar["scores"])

    return Job(argv, journal, summary, replays=lambda hit: True)


def _asking(folder: Path, url: str, n: int) -> list[str]:
    data = str(write_questions(folder, n))
    return [
        "--dataset", "jsonl", "--data-file", data, "--api-base", url, "--adapter", "chat",
        "--workers", str(WORKERS), "--lm", "openai/fake",
    ]  # fmt: skip


def timeless(path: Path) -> str:
    """The JSON in `path` without what no two runs share: times."""

    def kept(found: dict[str, Any]) -> dict[str, Any]:
        return {name: each for name, each in found.items() if not name.startswith("latency")}

    return json.dumps(json.loads(path.read_text(), object_hook=kept), indent=1)
