"""What a long command says while it works."""

import io
from types import SimpleNamespace as Namespace

import pytest
from rich.console import Console

from ragbench.cli import progress as module
from ragbench.cli.progress import RunProgress
from ragbench.record import Totals
from tests.experiments.scored_runs import answered


def test_without_a_terminal_there_is_a_line_every_30_s_and_one_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    with RunProgress() as progress:
        progress.start("vanilla", todo=40, done=2)
        for n in range(40):
            now[0] += 2.0
            scores = {"em": float(n % 2), "f1": 0.5}
            progress.update(answered(f"q{n}", "Norway", scores=scores), n + 1, 40)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "vanilla: 40 questions to ask (2 finished before)",
        "answering 15/40, 0:50 left  30.0/min  $0.0150  EM 0.467  F1 0.500",
        "answering 30/40, 0:20 left  30.0/min  $0.0300  EM 0.500  F1 0.500",
        "answering 40/40  30.0/min  $0.0400  EM 0.500  F1 0.500",
    ]


def test_in_a_file_an_index_says_its_rate_and_its_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    out, now = io.StringIO(), [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    progress = RunProgress("facts", Console(file=out, width=80))
    for second, done in ((10, 5), (40, 20), (50, 25), (75, 50)):
        now[0] = second
        ledger = Namespace(billed=Totals(calls=2 * done, attempts=2 * done, cost_usd=0.01 * done))
        monkeypatch.setattr("ragbench.ledger.current_ledger", lambda ledger=ledger: ledger)
        progress.prepare(done, 100)
    assert out.getvalue().splitlines() == [
        "facts 20/100, 2:40 left  30.0/min  $0.2000",
        "facts 50/100, 1:12 left  41.5/min  $0.5000",
    ]


def test_on_a_terminal_a_finished_bar_is_printed_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    with RunProgress() as progress:
        progress.start("vanilla", todo=2, done=0)
        for n in range(2):
            progress.update(answered(f"q{n}", "Norway"), n + 1, 2)
    last = capsys.readouterr().err.rpartition("\x1b[2K")[2]
    assert last.count("answering") == 1
    assert "2/2" in last
