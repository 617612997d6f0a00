"""Ctrl-C prints what is there so far, whatever the command: a real SIGINT to a real process.

The server on loopback answers some requests and then none, so that the command is interrupted in
the middle of its work, and not at the end of a time.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fake_server import FakeServer, Fault, Hit
from tests.kills import judge_job, script, start, timeless, write_questions
from tests.retrievers.wire import serving
from tests.runs import record_rows

N = 12
LM = "openai/fake"


class Held:
    """Answers as `tests.kills` does until `hold` of a request is true, and then not at all."""

    def __init__(self) -> None:
        self.hold: Callable[[Hit], bool] = lambda hit: False
        self.reached = threading.Event()

    def __call__(self, hit: Hit) -> str | Fault:
        if self.hold(hit):
            self.reached.set()
            return Fault("hang", seconds=600)
        return script(hit)

    def after(self, n: int, model: str = "") -> None:
        """Hold every request to `model`, or to any, from the one after `n` further ones on."""
        left = [n]

        def hold(hit: Hit) -> bool:
            left[0] -= hit.body["model"].endswith(model)
            return left[0] < 0

        self.hold = hold


class Place:
    """A folder, a server and a finished run of `N` questions in it."""

    def __init__(self, folder: Path, server: FakeServer, held: Held) -> None:
        self.folder, self.server, self.held = folder, server, held
        self.data = ["--dataset", "jsonl", "--data-file", str(write_questions(folder, N))]
        self.lm = ["--api-base", server.url, "--workers", "1", "--no-cache"]
        self.run = folder / "whole"
        self.common = ["--program", "vanilla", "--k", "1", "--adapter", "chat", *self.data]
        self.end(self.start("eval", *self.common, "--lm", LM, *self.lm, "--out", str(self.run)))

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
        return printed

    def interrupted(self, *argv: str, when: Callable[[], bool] = lambda: True) -> str:
        """What the command prints that gets a SIGINT while the server answers it nothing."""
        self.held.reached.clear()
        process, log = started = self.start(*argv)
        deadline = time.monotonic() + 120
        while not (self.held.reached.is_set() and when()) and process.is_alive():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert process.is_alive(), log.read_text()
        os.kill(process.pid, signal.SIGINT)
        printed = self.end(started, 130)
        assert "Traceback" not in printed
        assert printed.count("stopped; finished work is kept") == 1
        return printed

    def records(self, out: Path, n: int) -> Callable[[], bool]:
        """Whether `n` records have been written under `out`."""
        return lambda: sum(len(record_rows(p.parent)) for p in out.rglob("run.db")) >= n


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    held = Held()
    with FakeServer(held) as server:
        yield Place(tmp_path_factory.mktemp("so-far"), server, held)


def cells(printed: str, first: str) -> list[str]:
    """The cells of the first row of a table that begins with `first`."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in printed.splitlines()]
    return next(row for row in rows if row and row[0] == first)


def test_eval(place: Place) -> None:
    out = place.folder / "run"
    place.held.after(3)
    argv = ["eval", *place.common, "--lm", LM, *place.lm, "--out", str(out)]
    printed = place.interrupted(*argv, when=place.records(out, 3))
    assert cells(printed, "vanilla")[1] == "3"


def test_sweep(place: Place) -> None:
    out, file = place.folder / "sweep", place.folder / "sweep.yaml"
    fields = {
        "program": "vanilla", "k": 1, "adapter": "chat", "dataset": "jsonl", "workers": 1,
        "data_file": place.data[-1], "api_base": place.server.url, "cache": False, "limit": 4,
        "matrix": {"lm": ["openai/fake-a", "openai/fake-b"]},
    }  # fmt: skip
    file.write_text(yaml.safe_dump(fields))
    place.held.after(2, "fake-b")
    printed = place.interrupted("sweep", str(file), "--out", str(out), when=place.records(out, 6))
    assert "fake-a" in printed
    assert "fake-b" in printed
    counts = [line.split("|")[2:4] for line in printed.splitlines() if line.startswith("| vanilla")]
    assert len(counts) == 2


def test_tune(place: Place) -> None:
    place.held.after(7)
    out = place.folder / "tuned"
    printed = place.interrupted(
        "tune", *place.common[:2], *place.common[4:], "--lm", LM, *place.lm, "--limit", "2",
        "--trials", "8", "--only", "k", "--objective", "f1,tokens", "--out", str(out),
        when=place.records(out, 2),
    )  # fmt: skip
    assert "| vanilla" in printed


def test_verdict(place: Place) -> None:
    out = place.folder / "verdict"
    place.held.after(6)
    printed = place.interrupted(
        "verdict", *place.common, "--lm", LM, *place.lm, "--limit", "3", "--optimizer", "labeled",
        "--train-limit", "2", "--val-limit", "2", "--out", str(out), when=place.records(out, 3),
    )  # fmt: skip
    assert "| vanilla" in printed


def test_compile(place: Place) -> None:
    out = place.folder / "compiled"
    argv = [
        "compile", *place.common, "--lm", LM, *place.lm, "--optimizer", "bootstrap",
        "--train-limit", "4", "--val-limit", "2", "--out", str(out),
    ]  # fmt: skip
    place.held.after(3)
    assert "zero-shot on validation: " in place.interrupted(*argv)


def test_score(place: Place) -> None:
    argv = judge_job(place.folder, place.server.url, N).argv[2:]
    place.held.after(5)
    score = ["score", str(place.run), *argv, "--workers", "1"]
    printed = place.interrupted(*score)
    assert cells(printed, "judge")[2] == "5"
    assert "7 not asked" in printed
    place.held.after(10**6)
    asked = len(place.server.hits)
    printed = place.end(place.start(*score))
    assert len(place.server.hits) - asked == N - 5  # what was kept is not asked again
    assert "(n " not in cells(printed, "judge")[1]
    assert timeless(place.run / "scores.json").count('"not_asked": 0') == 1


def test_errors(place: Place) -> None:
    place.held.after(1)
    printed = place.interrupted(
        "errors", str(place.run), "--judge", "openai/explains", "--api-base", place.server.url,
        "--no-cache", "--workers", "1",
    )  # fmt: skip
    assert cells(printed, "questions")[1] == str(N)
    assert "by openai/explains" in printed


@pytest.mark.parametrize("searched", [0, 5])
def test_retrieve(place: Place, searched: int) -> None:
    over, left = threading.Event(), [searched]

    def answer(path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if len(body["input"]) == 1:  # a query; the first is not of a question
            left[0] -= 1
        if left[0] < (-1 if searched else 1):
            place.held.reached.set()
            over.wait(600)
        rows = [{"index": i, "embedding": [1.0, i + 1.0]} for i in range(len(body["input"]))]
        return 200, {"data": rows, "model": "m", "usage": {"prompt_tokens": 7, "total_tokens": 7}}

    with serving(answer) as wire:
        dense = f"dense(embedder=openai/m-{searched},api_base={wire.address})"
        try:
            printed = place.interrupted(
                "retrieve", "--limit", "9", "--retriever", f"bm25,{dense}", "--k", "1,2"
            )
        finally:
            over.set()
    assert 0 < float(cells(printed, "bm25")[1]) < 1
    assert ("dense" in printed) == bool(searched)
    assert (f", first {searched}" in printed) == bool(searched)
    assert "rankings and index cards" not in printed  # nothing was kept
