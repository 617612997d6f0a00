"""Tables in every format, lists of runs, one question of a run, and what commands import."""

import csv
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from ragbench.cli.main import cli
from ragbench.experiments.config import load_config, make_config
from tests.cli.test_mistakes import run as command
from tests.experiments.towns import World

COLUMNS = ["program", "n", "EM", "F1"]


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
    parser = Cells()
    parser.feed(invoke("summarize", run, "--format", "html").stdout)
    assert parser.found[:4] == COLUMNS


class Cells(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_data(self, data: str) -> None:
        self.found += [data] if data.strip() else []


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
    shown = invoke("show", "run", run, one).output
    assert "question  Which town number" in shown
    assert "calls" in shown
    assert " tokens, " in shown


@pytest.mark.parametrize("words", ["runs", "summarize RUN --by-group", "show run RUN", "score RUN"])
def test_on_a_terminal_no_line_is_longer_and_no_word_is_broken(
    words: str, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    code, out, _ = command(capsys, *words.replace("RUN", "runs/one").split())
    assert code == 0
    lines = re.sub(r"\x1b\[\d+m", "", out).splitlines()
    assert lines
    # One word that is longer than the terminal, as the folder in this model's name, stays whole.
    assert [line for line in lines if len(line) > 80 and len(line.split()) > 1] == []


def test_show_run_names_what_is_missing(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = command(capsys, "show", "run", str(run), "q999")
    assert code == 2
    assert "no question of" in err
    code, _, err = command(capsys, "show", "run", "nowhere")
    assert (code, "not a run folder" in err) == (2, True)


@pytest.mark.parametrize("args", ["--help", "runs ."])
def test_help_and_runs_import_no_heavy_package(args: str, tmp_path: Path) -> None:
    code = (
        f"import sys; sys.argv = ['ragbench', *{args.split()!r}]\n"
        "from ragbench.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'dspy', 'numpy', 'pydantic', 'rich'} & set(sys.modules)\n"
        "print(heavy or 'light', file=sys.stderr)\n"
    )
    env = {**os.environ, "RAGBENCH_CACHE": str(tmp_path)}
    outputs = [
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, env=env)
        for _ in range(2)
    ]
    assert outputs[0].stdout == outputs[1].stdout
    assert outputs[1].stderr.decode().strip() == "light"


def test_show_config_can_be_pasted_back(run: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(invoke("show", "config", "ircot_full").output)
    mine = make_config({}, base=load_config(tmp_path / "mine.yaml"))
    assert mine == make_config({}, base=load_config("ircot_full"))


def test_runs_of_one_program_are_told_apart_by_what_differs(run: Path) -> None:
    data = run.parents[1] / "questions.jsonl"
    given = ("--program", "vanilla", "--dataset", "jsonl", "--data-file", data, "--limit", 4)
    other = run.with_name("two")
    invoke(
        "eval", *given, "--adapter", "chat", "--k", 2, "--retriever", "rank_bm25", "--out", other
    )
    table = json.loads(invoke("summarize", run, other, "--format", "json").stdout)[0]
    assert [row["program"] for row in table["rows"]] == [
        "vanilla, k=5, retriever=bm25",
        "vanilla, k=2, retriever=rank_bm25",
    ]


def test_every_command_that_reports_has_a_format_and_every_help_an_example() -> None:
    texts = {"ask", "compile", "demo", "export", "index build", "index drop"}  # no table
    texts |= {"index info", "models path", "models pull", "models serve", "report", "view"}
    without, bare = set(), set()
    for name, leaf in leaves(cli, ""):
        if not any(param.name == "format" for param in leaf.params):
            without.add(name)
        if "Examples:" not in leaf.get_help(click.Context(leaf)):
            bare.add(name)
    assert (without, bare) == (texts, set())


def leaves(group: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    if not isinstance(group, click.Group):
        yield name, group
        return
    for each in group.list_commands(context):
        found = group.get_command(context, each)
        assert found is not None
        yield from leaves(found, f"{name} {each}".strip())


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


def test_a_shell_completes_commands_options_and_choices() -> None:
    def completed(words: str, place: int) -> list[str]:
        code = "import sys; sys.argv = ['ragbench']; from ragbench.cli.main import main; main()"
        env = {**os.environ, "_RAGBENCH_COMPLETE": "bash_complete"}
        env |= {"COMP_WORDS": words, "COMP_CWORD": str(place)}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
        return [line.partition(",")[2] for line in done.stdout.splitlines()]

    assert "summarize" in completed("ragbench su", 1)
    assert completed("ragbench export --to p", 3) == ["parquet"]
