"""Code in files is identified by its syntax trees, transitively."""

import importlib
import re
from pathlib import Path
from typing import Any

import dspy
import pytest

from ragbench.experiments.config import make_config
from ragbench.external import code_digest, local_sources
from ragbench.programs import PROGRAMS
from ragbench.retrievers import RETRIEVERS
from tests.fake_server import FakeServer

RAG = '''
"""A program."""

import click
import dspy
from parts.helping import help_me  # a comment


def lookup(word: str) -> str:
    """Look a word up."""
    return word


class Reply(dspy.Signature):
    """Answer briefly."""

    question: str = dspy.InputField()
    answer: str = dspy.OutputField(desc="a name")


class Plain:
    """Holds a number."""

    size: int = 3


class Rag(dspy.Module):
    """Answer."""

    def __init__(self, times: int = 1):
        super().__init__()
        self.answer = dspy.Predict(Reply)
        self.tools = [lookup]

    def forward(self, question: str) -> dspy.Prediction:
        """Ask once."""
        text: str = help_me(question)
        return self.answer(question=text)
'''
HELPING = '''
"""Helpers."""

from .deeper import suffix


def help_me(text):
    """Add the suffix."""
    return text + suffix()
'''
DEEPER = """
import importlib


def suffix():
    return importlib.import_module("plug").TEXT
"""


@pytest.fixture
def rag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program of several files."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "parts").mkdir()
    for name, text in (
        ("rag.py", RAG), ("parts/__init__.py", ""), ("parts/helping.py", HELPING),
        ("parts/deeper.py", DEEPER), ("plug.py", 'TEXT = "?"\n'), ("other.py", "x = 1\n"),
    ):  # fmt: skip
        (tmp_path / name).write_text(text)
    return tmp_path / "rag.py"


def edited(file: Path, old: str, new: str) -> bool:
    """Whether the edit of `file` changes the identity of `rag.py`."""
    rag = next(folder / "rag.py" for folder in file.parents if (folder / "rag.py").is_file())
    before = code_digest(rag)
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    changed = code_digest(rag) != before
    file.write_text(text)
    assert code_digest(rag) == before
    return changed


@pytest.mark.parametrize(
    ("file", "old", "new", "changes"),
    [
        ("rag.py", "  # a comment", "", False),
        ("rag.py", "\n\n\n", "\n\n\n\n\n# more\n", False),
        ("rag.py", '"a name"', "'a name'", False),
        ("other.py", "1", "2", False),
        ("rag.py", '"""Answer briefly."""', '"""Answer at length."""', True),
        ("rag.py", "answer: str", "answer: int", True),
        ("rag.py", 'desc="a name"', 'desc="a place"', True),
        ("rag.py", "size: int = 3", "size: int = 4", True),
        ("parts/helping.py", "text + suffix()", "suffix() + text", True),
        ("parts/deeper.py", ".TEXT", ".TEXT * 2", True),
        ("parts/__init__.py", "", "import os\n", True),
        ("plug.py", '"?"', '"!"', True),
    ],
)
def test_code_digest_changes_with_the_code_of_the_file_and_its_imports(
    file: str, old: str, new: str, changes: bool, rag: Path
) -> None:
    assert edited(rag.parent / file, old, new) == changes


def test_installed_packages_count_by_version_and_local_ones_by_file(rag: Path) -> None:
    assert {path.name for path in local_sources(rag)} == {
        "rag.py", "__init__.py", "helping.py", "deeper.py", "plug.py",
    }  # fmt: skip
    assert re.fullmatch(r"dspy \d.*", code_digest(Path(str(dspy.__file__))))


READS = """
import os
from pathlib import Path

import click
import dspy


class Rag(dspy.Module):
    def __init__(self):
        super().__init__()
        self.answer = dspy.Predict("question -> answer")

    def forward(self, question):
        return self.answer(question=question + {read})
"""
LINE = (
    r"reusing 1 answers of \d\d \w\w\w \d\d:\d\d; files and variables that rag\.py reads are not "
    r"checked; --fresh asks again"
)


def test_answers_of_code_in_a_file_if_they_are_reused_print_a_line_and_fresh_asks_again(
    server: FakeServer, command: Any
) -> None:
    Path("t.txt").write_text("a")
    Path("rag.py").write_text(READS.format(read='Path("t.txt").read_text()'))
    words = ["eval", "--program", "rag.py:Rag", "--lm", f"openai/m@{server.url}", "--limit", "1"]
    code, _, said = command(*words)
    assert (code, "reusing" in said) == (0, False)
    Path("t.txt").write_text("b")
    code, _, said = command(*words)
    assert code == 0
    assert re.search(LINE, " ".join(said.split()))
    assert len(server.hits) == 1
    code, _, said = command(*words, "--fresh")
    assert (code, "reusing" in said) == (0, False)
    assert len(server.hits) == 2
    assert len(list(Path("runs").iterdir())) == 2  # the earlier run is kept


def test_a_compiled_program_of_code_in_a_file_if_it_is_reused_prints_the_line(
    server: FakeServer, command: Any
) -> None:
    Path("rag.py").write_text(READS.format(read='""'))
    words = ["compile", "--program", "rag.py:Rag", "--lm", f"openai/m@{server.url}", "--optimizer"]
    words += ["labeled", "--train-limit", "2", "--val-limit", "2"]
    assert "reusing" not in "".join(command(*words)[1:])
    said = " ".join("".join(command(*words)[1:]).split())
    assert re.search(LINE.replace("1 answers", "the compiled program"), said)
    assert "reusing" not in "".join(command(*words, "--fresh")[1:])


PLUGIN = """
from ragbench.programs import PROGRAMS
from ragbench.programs.vanilla import VanillaRAG
from ragbench.retrievers import RETRIEVERS
from ragbench.retrievers.bm25 import BM25


class Plugged(VanillaRAG):
    name = "plugged"
    size = 1


class PluggedSearch(BM25):
    name = "plugged_search"
"""


def test_code_of_a_plug_in_is_part_of_the_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "plugged_module.py"
    file.write_text(PLUGIN)
    monkeypatch.syspath_prepend(tmp_path)
    module: Any = importlib.import_module("plugged_module")
    monkeypatch.setitem(PROGRAMS._entries, "plugged", module.Plugged)
    monkeypatch.setitem(RETRIEVERS._entries, "plugged_search", module.PluggedSearch)
    config = make_config({"program": "plugged", "retriever": "plugged_search", "lm": "openai/m"})
    before = config.identity()
    assert before["program_source"] == before["retriever_source"]
    file.write_text(f"# A comment.{PLUGIN}")
    assert config.identity() == before
    file.write_text(PLUGIN.replace("size = 1", "size = 2"))
    assert config.identity() != before
    ours = make_config({"program": "vanilla", "lm": "openai/m"}).identity()
    assert {"program_source", "retriever_source"}.isdisjoint(ours)


NESTED = """
class Found:
    def search(self, query, k):
        return ["Turin lies on the Po."][:k]
"""


def test_code_that_a_setting_names_is_part_of_the_identity_and_of_the_line(
    server: FakeServer, command: Any
) -> None:
    Path("own.py").write_text(NESTED)
    words = ["eval", "--program", "vanilla", "--lm", f"openai/m@{server.url}", "--limit", "1"]
    words += ["--retriever", "distracting(inner=own.py:Found)", "--setting", "pooled"]
    assert command(*words)[0] == 0
    said = " ".join(command(*words)[2].split())
    assert re.search(LINE.replace("rag", "own"), said)
    Path("own.py").write_text(NESTED.replace("Turin", "Pavia"))
    assert "reusing" not in command(*words)[2]
    assert len(list(Path("runs").iterdir())) == 2
