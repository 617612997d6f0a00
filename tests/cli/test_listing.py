"""`list`, `show` and `--help` work for everything there is."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from ragbench.cli.answering import eval_command
from ragbench.cli.listing import NAMED
from ragbench.cli.main import COMMANDS, REMOVED, cli
from ragbench.experiments.config import RunConfig
from ragbench.programs import PROGRAMS

Command = Callable[..., tuple[int, str, str]]


def leaves(group: click.Command, name: str = "") -> dict[str, click.Command]:
    """Every command there is, by name."""
    context = click.Context(group)
    if not isinstance(group, click.Group):
        return {name: group}
    found = {each: group.get_command(context, each) for each in group.list_commands(context)}
    inner = (leaves(leaf, f"{name} {each}".strip()) for each, leaf in found.items() if leaf)
    return {key: leaf for part in inner for key, leaf in part.items()}


def test_every_command_has_examples_and_a_format_where_it_prints_a_table() -> None:
    texts = {"ask", "compile", "export", "fetch", "questions", "report"}  # no table
    without = {
        n for n, leaf in leaves(cli).items() if "format" not in {p.name for p in leaf.params}
    }
    assert without == texts
    for leaf in leaves(cli).values():
        assert "Examples:" in leaf.get_help(click.Context(leaf))


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_has_at_most_90_lines(command: Any, name: str) -> None:
    code, out, _ = command(name, "--help")
    assert (code, len(out.splitlines()) <= 90) == (0, True)


@pytest.mark.parametrize("name", REMOVED)
def test_a_removed_command_names_its_replacement(command: Any, name: str) -> None:
    code, out, err = command(name, "runs/a", "--format", "csv")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert f"ragbench {name} was removed; use {REMOVED[name]}" in err


@pytest.mark.parametrize("kind", NAMED)
def test_list_has_one_line_each(command: Any, kind: str) -> None:
    lines = command("list", kind)[1].splitlines()
    assert len(lines) >= 2
    descriptions = [line.split("  ", 1)[1].strip() for line in lines]
    assert kind == "configs" or len({*descriptions}) == len(lines)
    if kind == "programs":
        marks = {line.split()[0]: line.partition("autonomy ")[2] for line in lines}
        assert marks["a_rag"].startswith("yes/yes/yes)")
        assert marks["ma_rag"].startswith("partly/yes/partly)")


@pytest.mark.parametrize("name", PROGRAMS.names())
def test_show_program_tells_knobs_variants_roles(command: Any, name: str) -> None:
    out, program = command("show", "program", name)[1], PROGRAMS.get(name)
    told = ["LM calls per question", "role ", *program.Knobs.model_fields]
    told += [f"variant {variant}" for variant in program.variants]
    assert [each for each in told if each not in out] == []


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        ("program lookahead", ["role plan: draft (DraftPlanGraph)", "role extract: bind ("]),
        ("retriever bm25", ["settings (--retriever-set NAME=VALUE)", "  k1 "]),
        ("optimizer mipro", ["needs: trainset, prompt_lm, teacher", "formula: ", "  trials "]),
        ("config paper_arag", ["matrix:"]),
    ],
)
def test_show(words: str, lines: list[str], command: Any) -> None:
    out = command("show", *words.split())[1]
    assert [line for line in lines if line not in out] == []


def test_the_docs_list_every_program_with_its_variants() -> None:
    text = (Path(__file__).parents[2] / "docs/programs.md").read_text("utf-8")
    table = text.partition("| program |")[2].partition("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip(" `") for cell in row.split("|")] for row in table]
    documented = {name: variants or "default" for _, name, _, variants, *_ in cells}
    assert documented == {name: ", ".join(program.variants) for name, program in PROGRAMS}


@pytest.mark.parametrize("args", ["--help", "list runs .", "list programs"])
def test_lists_and_help_import_no_heavy_package(
    args: str, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path))
    command(*args.split())  # The list is stored.
    code = (
        f"import sys; sys.argv = ['ragbench', *{args.split()!r}]\n"
        "from ragbench.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'dspy', 'numpy', 'litellm', 'rich'} & set(sys.modules)\n"
        "print(heavy or 'light', file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stderr.strip() == "light"


def test_help_of_eval_shows_what_people_use_and_help_all_the_rest(command: Any) -> None:
    _, short, _ = command("eval", "--help")
    _, long, _ = command("eval", "--help-all")
    flags = [set(re.findall(r"^  (--[a-z-]+)", text, re.MULTILINE)) for text in (short, long)]
    assert flags[0] < flags[1]
    assert {"--program", "--limit", "--max-cost", "--help-all"} <= flags[0]
    assert 20 <= len(flags[0]) <= 25
    assert {"--engine", "--hub-config"} <= flags[1] - flags[0]
    assert set(RunConfig.model_fields) <= {param.name for param in eval_command.params}
    titles = [line[:-1] for line in long.splitlines() if line.endswith(":") and line[0] != " "]
    assert titles[:3] == ["Program", "Data", "Retrieval"]
    text = " ".join(long.split())
    assert "--lm, --model SPEC" in text
    assert "--split [train|validation|test|all]" in text
    assert "--temperature NUMBER|none Sampling temperature; none to send none." in text
    tokens = "Maximum tokens of one reply; none to send no limit. [default: 512]"
    assert f"--reply-tokens, --max-tokens NUMBER|none {tokens}" in text


def test_variants_that_answer_from_one_passage_at_a_time_are_marked(command: Command) -> None:
    mark = "answers from one passage at a time"
    lines = command("list", "programs")[1].splitlines()
    marked = [line for line in lines if mark in line]
    assert [line.split()[0] for line in marked] == ["self_rag"]
    assert f"(combined, per_passage: {mark})" in marked[0]
    shown = command("show", "program", "self_rag")[1].splitlines()
    variants = [line.split()[1] for line in shown if line.startswith("variant") and mark in line]
    assert variants == ["combined:", "per_passage:"]
    for _, program in PROGRAMS:
        assert set(program.single_passage) <= set(program.variants)
