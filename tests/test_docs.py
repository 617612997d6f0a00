"""What the documentation shows is there: commands and options, links, names, tables of runs."""

import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import click
import pytest
from click.testing import CliRunner
from pydantic import TypeAdapter

import ragbench as rb
from ragbench import record
from ragbench.cli.main import cli
from ragbench.experiments.runs.summary import HEADLINE
from ragbench.experiments.score.scoring import ScoreRequest, score_run
from ragbench.experiments.store import RunCard
from ragbench.metrics import get_metric
from tests.experiments.scored_runs import four, make_run
from tests.runs import query

ROOT = Path(__file__).parents[1]
#: Options of other programs, and of every command.
OF_OTHERS = {"--ascii", "--help"}
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def commands(text: str) -> list[list[str]]:
    """The words of each `ragbench` command in the shell and text blocks of `text`."""
    found = []
    for block in re.findall(r"```(?:sh|text|bash)\n(.*?)```", text, flags=re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            line = re.sub(r"\s#.*", "", line.strip().removeprefix("$ "))
            if line.startswith("ragbench "):
                found.append(shlex.split(line)[1:])
    return found


def unknown(words: list[str]) -> list[str]:
    """The options in `words` that their command has not."""
    command: click.Command = cli
    context = click.Context(cli)
    for number, word in enumerate(words):
        if not isinstance(command, click.Group):
            words = words[number:]
            break
        if word.startswith("-"):
            break
        command = command.get_command(context, word) or pytest.fail(f"no command {word}")
    options = {
        option
        for param in command.get_params(context)
        for option in (*param.opts, *param.secondary_opts)
    }
    given = [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)]
    return [option for option in given if option not in options]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_shown_has_the_options_shown(page: Path) -> None:
    shown = commands(page.read_text("utf-8"))
    assert len(shown) > 5 or page.name != "README.md"
    assert [(words, unknown(words)) for words in shown if unknown(words)] == []


def options_of(command: click.Command, context: click.Context) -> set[str]:
    """Return the options of a command and of the commands below it."""
    found = {opt for param in command.params for opt in (*param.opts, *param.secondary_opts)}
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            found |= options_of(below, context) if below else set()
    return found


def test_every_option_in_the_text_exists() -> None:
    known = options_of(cli, click.Context(cli)) | OF_OTHERS
    unknown_options = {}
    for page in PAGES:
        named = re.findall(r"`(?:ragbench [\w ]*)?(--[a-z][a-z0-9-]+)", page.read_text("utf-8"))
        if missing := set(named) - known:
            unknown_options[page.name] = missing
    assert unknown_options == {}


@pytest.mark.parametrize(
    ("page", "blocks"),
    [("index.md", 1), ("comparing.md", 4), ("compiling.md", 1), ("large-runs.md", 1)],
)
def test_output_of_a_command_if_shown_is_todays(
    page: str, blocks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ZipFile(ROOT / "ragbench" / "cli" / "demo.zip").extractall()
    runs = ["runs/vanilla", "runs/ircot"]
    CliRunner().invoke(cli, ["export", *runs, "--to", "bundle", "-o", "bundle.zip"])
    text = (ROOT / "docs" / page).read_text("utf-8")
    found = re.findall(r"```text\n\$ ragbench ([^\n]*)\n(.*?)```", text, flags=re.DOTALL)
    assert len(found) == blocks
    for words, shown in found:
        done = CliRunner().invoke(cli, shlex.split(words))
        printed = done.output.splitlines()
        lines = [line for line in shown.splitlines() if line != "[...]"]
        assert [line for line in lines if line not in printed] == [], done.output


def test_the_site_builds_with_every_link_good(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    text = (ROOT / "mkdocs.yml").read_text("utf-8")
    (tmp_path / "mkdocs.yml").write_text(text.replace("paths: [.]", f"paths: [{ROOT}]"))
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "build" / "site" / "comparing" / "index.html").is_file()
    page = (tmp_path / "build" / "site" / "api" / "index.html").read_text("utf-8")
    documented = {name.rpartition(".")[2] for name in re.findall(r'id="(ragbench[.\w]+)"', page)}
    assert set(rb.__all__) <= documented


def test_architecture_page_blocks_run_in_a_new_process() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len(blocks) == 5
    code = (
        "\n".join(re.sub(r'^""".*"""\n', "", block) for block in blocks)
        + """
from ragbench.data.base import DATASETS
from ragbench.metrics import get_metric
from ragbench.programs import PROGRAMS
kinds = {"one_word": get_metric, "riddles": DATASETS.get, "first": OPTIMIZERS.get}
kinds |= {"twice": PROGRAMS.get, "shared_words": RETRIEVERS.get}
for name, get in kinds.items():
    assert get(name)
"""
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


RECORDS = (ROOT / "docs" / "records.md").read_text("utf-8")
#: Heading of a table -> what it shows.
SHAPES: dict[str, type] = {
    "Record": record.Record, "Step": record.Step, "Search": record.Search,
    "Passage": record.ShownPassage, "Ledger": record.Ledger, "Call": record.Call,
    "FailedAttempts": record.FailedAttempts, "Critical path": record.CriticalPath,
    "Failure": record.Failure, "Card": RunCard,
}  # fmt: skip
#: Fields that are never stored with a record.
UNSTORED = {"memo", "attribution", "attributed_triples"}


def fields_of(shape: type) -> list[str]:
    """Return the names of the stored fields of `shape`, in order."""
    schema = TypeAdapter(shape).json_schema(mode="validation")
    return [name for name in schema["properties"] if name not in UNSTORED]


def fields_under(title: str) -> list[str]:
    """Return the names of the fields that the page lists under the heading `title`."""
    section = RECORDS.partition(f"\n### {title}\n")[2].partition("\n#")[0]
    return re.findall(r"`(\w+)`", re.sub(r" \((?:[^()]|\([^()]*\))*\)", "", section))


@pytest.mark.parametrize("title", SHAPES)
def test_page_has_the_fields_that_are_stored(title: str) -> None:
    assert sorted(fields_under(title)) == sorted(fields_of(SHAPES[title]))


def test_the_queries_of_the_page_answer(tmp_path: Path) -> None:
    scores = [{name: get_metric(name).score(r) for name in HEADLINE} for r in four()]
    records = [replace(r, scores=each) for r, each in zip(four(), scores, strict=True)]
    folder = make_run(tmp_path / "run", records)
    score_run(folder, ScoreRequest(metrics=("em", "f1")))
    text = RECORDS.partition("```sql\n")[2].partition("```")[0]
    asked = [each for each in re.sub(r"--.*", "", text).split(";") if each.strip()]
    assert len(asked) == 5
    found = [query(folder, each) for each in asked]
    assert found[0] == [
        ("answered", 3, pytest.approx(1 / 3), pytest.approx(0.4), pytest.approx(0.003)),
        ("failed", 1, 0, 0, 0.001),
    ]
    assert [row[0] for row in found[1]] == ["q2", "q3", "q4"]
    assert all(found)


def test_the_page_names_the_tables_and_their_columns(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", four())
    page = RECORDS.partition("## The database")[2].partition("## ")[0]
    kinds = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"
    for (name,) in query(folder, kinds):
        columns = [row[1] for row in query(folder, f"PRAGMA table_info({name})")]
        [told] = re.findall(rf"^\| `{name}` \| .* \| (.*) \|$", page, re.M)
        said = re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", told))
        assert name == "answers" or said == columns
