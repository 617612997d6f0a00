"""One number has one unit and one sign of zero, in every table and format."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ragbench.experiments.report.table import Column, Table, on_terminal, with_interval, written
from ragbench.metrics import Interval
from tests.experiments.scored_runs import answered, make_run
from tests.metrics.records import call

Command = Callable[..., tuple[int, str, str]]
FORMATS = ("table", "json", "csv", "markdown", "latex", "html")
KINDS = ("score", "mean", "gain", "amount", "usd", "usd_1000", "seconds", "share", "number")


def run_of(folder: Path, calls: int, usd: float) -> Path:
    """A run of twelve questions, of which each takes `calls` calls of `usd` dollars."""
    records = []
    for number in range(12):
        made = [call(model="scripted/answerer", cost_usd=usd) for _ in range(calls)]
        ledger = {"calls": made, "path": {"calls": calls, "latency_s": 0.5}}
        record = answered(f"q{number}", "Norway", ledger=ledger, extra={"cluster": f"q{number}"})
        records.append(replace(record, latency_s=0.5 * calls + number % 2))
    return make_run(folder, records)


def test_compare_difference_equals_the_difference_of_means_in_every_column(
    tmp_path: Path, command: Command
) -> None:
    a = run_of(tmp_path / "a", 1, 0.0001556)
    b = run_of(tmp_path / "b", 3, 0.0001542)
    code, out, err = command("compare", a, b, "--format", "json")
    assert code == 0, err
    tables = {part["table"]: part["rows"] for part in json.loads(out)}
    rows = [row for row in (*tables["scores"], *tables["costs"]) if row["a"] is not None]
    assert {"$/1,000", "calls", "tokens", "latency s"} <= {row.get("measure") for row in rows}
    for row in rows:
        assert row["difference"] == pytest.approx(row["b"] - row["a"], abs=1e-12), row
    [dollars] = [row for row in tables["costs"] if row["measure"] == "$/1,000"]
    assert dollars["b"] == pytest.approx(3 * 0.1542)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("value", [-0.0, -1e-9])
def test_table_value_that_rounds_to_zero_has_no_sign(format: str, value: float) -> None:
    columns = [Column(kind, kind=kind, interval=True) for kind in KINDS]
    row: dict[str, float | None] = {}
    for kind in KINDS:
        row |= with_interval(kind, value, Interval(value, value))
    table = Table("zeros", columns, [row])
    text = written(table, format) + on_terminal(table, 300)
    if format in ("json", "csv") and value:
        assert str(value) in text  # unrounded
    for wrong in ("-0.0", "-0,", "-0 ", "-.0", "-0%", '"-0'):
        if value == 0.0 or format not in ("json", "csv"):
            assert wrong not in text.replace("-----", ""), text
