"""Instructions install from a checkout or a wheel file, and name extras that exist."""

import re
import subprocess
import tomllib
from pathlib import Path

from ragbench.errors import INSTALL

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def texts() -> dict[str, str]:
    """Return the text of each tracked file that gives instructions."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.splitlines()
    found = {}
    for name in listed:
        path = ROOT / name
        kinds = (".md", ".py", ".yml", ".yaml", ".ipynb", ".toml", "Makefile", "Dockerfile")
        if name.endswith(kinds) and not name.startswith("tests/") and path.is_file():
            found[name] = path.read_text("utf-8")
    return found


def installs_by_name(line: str) -> bool:
    """Return True if the line installs the name ragbench from a package index."""
    command = re.search(r"\b(?:pip3?|uv|pipx|conda|poetry|pdm)\b.*\b(?:install|add)\s(.*)", line)
    words = command[1].split("#")[0].split() if command else []
    words += re.findall(r"\b(?:uvx|pipx run)\s+(\S+)", line)
    return any(re.match(r"[\"\'(]*ragbench(\[|[=<>~]|[\"\'`).,]*$)", word) for word in words)


def test_no_instruction_installs_the_name_of_another_project() -> None:
    for line in ("pip install ragbench", "pip install 'ragbench[all]'", "uvx ragbench ask"):
        assert installs_by_name(line)
    assert not installs_by_name("pip install ./ragbench-0.1.0-py3-none-any.whl")
    wrong = []
    for name, text in texts().items():
        wrong += [f"{name}: {line}" for line in text.splitlines() if installs_by_name(line)]
    assert wrong == []


def test_extras_that_texts_name_exist() -> None:
    extras = set(PROJECT["optional-dependencies"])
    named: dict[str, str] = {}
    for name, text in texts().items():
        for group in re.findall(r"(?:'|\s)\.\[([a-z,]+)\]|whl\[([a-z,]+)\]", text):
            named |= dict.fromkeys("".join(group).split(","), name)
    assert {extra: name for extra, name in named.items() if extra not in extras} == {}
    table = (ROOT / "docs" / "index.md").read_text("utf-8").partition("| extra | brings |")[2]
    listed = re.findall(r"^\| `(\w+)` \|", table.partition("\n\n")[0], re.MULTILINE)
    assert set(listed) == extras - {"dev"}


def test_metadata_is_complete() -> None:
    assert "pip install '.[local]'" in INSTALL.format(extra="local")
    assert {"authors", "keywords", "classifiers"} <= PROJECT.keys()
    assert "ray" not in str(PROJECT["optional-dependencies"]["dev"])
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert f"version: {PROJECT['version']}" in citation
    assert re.search(r"^date-released: \d{4}-\d\d-\d\d$", citation, re.MULTILINE)


def test_constraints_hold_each_dependency() -> None:
    pinned = set()
    for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines():
        if "==" in line:
            pinned.add(re.sub(r"[-_.]+", "-", line.partition("==")[0]).lower())
    needed = list(PROJECT["dependencies"])
    for extra, packages in PROJECT["optional-dependencies"].items():
        if extra not in ("ray", "spacy", "all", "dev", "local"):
            needed += packages
    missing = []
    for requirement in needed:
        name = re.split(r"[\[<>=!~; ]", requirement)[0]
        if re.sub(r"[-_.]+", "-", name).lower() not in pinned:
            missing.append(name)
    assert missing == []
