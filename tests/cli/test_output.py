"""Tables in every format and width, lists of runs, one question of a run."""

import io
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ragbench.cli.main import cli, main
from tests.experiments.towns import World

RUN = "runs/one"
SEARCHED = "--dataset jsonl --data-file questions.jsonl"
DATA = f"--program vanilla {SEARCHED} --adapter chat"


@pytest.fixture(scope="module", autouse=True)
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The working folder of all tests, with a finished run of 4 questions."""
    folder = tmp_path_factory.mktemp("output")
    with pytest.MonkeyPatch.context() as patch:
        World(folder, patch)
        patch.chdir(folder)
        invoke(f"eval {DATA} --limit 4 --out {RUN}")
        yield folder


def invoke(words: str) -> Result:
    result = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


def tables(words: str) -> dict[str, list[dict[str, Any]]]:
    """The rows of each table that a command writes as JSON."""
    shown = json.loads(invoke(f"{words} --format json").stdout)
    return {table["table"]: table["rows"] for table in shown}


def test_json_is_one_document_with_numbers() -> None:
    found = tables(f"show {RUN} {RUN} --by-group")
    assert len(found["runs"]) == 2
    row = found["runs"][0]
    assert [*row][:5] == ["program", "n", "em", "em_low", "em_high"]
    assert (row["program"], row["n"]) == ("vanilla, one", 4)  # one passage each
    assert row["em_low"] <= row["em"] <= row["em_high"]
    assert all(group["em"] is not None for group in found["groups"])
    assert {group["by"] for group in found["groups"]} >= {"kind of answer"}


def test_runs_lists_them_and_show_run_shows_a_question() -> None:
    rows = tables("list runs runs")["runs"]
    [row] = [row for row in rows if row["run"] == RUN]
    assert (row["program"], row["done"]) == ("vanilla", 4)
    [same] = tables(f"show {RUN}")["runs"]
    names = ("em", "em_low", "em_high", "f1_low", "f1_high", "cost_usd")
    assert [row[n] for n in names] == pytest.approx([same[n] for n in names], abs=1e-6)
    lines = [x for x in invoke(f"show run {RUN}").output.splitlines() if x.startswith("| q")]
    assert len(lines) == 1 + 4
    shutil.copytree(RUN, "killed/one")
    Path("killed/one/summary.json").unlink()
    [killed] = tables("list runs killed")["runs"]
    names = ("done", "em", "f1")
    assert [killed[n] for n in names] == pytest.approx([row[n] for n in names], abs=1e-6)
    shown = invoke(f"show run {RUN} {lines[1].split('|')[1].strip()}").output
    assert "question  Which town number" in shown
    assert " tokens, " in shown
    assert "search 1  Which town number" in shown
    assert "          found: " in shown
    missing = CliRunner().invoke(cli, ["show", "run", RUN, "q999"])
    assert "no question of" in str(missing.exception)


def test_lists_and_findings_are_tables_for_machines() -> None:
    def rows(words: str) -> list[dict[str, Any]]:
        return next(iter(tables(words).values()))

    assert {"name", "about"} == set(rows("list programs")[0])
    assert rows("list models")[0]["model"] == "qwen2.5-coder-0.5b"
    hits = rows(f"retrieve 'river number 7' {SEARCHED} --k 2")
    assert [hit["rank"] for hit in hits] == [1, 2]
    assert len(rows("list indexes")) >= 1
    [good] = rows(f"verify {RUN}")
    assert (good["path"], good["finding"]) == (RUN, "nothing is wrong")


@pytest.mark.parametrize(
    "words",
    [
        "show RUN --by-group", "show run RUN", "errors RUN", "compare RUN RUN", "recommend RUN RUN",
        "list programs", "list indexes", "show program react", f"retrieve river {SEARCHED}",
        "retrieve --size 100 --limit 3 --retriever bm25,distracting", "sweep sweep.yaml",
        "verdict DATA --limit 4 --optimizer labeled --train-limit 4 --val-limit 4",
    ],
)  # fmt: skip
def test_on_a_terminal_no_line_is_longer_and_no_word_is_broken(
    words: str, monkeypatch: pytest.MonkeyPatch, command: Any
) -> None:
    Path("sweep.yaml").write_text(
        "{program: vanilla, dataset: jsonl, data_file: questions.jsonl, limit: 2, adapter: chat, "
        "matrix: {k: [1, 2]}, baseline: {k: 1}}"
    )
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    words = words.replace("RUN", RUN).replace("DATA", DATA)
    code, out, err = command(*words.split())
    assert code == 0, err
    lines = re.sub(r"\x1b\[\d+m", "", out).splitlines()
    assert lines
    # A word that is longer than the terminal, as the folder in this model's name, stays whole.
    assert [line for line in lines if len(line) > 80 > len(max(line.split(), key=len)) + 20] == []


def test_nothing_is_drawn_on_a_dumb_terminal(monkeypatch: pytest.MonkeyPatch, command: Any) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b[1m" in command("list", "runs", "runs")[1]
    monkeypatch.setenv("TERM", "dumb")
    assert "\x1b" not in command("list", "runs", "runs")[1]


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "shift_jis", "utf-8"])
def test_what_a_terminal_cannot_encode_is_escaped(
    encoding: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passage = {"id": "p1", "title": "Zürich Bau", "text": "Jörg 東 baute in Łódź 🏗."}
    row = {"id": "q1", "question": "Wer?", "answer": "Jörg 東", "context": [passage]}
    (place / "letters.jsonl").write_text(json.dumps(row), "utf-8")
    words = ["retrieve", "Zürich", "--data-file", "letters.jsonl", "--setting", "pooled"]
    streams = {name: io.TextIOWrapper(io.BytesIO(), encoding) for name in ("stdout", "stderr")}
    for name, stream in streams.items():
        monkeypatch.setattr(f"sys.{name}", stream)
    monkeypatch.setattr("sys.argv", ["ragbench", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    streams["stdout"].flush()
    shown = streams["stdout"].buffer.getvalue().decode(encoding)
    assert (ended.value.code, "Bau" in shown) == (0, True)
    assert ("東" in shown) == (encoding in ("utf-8", "shift_jis"))
