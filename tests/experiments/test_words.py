"""Every word that a report can print about a comparison has a simulation behind it."""

import ast
import importlib.util
import inspect
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ragbench.experiments.compare import verdicts
from ragbench.experiments.compare.spending import PayBack
from ragbench.experiments.report.verdict import looks_in_words
from ragbench.metrics.stats import comparison

#: Functions that put a comparison into words.
SAYING = (
    comparison.verdict, comparison._why_nothing_is_shown, verdicts.conclusion, verdicts._clause,
    PayBack.words, looks_in_words,
)  # fmt: skip
#: Parts of speech, and what is no claim about a comparison.
NO_CLAIM = (
    "these", "help", "hurt", "change", "changes", "are", "is", "hurts", "equivalent", "g",
    "repairing the answer's form", "N where the answer's form is repaired", "nothing is spent",
    "unknown: a price is unknown", "not known: too few questions", "decided", "not decided",
    "but ", " and $N", ", of about N questions", "N of at most N questions", ".4f", " and ",
    "look N, N questions: compiled - zero-shot N N, p N, N",
)  # fmt: skip


def calibration() -> Any:
    path = Path(__file__).parents[2] / "benchmarks" / "calibration.py"
    spec = importlib.util.spec_from_file_location("calibration", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["calibration"] = module
    spec.loader.exec_module(module)
    return module


def phrases(function: Any) -> Iterator[str]:
    """The texts in a function, those with values in them as one; docstrings left out."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(tree, ast.FunctionDef)
    tree.body = [node for node in tree.body if not _is_text(node)]
    inside = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr | ast.FormattedValue)
        for whole in (node.values if isinstance(node, ast.JoinedStr) else [node.format_spec])
        if isinstance(whole, ast.Constant | ast.JoinedStr)
        for part in ast.walk(whole)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr) and id(node) not in inside:
            yield "".join(str(p.value) if isinstance(p, ast.Constant) else "N" for p in node.values)
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in inside
            and any(map(str.isalpha, node.value))
        ):
            yield node.value


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def test_every_word_of_the_code_is_in_the_calibration() -> None:
    words = calibration().WORDS
    said = [phrase for function in SAYING for phrase in phrases(function)]
    assert len(said) > 30
    missing = [
        text for text in said
        if not any(word in text for word in words) and text not in NO_CLAIM
        and text.strip(" ,:N()")
    ]  # fmt: skip
    assert missing == []


def test_every_word_of_the_calibration_is_said_and_simulated() -> None:
    made = calibration()
    said = " ".join(phrase for function in SAYING for phrase in phrases(function))
    for word, scenarios in made.WORDS.items():
        assert word in said or word in ("detectable", "low and high"), word
        nothing = word.startswith(("no", "the two", "too few"))
        assert scenarios or nothing, word
