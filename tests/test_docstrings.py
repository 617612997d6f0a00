"""Docstrings name the parameters that there are."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "ragbench"
_SECTION = re.compile(r"^([ ]*)Args:\n((?:\1[ ]+\S.*\n|[ ]*\n)+)", re.MULTILINE)


def documented(docstring: str) -> list[str]:
    """Names under `Args:`."""
    match = _SECTION.search(f"{docstring}\n")
    if match is None:
        return []
    lines = match[2].splitlines()
    margin = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    names = []
    for line in lines:
        entry = re.match(rf"\s{{{margin}}}\*{{0,2}}(\w+)(?: \(.*\))?:", line)
        if entry:
            names.append(entry[1])
    return names


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    every += filter(None, [arguments.vararg, arguments.kwarg])
    return {argument.arg for argument in every}


def definitions(tree: ast.AST) -> Iterator[tuple[str, str, set[str]]]:
    """Name, docstring and parameters of each function, and of each class by its constructor."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, ast.get_docstring(node) or "", parameters(node)
        elif isinstance(node, ast.ClassDef):
            names = set[str]()
            for statement in node.body:
                if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                    names.add(statement.target.id)
                elif isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
                    names |= parameters(statement)
            yield node.name, ast.get_docstring(node) or "", names


def test_documented_reads_the_names_of_a_section() -> None:
    text = "Do it.\n\nArgs:\n    a: One,\n        b: no name.\n    *c: Rest.\n\nReturns:\n    d: x."
    assert documented(text) == ["a", "c"]


FOLDERS = sorted({path.parent for path in PACKAGE.rglob("*.py")})


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.name))
def test_args_of_a_docstring_are_parameters_of_the_function(folder: Path) -> None:
    for path in folder.glob("*.py"):
        for name, docstring, names in definitions(ast.parse(path.read_text("utf-8"))):
            missing = set(documented(docstring)) - names
            assert not missing, f"{path.name}: {name} documents {', '.join(sorted(missing))}"
