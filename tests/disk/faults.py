"""Lets each call to a file fail, one after another, and checks that nothing is lost or wrong.

A command is run as often as it makes calls to files in its folder; in the n-th run the n-th call
fails (one read, write, rename, fsync, open, ... with EIO or EACCES; or the disk is full from the
n-th on). No run may end with a traceback, leave finished work out, or come to another result; the
same command given again must come to the result of one that was left alone. And it loses power.
Used by a test with a sample and by `benchmarks/storm.py` with all.
"""

from __future__ import annotations

import ctypes
import errno
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fake_server import FakeServer
from tests.kills import Job, Make, script

ROOT = Path(__file__).resolve().parents[2]
#: Fault -> whether every later call that needs room fails as well, and the error.
KINDS = {"EIO": (0, errno.EIO), "EACCES": (0, errno.EACCES), "ENOSPC": (1, errno.ENOSPC)}


@dataclass(frozen=True)
class Ended:
    """How a command ended: exit code, what it printed, its calls to files and which one failed."""

    code: int
    output: str
    calls: int
    failed: int
    what: str


class Shim:
    """A process with the shim in it that runs commands; for a `with` block. Needs a C compiler."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        library, source = folder / "shim.so", Path(__file__).with_name("shim.c")
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True
        )
        self._folder = folder
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.disk.faults"],
            cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": str(ROOT)},
        )  # fmt: skip

    def __enter__(self) -> Shim:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.communicate(timeout=30)

    def run(
        self, job: Job, root: Path, *, first: int = 0, kind: str = "EIO", copies: Path | None = None
    ) -> Ended:
        """Run the command; its call number `first` to a file under `root` fails, if that is one."""
        log, (sticky, error) = self._folder / "output", KINDS[kind]
        told = {
            "argv": list(job.argv), "log": str(log), "cache": str(job.cache or self._folder / "c"),
            "arm": [str(root), first, sticky, error, str(copies or "")],
        }  # fmt: skip
        print(json.dumps(told), file=self._process.stdin, flush=True)
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return Ended(output=log.read_text(errors="replace"), **found)

    def prepare(self, make: Make, before: Make | None, work: Path, url: str, n: int) -> Job:
        """The job in the folder `work`, after the one that must have run before it."""
        work.mkdir(parents=True)
        if before:
            ended = self.run(before(work, url, n), work)
            assert ended.code == 0, ended.output
        return make(work, url, n)


@dataclass
class Outcome:
    """What came of the faults of one command; `bad` must stay empty."""

    faults: Counter[str] = field(default_factory=Counter)  # by the call that failed
    bad: list[str] = field(default_factory=list)


def each_call(
    make: Make, folder: Path, shim: Shim, *, n: int = 5, step: int = 1, first: int = 1,
    most: int | None = None, prepare: Make | None = None, kinds: Sequence[str] = tuple(KINDS),
) -> Outcome:  # fmt: skip
    """Let at most `most` calls fail, each `step`-th from `first` on, by turns of `kinds`."""
    outcome, work, before = Outcome(), folder / "work", folder / "before"
    with FakeServer(script) as server:
        job = shim.prepare(make, prepare, work, server.url, n)
        shutil.copytree(work, before)
        for _ in range(2):  # the first fills the cache, which is out of reach of the faults
            shutil.rmtree(work)
            shutil.copytree(before, work)
            quiet = shim.run(job, work)
        assert quiet.code == 0, quiet.output
        wanted = job.summary()
        for number, call in enumerate(range(first, quiet.calls + 1, step)[:most]):
            shutil.rmtree(work)
            shutil.copytree(before, work)
            _one(job, work, shim, call, kinds[number % len(kinds)], wanted, outcome)
    return outcome


def _one(
    job: Job, work: Path, shim: Shim, first: int, kind: str, wanted: str, outcome: Outcome
) -> None:
    ended = shim.run(job, work, first=first, kind=kind)
    if ended.failed:
        outcome.faults[ended.what] += 1
    wrong = []
    if "Traceback" in ended.output or ended.code not in (0, 1, 2, 3):
        wrong.append(f"traceback or crash: {ended.output[-1500:]}")
    if ended.code == 0 and _result(job) != wanted:
        wrong.append("another result")
    kept = job.finished()
    again = shim.run(job, work)
    if again.code != 0:
        wrong.append(f"does not continue: {again.output[-1500:]}")
    elif _result(job) != wanted:
        wrong.append("another result when it was given again")
    after = job.finished()
    wrong += [f"lost {unit}" for unit, line in kept.items() if after.get(unit) != line]
    wrong += [f"twice {unit}" for unit in job.twice()]
    where = f"call {first} ({ended.what}, {kind}), exit {ended.code}"
    outcome.bad += [f"{where}: {what}" for what in wrong]


def _result(job: Job) -> str:
    try:
        return job.summary()
    except (OSError, ValueError) as error:
        return f"none: {error}"


def lost_with_power(
    make: Make, folder: Path, shim: Shim, *, n: int, prepare: Make | None = None
) -> list[str]:
    """What finished work, or result, a command that came to its end would lose with the power.

    The command must also go on from what is left, and come to the same result.
    """
    work, copies, before = folder / "work", folder / "copies", folder / "before"
    copies.mkdir(parents=True)
    with FakeServer(script) as server:
        job = shim.prepare(make, prepare, work, server.url, n)
        shutil.copytree(work, before)
        ended = shim.run(job, work, copies=copies)
        assert ended.code == 0, ended.output
        finished, wanted = job.finished(), job.summary()
        shutil.rmtree(work)
        shutil.copytree(before, work)
        _lose_power(work, copies)
        kept = job.finished()
        lost = [unit for unit, line in finished.items() if kept.get(unit) != line]
        lost += [] if _result(job) == wanted else ["the result"]
        again = shim.run(job, work)
        if again.code != 0 or _result(job) != wanted:
            lost.append(f"does not continue: {again.output[-1000:]}")
    return lost


def _lose_power(work: Path, copies: Path) -> None:
    """Bring `work`, as it was before the command, to what a loss of power after it leaves.

    That is what was fsynced, under names that were fsynced: a name is durable once its folder was
    fsynced after it was made, a file has the content of its last fsync (one that never was has
    none). Real file systems keep more. The shim copied a file at each fsync of it into `copies` and
    logged there what happened to names.
    """
    before = work.with_name("as-it-was")
    shutil.copytree(work, before)
    #: Path -> inode, or a path for what the log knows no inode of; and inode -> its content.
    seen: dict[Path, Any] = {path: path for path in work.rglob("*")}
    durable = dict(seen)
    folders = {path for path in seen if path.is_dir()}
    content = {path: before / path.relative_to(work) for path in seen if path.is_file()}
    for line in (copies / "journal").read_text().splitlines():
        kind, name, other, inode = line.split("\t")
        path = Path(name)
        if kind in ("create", "mkdir"):
            seen[path] = int(inode) or path
            folders |= {path} if kind == "mkdir" else set()
        elif kind == "file":
            content[seen.get(path, int(inode))] = copies / other
        elif kind == "unlink":
            seen.pop(path, None)
        elif kind == "rename" and path in seen:
            new = Path(other)
            seen[new] = seen.pop(path)
            seen = {_moved(p, path, new): at for p, at in seen.items()}
            durable = {_moved(p, path, new): at for p, at in durable.items()}
            folders = {new if p == path else _moved(p, path, new) for p in folders}
        elif kind == "folder":
            durable = {p: at for p, at in durable.items() if p.parent != path}
            durable |= {p: at for p, at in seen.items() if p.parent == path}
    shutil.rmtree(work)
    work.mkdir()
    for path, inode in sorted(durable.items()):
        if path in folders and path.parent.is_dir():
            path.mkdir()
        elif path.parent.is_dir():
            shutil.copyfile(content[inode], path) if inode in content else path.touch()


def _moved(path: Path, old: Path, new: Path) -> Path:
    """Where `path` is once the folder `old` is called `new`."""
    return new / path.relative_to(old) if old in path.parents else path


# -- The process with the shim in it: a command as a line of JSON, and what came of it as another.


class _Page(ctypes.Structure):
    """What the shim counts; as in shim.c."""

    _fields_ = (
        ("calls", ctypes.c_long), ("failed", ctypes.c_long), ("copies", ctypes.c_long),
        ("what", ctypes.c_char * 64),
    )  # fmt: skip


def _run(argv: list[str], log: str, cache: str, arm: list[Any]) -> None:
    """The command, in the fork; does not return."""
    from ragbench.cli.main import main

    signal.alarm(590)  # one that hangs
    with open(log, "wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ.update(OPENAI_API_KEY="none", RAGBENCH_CACHE=cache)
    sys.argv = ["ragbench", *argv]
    root, first, sticky, error, copies = arm
    ctypes.CDLL(None).shim_arm(
        os.fsencode(root), ctypes.c_long(first), sticky, error, os.fsencode(copies)
    )
    code = 0
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 70
    sys.stdout.flush()
    os._exit(code)


def _serve() -> None:
    """Run commands in forks until standard input ends."""
    # Of a run that makes a tree of summaries, nine tenths of the time went into imports.
    for name in ("tests.warm", "igraph", "optuna", "sklearn.mixture", "ragbench.cli.searching"):
        importlib.import_module(name)
    library = ctypes.CDLL(None)
    library.shim_page.restype = ctypes.POINTER(_Page)
    page = library.shim_page().contents
    for line in sys.stdin:
        told = json.loads(line)
        pid = os.fork()
        if not pid:
            _run(**told)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        found = {"code": code, "calls": page.calls, "failed": page.failed}
        print(json.dumps({**found, "what": page.what.decode()}), flush=True)


if __name__ == "__main__":
    _serve()
