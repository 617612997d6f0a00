"""Tables for a terminal of 80 columns: one letter and one line for each program."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ragbench.cli.printing import show
from ragbench.experiments.compare.comparisons import compare_all
from ragbench.experiments.report.matrix import sweep_section
from ragbench.experiments.runs.summary import reopen
from tests.experiments.boards import program_run, sweep
from tests.experiments.scored_runs import answered, make_run

Command = Callable[..., tuple[int, str, str]]
SYSTEMS = (
    "dspy simplified baleen with three hops and a long retriever setting",
    "hipporag2 openie gpt4omini nv-embed-v2 top5 linking with recognition memory",
    "ircot flan paper setting with bm25 and six steps",
    "langgraph multi agent supervisor with query rewriting, final",
    "langgraph multi agent supervisor with query rewriting, final2",
    "haystack hybrid bm25 bge reranker large k10",
    "llamaindex subquestion engine",
    "vanilla bm25 k5 baseline",
    "graphrag global search community level 2",
)


@pytest.fixture
def terminal(command: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run `ragbench ARGS` on a terminal of 80 columns."""

    def run(*args: object) -> tuple[int, str, str]:
        monkeypatch.setenv("COLUMNS", "80")
        monkeypatch.setenv("TERM", "dumb")
        monkeypatch.setattr("sys.stdout.isatty", lambda: True)
        return command(*args)

    return run


@pytest.fixture
def nine(tmp_path: Path) -> list[Path]:
    """Runs of nine systems with long names and two LMs."""
    folders = []
    for number, name in enumerate(SYSTEMS):
        model = f"openai/{'large' if number % 2 else 'small'}"
        folder = tmp_path / "runs" / f"system{number}"
        folders.append(program_run(folder, "vanilla", label=name, model=model))
    return folders


def test_nine_systems_take_17_lines_of_80_columns_and_all_with_wide_and_names(
    nine: list[Path], terminal: Command
) -> None:
    for words in ("recommend", "show"):
        code, out, err = terminal(words, *nine)
        assert code == 0, err
        lines = out.splitlines()
        assert len(lines) <= 17, out
        assert max(map(len, lines)) <= 80, out
        for letter in "ABCDEFGHI":
            assert sum(line.startswith(f"{letter}  ") for line in lines) == 1, out
        assert "p (Holm)" not in out
        assert "openai/large" not in out
    whole = terminal("recommend", *nine, "--wide")[1]
    named = " ".join(terminal("show", *nine, "--names")[1].split())
    assert "p (Holm)" in whole
    assert "openai/large" in named
    for name in SYSTEMS:
        assert name in whole
        assert name.split()[0] in named
    code, out, err = terminal("compare", *nine[:2])
    assert code == 0, err
    lines = out.splitlines()
    assert len(lines) <= 13, out
    assert max(map(len, lines)) <= 80, out
    heads = [line.split()[0] for line in lines]
    assert [head for head in heads if head in ("EM", "F1", "calls", "tokens", "seconds")] == [
        "EM", "F1", "calls", "tokens", "seconds",
    ]  # fmt: skip


def test_a_sweep_of_24_cells_takes_20_lines_of_80_columns(
    tmp_path: Path, terminal: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep(tmp_path, n=40)
    runs = {path.name: reopen(path) for path in sorted((tmp_path / "cells").iterdir())}
    base = runs["vanilla-k=3-bm25"]
    contrasts = {}
    for label, run in runs.items():
        if run is not base:
            contrasts[label] = compare_all([base, run])[0].scores["f1"]
    terminal("--version")  # standard output is a terminal from here on
    show([sweep_section(runs, "f1", contrasts)])
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert len(runs) == 24
    assert len(lines) <= 20, text
    assert max(map(len, lines)) <= 80, text
    for name in ("vanilla", "ircot", "react", "lookahead"):
        assert sum(line.startswith(f"  {name} ") for line in lines) == 2
    assert text.count(" base\n") + text.count(" base ") == 1


def test_a_table_of_programs_that_guess_and_refuse_says_so(
    tmp_path: Path, terminal: Command, command: Command
) -> None:
    guesses = make_run(tmp_path / "a", [answered(f"q{n}", "Norway") for n in range(4)])
    answers = ["Norway", "", "I don't know", "Norway"]
    refuses = make_run(tmp_path / "b", [answered(f"q{n}", a) for n, a in enumerate(answers)])
    line = "b 2; the others guess if they do not know"
    assert line in command("show", guesses, refuses)[1]
    assert "refused" not in command("show", guesses, guesses)[1]
    assert "refused: B 2; the others guess" in terminal("show", guesses, refuses)[1]
