"""One description of columns, and what each format makes of it."""

import csv
import io
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import ragbench as rb
from ragbench.cli.printing import flush, print_table, set_output
from ragbench.experiments.report.table import (
    FORMATS,
    Column,
    Table,
    on_terminal,
    with_interval,
    written,
)
from tests.experiments.scored_runs import CARD, answered, make_run

COLUMNS = (
    Column("program"),
    Column("n", kind="count", drop=1),
    Column("em", "EM", "score", interval=True),
    Column("cost_usd", "cost $", "usd", drop=2),
    Column("retriever", drop=3),
)


def row(program: str, em: float | None = 0.123456789, **more: Any) -> dict[str, Any]:
    interval = (0.1, 0.2)
    return {"program": program, "n": 1234, **with_interval("em", em, interval), "cost_usd": None,
            "retriever": "bm25", **more}  # fmt: skip


TABLE = Table("runs", COLUMNS, [row("vanilla"), row("ircot, k=5, max_hops=4")])


def test_people_read_rounded_values_with_low_and_high() -> None:
    assert TABLE.cells()[0] == ["vanilla", "1,234", "0.123 [0.100,\xa00.200]", "unknown", "bm25"]
    assert "| 0.123 [0.100, 0.200] |" in written(TABLE, "markdown")
    assert Column("x", kind="gain").cell({"x": 0.05}) == "+0.050"
    assert Column("x", kind="score").cell({"x": None}) == "-"
    assert Column("x", most=8).cell({"x": "a long text"}) == "a lon..."


def test_machines_read_what_was_computed() -> None:
    found = json.loads(written(TABLE, "json"))[0]
    assert found == {"program": "vanilla", "n": 1234, "em": 0.123456789, "em_low": 0.1,
                     "em_high": 0.2, "cost_usd": None, "retriever": "bm25"}  # fmt: skip
    [first, _] = csv.DictReader(io.StringIO(written(TABLE, "csv")))
    assert (first["em"], first["em_low"], first["cost_usd"]) == ("0.123456789", "0.1", "")


@pytest.mark.parametrize("room", [40, 60, 80, 100, 130])
def test_a_terminal_breaks_no_word(room: int) -> None:
    lines = on_terminal(TABLE, room).replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()
    assert max(map(len, lines)) <= room
    words = {word.strip("|") for line in lines for word in line.split()}
    assert {"ircot,", "k=5,", "max_hops=4"} <= words
    assert "[.10,.20]" in words or {"[0.100,", "0.200]"} <= words


def test_what_differs_is_the_last_to_go() -> None:
    columns = (Column("run"), Column("program", drop=9), Column("data", drop=1))
    rows = [{"run": f"runs/{n}", "program": name, "data": "hotpotqa" * 5}
            for n, name in enumerate(("vanilla", "ircot"))]  # fmt: skip
    lines = on_terminal(Table("runs", columns, rows), 40).splitlines()
    assert "vanilla" in lines[1]
    assert " ".join(lines[3:]).startswith("omitted to fit the width: data (--wide")


@pytest.mark.parametrize("format", FORMATS)
def test_hostile_text_breaks_no_format(format: str, capsys: pytest.CaptureFixture[str]) -> None:
    cell = '</td><script>"|,\\&%$#_{}~^'
    set_output("format", format)
    try:
        print_table(Table("x", [Column("name")], [{"name": cell}]))
    finally:
        flush()
    out = capsys.readouterr().out
    if format == "json":
        assert json.loads(out)[0] == {"table": "x", "rows": [{"name": cell}]}
    elif format == "csv":
        assert [*csv.reader(io.StringIO(out))][1] == [cell]
    elif format == "html":
        parser = HTMLParser()
        parser.feed(out)
        assert "<script>" not in out
    elif format == "latex":
        assert "\\&\\%\\$\\#\\_\\{\\}" in out
    else:
        assert r'"\|,' in out


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=1+1", "'=1+1"), ("+1", "'+1"), ("-x", "'-x"), ("@cmd", "'@cmd"), ("\t=1", "'\t=1"),
        ("a\r=1\x1b[2J", "a\n=1 [2J"),
    ],
)  # fmt: skip
def test_no_cell_of_csv_is_a_formula_or_begins_a_row(text: str, cell: str) -> None:
    table = Table("x", [Column("name"), Column("d", kind="gain")], [{"name": text, "d": -0.5}])
    assert [*csv.reader(io.StringIO(written(table, "csv"), newline=""))][1:] == [[cell, "-0.5"]]


def test_python_gets_the_table_that_the_command_line_prints(runs: list[Path], command: Any) -> None:
    table = rb.table(*runs)
    assert str(table) in command("show", *runs)[1]
    assert "<table>" in table._repr_html_()
    rows = json.loads(command("show", *runs, "--format", "json")[1])[0]["rows"]
    frame = table.to_pandas()
    assert list(frame["em"]) == [row["em"] for row in rows]
    assert list(frame["program"]) == [row["program"] for row in rows]


def test_what_only_machines_get_is_in_no_table_for_people(runs: list[Path], command: Any) -> None:
    said, rows = (command("compare", *runs[:2], *more)[1] for more in ((), ("--format", "json")))
    assert "n_needed" not in said
    assert "n_needed" in json.loads(rows)[0]["rows"][0]


def test_on_a_narrow_terminal_intervals_are_short_and_n_failed_and_score_stay() -> None:
    columns = [
        Column("program"),
        Column("n", kind="count"),
        Column("f1", kind="score", interval=True),
        Column("gain", kind="gain", interval=True, drop=1),
        Column("p", kind="p", drop=2),
    ]
    row = {"program": "ircot compiled", "n": 100, "p": 0.0001,
           **with_interval("f1", 0.7164, (0.6012, 0.8)),
           **with_interval("gain", -0.077, (-0.174, 0.024))}  # fmt: skip
    wide, narrow, least = (on_terminal(Table("x", columns, [row]), room) for room in (0, 66, 40))
    assert "0.716 [0.601, 0.800]" in wide
    assert "<0.001" in wide
    assert ".716 [.60,.80]  -.077 [-.17,+.02]" in narrow
    assert "omitted to fit the width: p, gain" in least
    assert "100  .716 [.60,.80]" in least


def test_a_papers_table_pools_seeds_and_is_latex_with_its_n(tmp_path: Path, command: Any) -> None:
    answers = {"a": ["Norway", "Chad"], "b": ["Norway", "Norway"]}
    for name, given in answers.items():
        records = [answered(f"q{n}", answer) for n, answer in enumerate(given)]
        make_run(tmp_path / name, records)
    other = {**CARD["data"], "name": "musique"}
    make_run(tmp_path / "c", [answered("q0", "Chad"), answered("q1", "Chad")], data=other)
    asked = ("show", tmp_path / "a", tmp_path / "b", tmp_path / "c", "--rows", "program",
             "--cols", "dataset", "--metric", "em", "--format")  # fmt: skip
    [table] = json.loads(command(*asked, "json")[1])
    [row] = table["rows"]
    assert (row["program"], row["hotpotqa em"], row["musique em"]) == ("vanilla", 0.75, 0.0)
    latex = command(*asked, "latex")[1]
    for words in ("\\caption{Means with 95 \\% intervals over 2 questions, up to 2 runs pooled",
                  "\\toprule", "\\bottomrule", "vanilla & 0.750"):  # fmt: skip
        assert words in latex
    [table] = json.loads(command(*asked, "json", "--protocol", "hotpotqa")[1])
    [row] = table["rows"]
    assert (row["hotpotqa em in hotpotqa"], row["musique f1 in hotpotqa"]) == (0.75, 0.0)
    assert "hotpotqa joint_em in hotpotqa" not in row, "no question has it"
    out = command("compare", tmp_path / "a", tmp_path / "b", "--format", "csv")[1]
    metrics = [line.partition(",")[0] for line in out.splitlines()]
    assert metrics == ["metric", "em", "gold_in_context", "f1"], "the first table alone"
    both = (tmp_path / "a", tmp_path / "b", "--format", "csv")
    assert command("compare", *both, "--table", "costs")[1].startswith("measure,a,b,difference")
    problem = command("compare", tmp_path / "a", tmp_path / "b", "--table", "cost")[2]
    assert "no table of this command named 'cost'; did you mean costs" in problem
    code, _, problem = command("show", tmp_path / "a", "--rows", "program")
    assert code == 2
    assert "needs both --rows and --cols" in problem
