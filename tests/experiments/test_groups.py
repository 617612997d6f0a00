"""Breakdowns of the tables that `eval` and `summarize` print: on request, by the same groups."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_mistakes import run as command
from tests.experiments.scored_runs import answered, make_run
from tests.experiments.test_treatments import FULL_CARD, failing
from tests.metrics.records import call


def dear(qid: str, answer: str, **fields: Any) -> dict[str, Any]:
    """A question that took three calls."""
    ledger = {"calls": [call()] * 3, "path": {"calls": 3, "latency_s": 1.5}}
    return answered(qid, answer, **{"ledger": ledger, "latency_s": 6.0, **fields})


def folder(path: Path) -> Path:
    """Two bridge questions, one right and one failed, and a comparison that was right and dear."""
    return make_run(
        path,
        [
            answered("q1", "Norway"),
            replace(failing("q2"), hops=3),
            dear("q3", "yes", answers=["yes"], qtype="comparison"),
        ],
        **FULL_CARD,
    )


def table_after(out: str, line: str) -> list[dict[str, str]]:
    """The rows of the table that stands under `line`, by the names of its columns."""
    lines = out.split(f"\n{line}\n")[1].splitlines()
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in lines if row[0] == "|"]
    ends = next(i for i, row in enumerate(lines) if row[0] != "|")
    return [dict(zip(rows[0], row, strict=True)) for row in rows[2:ends]]


def test_every_column_of_the_table_is_broken_down(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = folder(tmp_path / "run")
    before = json.loads((run / "card.json").read_text())
    code, out, _ = command(capsys, "summarize", str(run), "--by-group")
    assert code == 0
    rows = {
        (row["by"], row["group"]): row for row in table_after(out, "results by group of questions")
    }
    assert [name for name, _ in rows] == ["question type"] * 2 + ["hops"] * 2 + [
        "kind of answer"
    ] * 2
    bridge, comparison = rows["question type", "bridge"], rows["question type", "comparison"]
    assert (bridge["n"], bridge["failed"], bridge["EM"]) == ("2", "1", "0.500 [0.000, 1.000]")
    assert (comparison["n"], comparison["EM"], comparison["calls"]) == ("1", "1.000", "3.0")
    assert (comparison["path"], comparison["p50 s"]) == ("3.0", "6.0")
    assert rows["hops", "3"]["EM"] == "0.000"  # the failed one has the worst
    assert rows["kind of answer", "yes_no"]["n"] == "1"
    assert json.loads((run / "card.json").read_text()) == before


def test_rows_of_several_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = folder(tmp_path / "a"), folder(tmp_path / "b")
    code, out, _ = command(capsys, "summarize", str(a), str(b), "--by-group")
    assert code == 0
    rows = table_after(out, "results by group of questions")
    assert [row["run"] for row in rows if row["by"] == "hops"] == ["a", "a", "b", "b"]
