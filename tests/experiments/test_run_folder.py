"""A run is opened once for everything that a command reads of it."""

import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ragbench.cli.printing import show
from ragbench.experiments.compare.comparisons import compare_all
from ragbench.experiments.export import export_runs
from ragbench.experiments.recommend import advise
from ragbench.experiments.report.choice import advice_report
from ragbench.experiments.report.comparison import comparison_report
from ragbench.experiments.report.page import make_board
from ragbench.experiments.report.page.html import page_of
from ragbench.experiments.report.scores import errors_of
from ragbench.experiments.report.tables import runs_report
from ragbench.experiments.report.trace import run_report
from ragbench.experiments.runs.summary import reopen
from ragbench.experiments.score.scoring import ScoreRequest, score_run
from ragbench.experiments.store import RunFolder, records
from tests.experiments.scored_runs import answered, make_run, study
from tests.metrics.records import call

#: Questions of a run, and records that stay parsed in these tests.
QUESTIONS = 40
KEPT = 7


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """Two runs over the same questions."""
    return study(tmp_path, questions=QUESTIONS)[:2]


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What is done from now on: databases opened, cards and facts read, records parsed."""
    counts = Counter[str]()
    connect, parse = sqlite3.connect, records.parse_record

    def counted(statement: str) -> None:
        counts["cards"] += "name = 'card'" in statement
        counts["facts"] += "FROM facts" in statement

    def opened(*args: Any, **options: Any) -> sqlite3.Connection:
        counts["databases"] += 1
        database = connect(*args, **options)
        database.set_trace_callback(counted)
        return database

    def parsed(line: str | bytes) -> Any:
        counts["records"] += 1
        return parse(line)

    monkeypatch.setattr(sqlite3, "connect", opened)
    monkeypatch.setattr(records, "parse_record", parsed)
    monkeypatch.setattr(records, "_PARSED", KEPT)
    return counts


def compared(runs: Sequence[Path]) -> None:
    show(comparison_report(compare_all([reopen(run) for run in runs], metrics=["em", "recall@5"])))


@pytest.mark.parametrize(
    ("command", "runs"),
    [
        (compared, 2),
        (lambda runs: errors_of(runs[0]), 1),
        (lambda runs: export_runs(runs, "csv", runs[0] / "table.csv", ["recall"]), 2),
    ],
    ids=["compare", "errors", "export"],
)
def test_a_command_opens_a_run_once_and_parses_each_record_once(
    command: Callable[[Sequence[Path]], object], runs: int, folders: list[Path], work: Counter[str]
) -> None:
    command(folders)
    assert (work["databases"], work["cards"]) == (runs, runs)
    assert work["records"] == runs * QUESTIONS


@pytest.mark.parametrize(
    ("command", "runs"),
    [
        (lambda runs: reopen(runs[0]).stored(), 1),
        (lambda runs: show(advice_report(advise(list(map(reopen, runs))))), 2),
        (lambda runs: show(runs_report(list(map(reopen, runs)), by_group=True)), 2),
        (lambda runs: show(comparison_report(compare_all(list(map(reopen, runs))))), 2),
        (lambda runs: show(run_report(runs[0])), 1),
        (lambda runs: page_of(make_board(runs)), 2),
    ],
    ids=["summary", "advice", "groups", "compare", "show", "page"],
)
def test_a_command_of_means_parses_no_record_and_reads_facts_once(
    command: Callable[[Sequence[Path]], object], runs: int, folders: list[Path], work: Counter[str]
) -> None:
    command(folders)
    assert work == {"databases": runs, "cards": runs, "facts": runs}


def test_scoring_opens_a_run_once_to_read_and_once_to_write(
    folders: list[Path], work: Counter[str]
) -> None:
    score_run(folders[0], ScoreRequest())
    assert work["databases"] == 2
    assert work["records"] == QUESTIONS


def test_totals_are_kept_not_calls(folders: list[Path], work: Counter[str]) -> None:
    run = RunFolder(folders[0])
    evaluation = reopen(folders[0])
    assert evaluation.summary.as_if.calls == QUESTIONS
    assert sum(len(record.ledger.calls) for record in run.records.values()) == QUESTIONS


def test_the_price_of_a_run_is_that_of_its_own_model_alone(tmp_path: Path, command: Any) -> None:
    models = ("scripted/answerer", "scripted/helper")
    folders = []
    for used in (models[:1], models):
        calls = [call(model=model, cost_usd=None) for model in used]
        ledger = {"calls": calls, "path": {"calls": 1, "latency_s": 0.5}}
        rows = [answered("q1", "Norway", ledger=ledger)]
        folders.append(make_run(tmp_path / str(len(used)), rows, price="in=10,out=100"))
    totals = [reopen(folder).summary.as_if.cost_usd for folder in folders]
    assert totals == [pytest.approx(0.002), None]
    said = [command("show", folder)[1] for folder in folders]
    assert "110 tokens, 0.0020 $" in said[0]
    assert "220 tokens, unknown $" in said[1]
