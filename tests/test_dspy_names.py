"""What is used of DSPy beyond its public interface: few names, each said with its feature."""

import re
from pathlib import Path

import pytest

from ragbench.dspy_private import private
from ragbench.errors import ConfigError

PACKAGE = Path(__file__).parents[1] / "ragbench"
#: Roots of DSPy that are not public, as pyproject.toml bans them.
BANNED = re.findall(r'^"dspy\.(\w+)"\.msg', (PACKAGE.parent / "pyproject.toml").read_text(), re.M)
_NAME = re.compile(r"""["'](dspy\.[\w.]+)["']""")
_IMPORT = re.compile(rf"^\s*(?:from|import) (dspy\.(?:{'|'.join(BANNED)})[\w.]*)", re.M)


def names() -> dict[str, list[str]]:
    """Each private name that the code mentions, with the files that do."""
    found: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "private(" in text or _IMPORT.search(text):
            for name in [*_NAME.findall(text), *_IMPORT.findall(text)]:
                if name.split(".")[1] in BANNED:
                    found.setdefault(name, []).append(path.name)
    return found


def test_there_are_few_and_each_is_used_in_one_file() -> None:
    found = names()
    assert len(found) < 12, sorted(found)
    assert {name: files for name, files in found.items() if len(set(files)) > 1} == {}


@pytest.mark.parametrize("name", names())
def test_each_is_there(name: str) -> None:
    assert private(name, "a test") is not None


def test_an_absent_one_is_one_line_about_its_feature() -> None:
    with pytest.raises(ConfigError, match=r"rlm needs dspy\.predict\.rlm\.NOTHING") as told:
        private("dspy.predict.rlm.NOTHING", "rlm")
    assert "\n" not in str(told.value)
