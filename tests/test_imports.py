"""Imports point down: no cycle of modules, imports by string included."""

import ast
import re
from functools import cache
from pathlib import Path

from tests.trees import PACKAGE, trees


def module_of(path: Path) -> str:
    names = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(names[:-1] if names[-1] == "__init__" else names)


MODULES = {module_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def imports_of(path: Path) -> tuple[set[str], set[str]]:
    """Modules that the file imports when it is imported, and by a string at any time."""
    late = set[int]()
    nodes = list(ast.walk(trees()[path]))
    for node in nodes:
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if is_function or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
            imports = (ast.Import, ast.ImportFrom)
            late |= {id(inner) for inner in ast.walk(node) if isinstance(inner, imports)}
    early, by_string = set[str](), set[str]()
    for node in nodes:
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                names.append(inner if inner in MODULES else node.module)
        elif isinstance(node, ast.Call) and node.args:
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            for text in ast.walk(node.args[0]) if called == "import_module" else ():
                if isinstance(text, ast.Constant) and str(text.value).startswith("ragbench."):
                    by_string.add(str(text.value).rstrip("."))
        if id(node) not in late:
            early |= MODULES.keys() & set(names)
    return early, by_string


def test_no_module_is_imported_by_a_string_but_commands() -> None:
    by_string = set[tuple[str, str]]()
    for module, path in MODULES.items():
        by_string |= {(module, name) for name in imports_of(path)[1]}
    assert by_string == {("ragbench.cli.main", "ragbench.cli")}


def test_no_string_names_an_object_of_the_package_to_import() -> None:
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not re.fullmatch(r"ragbench(\.\w+)+:\w+", node.value), path


def test_no_modules_import_each_other_in_a_circle() -> None:
    edges: dict[str, set[str]] = {}
    for module, path in MODULES.items():
        edges[module] = imports_of(path)[0] - {module}
    # A package imports its own parts, which import each other by their full names.
    for module, path in MODULES.items():
        if path.name == "__init__.py":
            for inner in edges:
                if inner.startswith(f"{module}."):
                    edges[inner].discard(module)
    while True:
        leaves = {module for module, targets in edges.items() if not targets}
        if not leaves:
            break
        edges = {m: targets - leaves for m, targets in edges.items() if m not in leaves}
    assert not edges, sorted(edges)[:20]
