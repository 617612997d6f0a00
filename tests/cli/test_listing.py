"""`list`, `show` and `--help` work for everything there is."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ragbench.cli.answering import eval_command
from ragbench.cli.main import COMMANDS
from ragbench.experiments.config import FLAT
from ragbench.programs import PROGRAMS
from tests.cli.test_mistakes import run


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_help(capsys: pytest.CaptureFixture[str], command: str) -> None:
    code, out, _ = run(capsys, command, "--help")
    assert code == 0
    assert "Usage" in out


@pytest.mark.parametrize(
    "kind", ["programs", "retrievers", "optimizers", "metrics", "datasets", "configs"]
)
def test_list_has_one_line_each(capsys: pytest.CaptureFixture[str], kind: str) -> None:
    code, out, _ = run(capsys, "list", kind)
    assert code == 0
    lines = out.splitlines()
    assert len(lines) >= 2
    assert all(len(line.split("  ", 1)) == 2 for line in lines)


@pytest.mark.parametrize("name", PROGRAMS.names())
def test_show_program_tells_knobs_variants_roles(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    code, out, _ = run(capsys, "show", "program", name)
    assert code == 0
    assert "LM calls per question" in out
    for knob in PROGRAMS.get(name).Knobs.model_fields:
        assert knob in out
    for variant in PROGRAMS.get(name).variants:
        assert f"variant {variant}" in out
    assert "role " in out


def test_show_program_lists_roles_beside_those_of_predictors(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, tree, _ = run(capsys, "show", "program", "tree_rag")
    assert tree.count("role extract: index (Summarize)") == 3
    _, rlm, _ = run(capsys, "show", "program", "rlm_repl")
    assert rlm.count("role sub: llm_query (llm_query)") == 2


def test_list_shows_the_three_marks_of_autonomy(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "list", "programs")
    marks = {line.split()[0]: line.partition("autonomy ")[2] for line in out.splitlines()}
    assert marks["a_rag"].startswith("yes/yes/yes)")
    assert marks["ma_rag"].startswith("partly/yes/partly)")
    assert marks["flare"].startswith("no/partly/partly)")
    assert marks["crag"].startswith("no/no/no)")


def test_show_program_names_the_variants_to_choose_from(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, out, _ = run(capsys, "show", "program", "react")
    (line,) = (line for line in out.splitlines() if line.startswith("  variant"))
    assert [part.strip() for part in line.split("  ") if part.strip()][:3] == [
        "variant",
        "spec",
        "spec | page | tree",
    ]


def test_the_docs_list_every_program_with_its_variants() -> None:
    text = (Path(__file__).parents[2] / "docs/programs.md").read_text("utf-8")
    table = text.partition("| program |")[2].partition("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip(" `") for cell in row.split("|")] for row in table]
    documented = {name: variants or "default" for _, name, variants, *_ in cells}
    assert documented == {name: ", ".join(program.variants) for name, program in PROGRAMS}


def test_help_imports_neither_dspy_nor_numpy() -> None:
    code = (
        "import sys; sys.argv = ['ragbench', '--help']\n"
        "from ragbench.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'dspy', 'numpy', 'pydantic', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_options_are_grouped_and_say_type_choices_default_and_examples(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, out, _ = run(capsys, "eval", "--help-all")
    titles = [
        line.rstrip(":") for line in out.splitlines() if line.endswith(":") and line[0] != " "
    ]
    assert titles[:3] == ["Program", "Data", "Retrieval"]
    assert titles[-1] == "Examples"
    text = " ".join(out.split())
    assert "--lm, --model SPEC" in text
    assert "--workers, --num-threads INTEGER Questions answered in parallel. [default: 4]" in text
    assert "--split [train|validation|test|all]" in text
    assert "Sampling temperature. [default: 0]" in text
    assert (
        "--reply-tokens, --max-tokens INTEGER Maximum tokens of one reply. [default: 512]" in text
    )


def test_help_of_eval_shows_what_people_use_and_help_all_the_rest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, short, _ = run(capsys, "eval", "--help")
    _, long, _ = run(capsys, "eval", "--help-all")
    flags = [set(re.findall(r"^  (--[a-z-]+)", text, re.MULTILINE)) for text in (short, long)]
    assert flags[0] < flags[1]
    assert {"--program", "--limit", "--max-cost", "--help-all"} <= flags[0]
    assert 20 <= len(flags[0]) <= 25
    assert {"--shard", "--hub-config"} <= flags[1] - flags[0]


def test_every_field_of_a_run_is_an_option_of_eval() -> None:
    flags = {param.name for param in eval_command.params}
    assert set(FLAT) <= flags
