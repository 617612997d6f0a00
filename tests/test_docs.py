"""What the documentation says exists: every option of every command it shows, and every link."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

import ragbench as rb
from ragbench.cli.main import cli

ROOT = Path(__file__).parents[1]
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


def test_the_site_builds_with_every_link_good(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "tutorial" / "index.html").is_file()


def test_the_docs_list_every_name() -> None:
    text = (ROOT / "docs" / "api.md").read_text("utf-8")
    listed = set(re.findall(r"^\| `(\w+)", text, flags=re.MULTILINE))
    assert listed == set(rb.__all__)
