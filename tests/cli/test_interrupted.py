"""Ctrl-C ends any command soon, prints what is there so far, and loses nothing.

A real SIGINT to a real process. The server on loopback answers some requests and then none, so that
the command is interrupted in the middle of its work, and not at the end of a time.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ragbench.experiments.store import read_records
from tests.fake_server import FakeServer, Fault, Hit
from tests.kills import script, start, write_questions
from tests.runs import record_rows

N = 12


class Held:
    """Answers the next `left` requests by `otherwise`, and then none."""

    def __init__(self) -> None:
        self.left, self.otherwise = 10**6, script
        self.reached = threading.Event()

    def __call__(self, hit: Hit) -> Any:
        self.left -= 1
        if self.left >= 0:
            return self.otherwise(hit)
        self.reached.set()
        return Fault("hang", seconds=600)


class Place:
    """A folder with `N` questions, and a server."""

    def __init__(self, folder: Path, server: FakeServer, held: Held) -> None:
        self.folder, self.server, self.held = folder, server, held
        self.common = [
            "--program", "vanilla", "--dataset", "jsonl", "--data-file",
            str(write_questions(folder, N)), "--lm", "openai/fake", "--api-base", server.url,
            "--workers", "1", "--no-cache",
        ]  # fmt: skip
        self.eval = ["eval", *self.common, "--k", "1", "--adapter", "chat"]

    def start(self, *argv: str) -> tuple[Any, Path]:
        log = self.folder / f"log-{time.monotonic_ns()}"
        log.touch()
        return start(argv, log), log

    def end(self, started: tuple[Any, Path], code: int = 0) -> str:
        """What the command printed until it ended."""
        process, log = started
        process.join(120)
        printed = log.read_text()
        assert process.exitcode == code, printed
        assert "Traceback" not in printed
        return printed

    def interrupted(self, *argv: str, when: Callable[[], bool], times: int = 1) -> str:
        """What the command prints that gets a SIGINT as soon as `when` is true."""
        self.held.reached.clear()
        process, log = started = self.start(*argv)
        deadline = time.monotonic() + 120
        while not when() and process.is_alive():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert process.is_alive(), log.read_text()
        for _ in range(times):
            os.kill(process.pid, signal.SIGINT)
        printed = self.end(started, 130)
        assert times > 1 or printed.count("stopped; finished work is saved") == 1
        return printed

    def held_with(self, n: int, out: Path) -> bool:
        """Whether a request is held and `n` records have been written under `out`."""
        written = sum(len(record_rows(path.parent)) for path in out.rglob("run.db"))
        return self.held.reached.is_set() and written >= n


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    held = Held()
    with FakeServer(held) as server:
        yield Place(tmp_path_factory.mktemp("so-far"), server, held)


def test_eval_keeps_what_is_finished_and_the_same_command_continues(place: Place) -> None:
    out = place.folder / "run"
    place.held.left = 3
    argv = [*place.eval, "--limit", "0", "--out", str(out)]
    printed = place.interrupted(*argv, when=lambda: place.held_with(3, out))
    assert "the same command continues" in printed
    kept = read_records(out)
    assert (len(kept.finished), kept.damaged) == (3, ())
    assert all(record.failure is None for record in kept.values())
    assert '"event": "interrupted"' in (out / "log.jsonl").read_text()
    place.held.left = 10**6
    asked = len(place.server.hits)
    place.end(place.start(*argv))
    prompts = "\n".join(hit.prompt for hit in place.server.hits[asked:])
    assert not [q for q in kept.finished if f"town number {q[1:]} lies" in prompts]
    loaded = read_records(out)
    assert (len(loaded.finished), loaded.damaged) == (N, ())


@pytest.mark.parametrize(("fault", "times"), [("429", 1), ("hang", 2)])
def test_it_ends_whatever_the_server_does(
    fault: str, times: int, tmp_path: Path, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the stop each of these would go on for a minute or more."""
    monkeypatch.setattr(place.held, "left", 10**6)
    monkeypatch.setattr(place.held, "otherwise", lambda hit: Fault(fault, seconds=60))
    asked, out = len(place.server.hits), tmp_path / "run"
    argv = [*place.eval, "--workers", "2", "--out", str(out)]
    place.interrupted(*argv, when=lambda: len(place.server.hits) > asked + 1, times=times)
    assert not out.exists() or read_records(out).damaged == ()


SMALL = "--train-limit 4 --val-limit 2"


@pytest.mark.parametrize(
    ("words", "answered", "records"),  # before the server falls silent
    [
        ("tune --limit 2 --trials 8 --only k --objective f1,tokens", 7, 2),
        (f"compile --k 1 --optimizer bootstrap {SMALL}", 3, 0),
    ],
)
def test_others_end_in_one_line_too(
    words: str, answered: int, records: int, tmp_path: Path, place: Place
) -> None:
    place.held.left, out = answered, tmp_path / "out"
    argv = [*words.split(), *place.common, "--adapter", "chat", "--out", str(out)]
    place.interrupted(*argv, when=lambda: place.held_with(records, out))


@pytest.mark.parametrize(
    ("words", "code", "both"),
    [
        ("list nothing", 2, False),
        ("eval", 0, True),
    ],
)
def test_a_reader_that_leaves_changes_nothing_of_what_a_command_does(
    words: str, code: int, both: bool, tmp_path: Path, place: Place
) -> None:
    place.held.left = 10**6
    argv = words.split()
    out = tmp_path / "run"
    if words == "eval":
        argv = [*place.eval, "--limit", "3", "--out", str(out)]
    errors = subprocess.STDOUT if both else subprocess.PIPE
    command = [sys.executable, "-m", "ragbench", *argv]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process:
        process.stdout.close()
        printed = "" if both else process.stderr.read()
    assert process.returncode == code
    assert "Traceback" not in printed
    assert "Broken" not in printed
    assert both or bool(printed) == (words == "list nothing")
    if words == "eval":
        assert len(read_records(out).finished) == 3


def test_unbuffered_output_comes_at_once() -> None:
    code = (
        "import sys; from ragbench.cli.main import _print_whatever_happens as start; "
        "start(); print('searching'); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:  # fmt: skip
        assert process.stdout.readline() == "searching\n"  # while it waits for its input
        process.stdin.close()
    assert process.returncode == 0
