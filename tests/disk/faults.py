"""Lets each call to a file fail, one after another, and checks that nothing is lost or wrong.

A command is run as often as it makes calls to files in its folder; in the n-th run the n-th call
fails (one read, write, rename, fsync, open, ... with EIO or EACCES; or the disk is full from the
n-th on). No run may end with a traceback, leave finished work out, or come to another result; the
same command given again must come to the result of one that was left alone. Used by a test with a
sample and by `benchmarks/storm.py` with all.
"""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fake_server import FakeServer
from tests.kills import Job, Make, script

ROOT = Path(__file__).resolve().parents[2]
#: Fault -> whether every later call that needs room fails as well, and the error.
KINDS = {
    "EIO": (0, errno.EIO),
    "EACCES": (0, errno.EACCES),
    "ENOSPC": (1, errno.ENOSPC),
}


@dataclass(frozen=True)
class Ended:
    """How a command ended: exit code, what it printed, its calls to files and which one failed."""

    code: int
    output: str
    calls: int
    failed: int
    what: str


#: A command counts as hung after so many seconds, and so many times what it took undisturbed: where
#: other work has the processor, seconds alone say nothing.
PATIENCE_S, PATIENCE = 300.0, 20
#: Its exit code then.
HUNG = 124


class Shim:
    """A process with the shim in it that runs commands; for a `with` block.

    Raises:
        CalledProcessError: the C compiler cannot make the shim.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        library, source = folder / "shim.so", Path(__file__).with_name("shim.c")
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True
        )
        self._folder, self.patience_s = folder, PATIENCE_S
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.disk.server"],
            cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": str(ROOT)},
        )  # fmt: skip

    def __enter__(self) -> Shim:
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()

    def run(
        self, argv: Iterable[str], root: Path, *, first: int = 0, kind: str = "EIO",
        copies: Path | None = None, cache: Path | None = None,
    ) -> Ended:  # fmt: skip
        """Run the command; its call number `first` to a file under `root` fails, if that is one.

        `cache` is its cache folder, if not one out of reach that all commands share.
        """
        log, (sticky, error) = self._folder / "output", KINDS[kind]
        job = {
            "argv": list(argv), "root": str(root), "first": first, "sticky": sticky, "error": error,
            "log": str(log), "copies": str(copies or ""), "patience_s": self.patience_s,
            "cache": str(cache or self._folder / "cache"),
        }  # fmt: skip
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps(job), file=self._process.stdin, flush=True)
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return Ended(output=log.read_text(errors="replace"), **found)


@dataclass
class Outcome:
    """What came of the faults of one command; `bad` must stay empty."""

    calls: int = 0
    faults: int = 0
    by_call: Counter[str] = field(default_factory=Counter)
    codes: Counter[int] = field(default_factory=Counter)
    bad: list[str] = field(default_factory=list)


def each_call(
    make: Make, folder: Path, shim: Shim, *, n: int = 5, step: int = 1, first: int = 1,
    most: int | None = None, prepare: Make | None = None, minutes: float = math.inf,
    kinds: Sequence[str] = tuple(KINDS),
) -> Outcome:  # fmt: skip
    """Let every call of the command from `first` on fail, or every `step`-th, by turns of `kinds`.

    `most` is how many of them. `step` grows to what can be done in about so many minutes; the calls
    are spread evenly.
    """
    outcome, work = Outcome(), folder / "work"
    with FakeServer(script) as server:
        work.mkdir(parents=True)
        if prepare:
            earlier = prepare(work, server.url, n)
            ended = shim.run(earlier.argv, work, cache=earlier.cache)
            assert ended.code == 0, ended.output
        job = make(work, server.url, n)
        before = folder / "before"
        shutil.copytree(work, before)
        shim.run(
            job.argv, work, cache=job.cache
        )  # fills the cache, which is out of reach of the faults
        shutil.rmtree(work)
        shutil.copytree(before, work)
        start = time.monotonic()
        quiet = shim.run(job.argv, work, cache=job.cache)
        assert quiet.code == 0, quiet.output
        outcome.calls, wanted = quiet.calls, job.summary()
        took_s = time.monotonic() - start
        shim.patience_s = max(PATIENCE_S, PATIENCE * took_s)
        step = max(step, math.ceil(quiet.calls * 2 * took_s / 60 / minutes))
        for number, call in enumerate(range(first, quiet.calls + 1, step)[:most]):
            shutil.rmtree(work)
            shutil.copytree(before, work)
            _one(job, work, shim, call, kinds[number % len(kinds)], wanted, outcome)
    return outcome


def _one(
    job: Job, work: Path, shim: Shim, first: int, kind: str, wanted: str, outcome: Outcome
) -> None:
    ended = shim.run(job.argv, work, first=first, kind=kind, cache=job.cache)
    outcome.faults += ended.failed > 0
    outcome.by_call[ended.what] += 1
    outcome.codes[ended.code] += 1
    where = f"call {first} ({ended.what}, {kind}), exit {ended.code}"

    def wrong(what: str, shown: str = "") -> None:
        outcome.bad.append(f"{where}: {what} {shown}")

    if "Traceback" in ended.output or ended.code not in (0, 1, 2, 3):
        what = "hung" if ended.code == HUNG else "traceback or crash"
        wrong(f"{what}:", ended.output[-1500:])
    if ended.code == 0 and _result(job) != wanted:
        wrong("another result")
    kept = job.finished()
    again = shim.run(job.argv, work, cache=job.cache)
    if again.code != 0:
        wrong("does not continue:", again.output[-1500:])
        return
    after = job.finished()
    if lost := [unit for unit, line in kept.items() if after.get(unit) != line]:
        wrong("lost", str(lost[:3]))
    if twice := job.twice():
        wrong("twice", str(twice[:3]))
    if _result(job) != wanted:
        wrong("another result when it was given again")


def _result(job: Job) -> str:
    try:
        return job.summary()
    except (OSError, ValueError) as error:
        return f"none: {error}"
