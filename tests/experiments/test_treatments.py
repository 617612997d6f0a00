"""Failed questions: scored 0, asked again, billed each time, and told."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ragbench.experiments.report.tables import print_runs
from ragbench.experiments.runs import Evaluation, reopen
from ragbench.record import CriticalPath, Ledger, Record
from tests.experiments.scored_runs import CARD, answered, make_run
from tests.metrics.records import call, failure

FULL_CARD: dict[str, Any] = {
    "identity": {**CARD["identity"], "retriever": "bm25"},
    "adapter": "LenientJSON",
}


def failing(qid: str, error: str = "LMServerError", boundary: str = "provider") -> Record:
    ledger = Ledger([call(), call(error=error)], CriticalPath(2, 0.5))
    return replace(failure(error, boundary), qid=qid, ledger=ledger)


def run(folder: Path, records: list[Record]) -> Evaluation:
    return reopen(make_run(folder, records, **FULL_CARD))


def five() -> list[Record]:
    """q1 right at once; q2 wrong at once; q3 and q4 fail, q3 is right when asked again."""
    return [
        answered("q1", "Norway"),
        failing("q3"),
        answered("q2", "Sweden"),
        failing("q4", "LMTimeoutError"),
        answered("q3", "Norway"),
    ]


def test_the_last_record_of_a_question_counts(tmp_path: Path) -> None:
    summary = run(tmp_path / "run", five()).summary
    assert (summary.n, summary.failed, summary.scores["em"]) == (4, 1, 0.5)  # q1 and q3 of four
    assert summary.errors == {"provider/LMTimeoutError": 1}
    assert summary.failures == {"provider": 1}


def test_billed_holds_the_calls_of_tries_that_were_repeated(tmp_path: Path) -> None:
    whole = run(tmp_path / "a", five()).summary
    last = run(tmp_path / "b", five()[2:] + five()[:1]).summary
    assert whole.as_if == last.as_if
    assert whole.billed.calls == last.billed.calls + 2
    mixed = [five()[1], five()[3], *five()[::2]]
    assert run(tmp_path / "c", mixed).summary == whole


def test_tables_tell_of_questions_that_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    print_runs([run(tmp_path / "run", five())])
    out = capsys.readouterr().out
    assert "including 1 failed attempts that were repeated" in out
    assert "| provider  | LMTimeoutError | 1 | q4          | no reply |" in out


def test_escape_sequences_of_a_message_do_not_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = failing("q\x1b[2Jx", "Lm\x1b[31mError")
    bad = replace(bad, failure=replace(bad.failure, message="\x1b]0;title\x07 [bold]"))
    print_runs([run(tmp_path / "run", [bad])])
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "[bold]" in out
