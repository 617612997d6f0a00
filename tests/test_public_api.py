"""The names of the Python API, and what importing them loads."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ragbench as rb

HEAVY = {"dspy", "numpy", "pydantic", "rich", "scipy"}


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which the catalogue of `list` and `show` has been made."""
    env = {**os.environ, "RAGBENCH_CACHE": str(tmp_path_factory.mktemp("cache"))}
    command = [sys.executable, "-m", "ragbench", "list", "programs"]
    subprocess.run(command, check=True, capture_output=True, env=env)
    return env


def test_importing_the_package_imports_no_dspy() -> None:
    code = "import sys, ragbench; sys.exit('dspy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_docs_list_every_name() -> None:
    text = (Path(__file__).parents[1] / "docs" / "api.md").read_text("utf-8")
    listed = set(re.findall(r"^\| `(\w+)", text, flags=re.MULTILINE))
    assert listed == set(rb.__all__)


@pytest.mark.parametrize(
    ("args", "left_out"),
    [
        ("--help", HEAVY),
        ("list programs", HEAVY),
        ("show program ircot", HEAVY),
        ("runs {run}", HEAVY),
        ("show run {run}", {"dspy", "scipy.stats", "pandas"}),
        ("summarize {run}", {"dspy", "scipy.stats", "pandas"}),
        ("compare {run} {run}", {"dspy", "pandas"}),
    ],
)
def test_commands_that_only_read_load_little(
    args: str, left_out: set[str], warm: dict[str, str], tmp_path: Path
) -> None:
    run = shutil.copytree(Path(__file__).parent / "compat/v1/vanilla", tmp_path / "run")
    code = (
        f"import sys; sys.argv = ['ragbench', *{args.format(run=run).split()!r}]\n"
        "from ragbench.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as end: print(end.code or 0, end=' ', file=sys.stderr)\n"
        f"print(*sorted({left_out!r} & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=warm)
    assert done.stderr.decode().strip() == "0"
