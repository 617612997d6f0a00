"""The names of the Python API, and what importing them loads."""

import re
import subprocess
import sys
from pathlib import Path

import ragbench as rb


def test_importing_the_package_imports_no_dspy() -> None:
    code = "import sys, ragbench; sys.exit('dspy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_docs_list_every_name() -> None:
    text = (Path(__file__).parents[1] / "docs" / "api.md").read_text("utf-8")
    listed = set(re.findall(r"^\| `(\w+)", text, flags=re.MULTILINE))
    assert listed == set(rb.__all__)
