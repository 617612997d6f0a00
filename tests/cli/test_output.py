"""Tables in every format and width, lists of runs, one question of a run."""

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ragbench.cli.main import cli
from ragbench.experiments.report.table import Column, Table, print_table
from tests.cli.test_mistakes import run as command
from tests.experiments.towns import World


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run of 4 questions."""
    world = World(tmp_path, monkeypatch)
    monkeypatch.chdir(tmp_path)
    given = ("--program", "vanilla", "--dataset", "jsonl", "--data-file", world.data, "--limit", 4)
    invoke("eval", *given, "--adapter", "chat", "--out", tmp_path / "runs" / "one")
    return tmp_path / "runs" / "one"


def invoke(*arguments: object) -> Result:
    result = CliRunner().invoke(cli, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


def test_json_is_one_document_with_numbers(run: Path) -> None:
    result = invoke("summarize", run, run, "--by-group", "--format", "json")
    tables = {table["table"]: table["rows"] for table in json.loads(result.stdout)}
    assert len(tables["runs"]) == 2
    row = tables["runs"][0]
    assert [*row][:5] == ["program", "n", "em", "em_low", "em_high"]
    assert (row["program"], row["n"]) == ("vanilla, one", 4)
    assert row["em_low"] <= row["em"] <= row["em_high"]
    assert all(group["em"] is not None for group in tables["groups"])
    assert {group["by"] for group in tables["groups"]} >= {"question type"}
    assert "per question, as if nothing" in result.stderr


def test_csv_markdown_latex_and_html_are_what_they_say(run: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(invoke("summarize", run, "--format", "csv").stdout)))
    assert rows[0]["n"] == "4"
    assert 0 <= float(rows[0]["em_low"]) <= float(rows[0]["em"]) <= 1
    markdown = invoke("summarize", run, "--format", "markdown").stdout.splitlines()
    assert markdown[0].startswith("| program |")
    assert set(markdown[1]) == {"|", "-"}
    latex = invoke("summarize", run, "--format", "latex").stdout
    assert latex.startswith("\\begin{tabular}{lrrr")
    assert "cost \\$" in latex
    html = invoke("summarize", run, "--format", "html").stdout
    assert re.findall(r"<th[^>]*>([^<]*)", html)[:4] == ["program", "n", "EM", "F1"]


def test_runs_lists_them_and_show_run_shows_a_question(run: Path) -> None:
    rows = json.loads(invoke("runs", "--format", "json").stdout)[0]["rows"]
    assert [(r["run"], r["program"], r["done"]) for r in rows] == [("runs/one", "vanilla", 4)]
    table = json.loads(invoke("summarize", run, "--format", "json").stdout)[0]["rows"]
    names = ("em", "em_low", "em_high", "f1_low", "f1_high", "cost_usd")
    for row, same in zip(rows, table, strict=True):
        assert [row[n] for n in names] == pytest.approx([same[n] for n in names], abs=1e-6)
    assert "nothing is wrong" in invoke("doctor", run).output
    questions = invoke("show", "run", run).output
    lines = [line for line in questions.splitlines() if line.startswith("| q")]
    assert len(lines) == 1 + 4
    one = lines[1].split("|")[1].strip()
    missing = CliRunner().invoke(cli, ["show", "run", str(run), "q999"])
    assert "no question of" in str(missing.exception)
    shown = invoke("show", "run", run, one).output
    assert "question  Which town number" in shown
    assert "calls" in shown
    assert " tokens, " in shown


WORDS = [
    "runs", "summarize RUN --by-group", "show run RUN", "score RUN", "errors RUN",
    "compare RUN RUN", "recommend RUN RUN", "doctor RUN", "list programs", "list metrics",
    "list configs", "show program react", "show protocol arag", "compiled shipped",
    "models list", "index list", "retrieve --size 100 --limit 3 --retriever bm25,distracting",
    "eval --dry-run --program vanilla --dataset jsonl --data-file questions.jsonl",
    "search river --dataset jsonl --data-file questions.jsonl",
    "sweep sweep.yaml",
    "tune DATA --limit 2 --trials 2 --only k --objective f1,tokens",
    "verdict DATA --limit 4 --optimizer labeled --train-limit 4 --val-limit 4",
]  # fmt: skip


@pytest.mark.parametrize("words", WORDS)
def test_on_a_terminal_no_line_is_longer_and_no_word_is_broken(
    words: str, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("sweep.yaml").write_text(
        "{program: vanilla, dataset: jsonl, data_file: questions.jsonl, limit: 2, adapter: chat, "
        "matrix: {k: [1, 2]}, baseline: {k: 1}}"
    )
    data = "--program vanilla --dataset jsonl --data-file questions.jsonl --adapter chat"
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    code, out, err = command(
        capsys, *words.replace("RUN", "runs/one").replace("DATA", data).split()
    )
    assert code == 0, err
    lines = re.sub(r"\x1b\[\d+m", "", out).splitlines()
    assert lines
    # A word that is longer than the terminal, as the folder in this model's name, stays whole.
    assert [line for line in lines if len(line) > 80 > len(max(line.split(), key=len)) + 20] == []


def test_json_of_compare_and_verdict_has_the_verdict_and_numbers(run: Path) -> None:
    def tables(*arguments: object) -> dict[str, Any]:
        shown = json.loads(invoke(*arguments, "--format", "json").stdout)
        return {table["table"]: table["rows"] for table in shown}

    [em, *_] = tables("compare", run, run)["scores"]
    assert em["verdict"].startswith("no difference shown")
    assert isinstance(em["a"], float)
    given = ("--program", "vanilla", "--dataset", "jsonl", "--data-file", "questions.jsonl")
    found = tables("verdict", *given, "--adapter", "chat", "--limit", 3, "--optimizer", "labeled",
                   "--train-limit", 4, "--val-limit", 4)  # fmt: skip
    assert [row["metric"] for row in found["conclusions"]] == ["em", "f1"]
    assert "this compiled program" in found["conclusions"][0]["conclusion"]
    assert found["contrasts"][0]["verdict"]
    assert found["arms"][0]["tokens"] != round(found["arms"][0]["tokens"])


def test_runs_of_one_program_are_told_apart_by_what_differs(run: Path) -> None:
    data = run.parents[1] / "questions.jsonl"
    given = ("--program", "vanilla", "--dataset", "jsonl", "--data-file", data, "--limit", 4)
    other = run.with_name("two")
    invoke(
        "eval", *given, "--adapter", "chat", "--k", 2, "--retriever", "distracting", "--out", other
    )
    table = json.loads(invoke("summarize", run, other, "--format", "json").stdout)[0]
    assert [row["program"] for row in table["rows"]] == [
        "vanilla, k=5, retriever=bm25",
        "vanilla, k=2, retriever=distracting",
    ]


def test_lists_and_findings_are_tables_for_machines(run: Path) -> None:
    def rows(*arguments: object) -> list[dict[str, object]]:
        result = CliRunner().invoke(cli, [*map(str, arguments), "--format", "json"])
        found: list[dict[str, object]] = json.loads(result.stdout)[0]["rows"]
        return found

    assert {"name", "about"} == set(rows("list", "programs")[0])
    assert rows("models", "list")[0]["model"] == "qwen2.5-coder-0.5b"
    assert rows("index", "list") == []
    assert len(rows("show", "run", run)) == 4
    data = run.parents[1] / "questions.jsonl"
    hits = rows("search", "river number 7", "--dataset", "jsonl", "--data-file", data, "--k", 2)
    assert [hit["rank"] for hit in hits] == [1, 2]
    assert len(rows("index", "list")) == 1
    [good] = rows("doctor", run)
    assert (good["folder"], good["finding"]) == (str(run), "nothing is wrong")


@pytest.mark.parametrize(
    ("usd", "shown"), [(0.0, "0.0000"), (0.00004, "0.000040"), (0.0123, "0.0123"), (250, "250.00")]
)
def test_a_small_cost_is_not_shown_as_none(
    usd: float, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_table(Table("t", [Column("cost", kind="usd")], [{"cost": usd}]))
    assert shown in capsys.readouterr().out
