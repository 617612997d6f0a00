"""Public functions document their parameters; see CONTRIBUTING.md."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache

from tests.trees import PACKAGE, trees

#: Part of the package -> public functions with two or more parameters and without `Args:`. A
#: ceiling may only fall.
CEILINGS = {
    "lms": 8,  # files at their greatest length
    "programs": 2,  # docstrings of tools, which are prompts
}


@cache
def classes() -> dict[str, ast.ClassDef]:
    """Return the classes of the package by name."""
    nodes = [node for tree in trees().values() for node in ast.walk(tree)]
    return {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}


def parameters_of(function: ast.FunctionDef) -> list[str]:
    """Return the names of the parameters, without `self` and `cls`."""
    given = function.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    return [each.arg for each in every if each is not None and each.arg not in ("self", "cls")]


def is_override(owner: ast.ClassDef | None, name: str) -> bool:
    """Return True if a class of the package that `owner` derives from has the method `name`."""
    for base in owner.bases if owner else ():
        parent = classes().get(ast.unparse(base).split("[")[0].rpartition(".")[2])
        if parent is None or parent is owner:
            continue
        if any(getattr(node, "name", "") == name for node in parent.body):
            return True
        if is_override(parent, name):
            return True
    return False


def undocumented(tree: ast.Module) -> Iterator[str]:
    """Yield the names of public functions that need `Args:` and lack it."""
    owners: list[ast.ClassDef | None] = [None]
    owners += [node for node in tree.body if isinstance(node, ast.ClassDef)]
    for owner in owners:
        bases = " ".join(map(ast.unparse, owner.bases)) if owner else ""
        if "click." in bases or (owner and owner.name.startswith("_")):
            continue
        for node in owner.body if owner else tree.body:
            if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
                continue
            # The help of a command documents its options; a program's `forward` is one call.
            decorators = " ".join(map(ast.unparse, node.decorator_list))
            if node.name == "forward" or "command" in decorators or "overload" in decorators:
                continue
            is_stub = ast.unparse(node.body[-1]) == "..."
            if is_stub or len(parameters_of(node)) < 2 or is_override(owner, node.name):
                continue
            if "Args:" not in (ast.get_docstring(node) or ""):
                yield f"{owner.name}.{node.name}" if owner else node.name


def test_public_functions_if_they_have_two_parameters_document_them() -> None:
    missing: dict[str, list[str]] = defaultdict(list)
    for path, tree in trees().items():
        part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        missing[part] += [f"{path.name}: {name}" for name in undocumented(tree)]
    for part, names in missing.items():
        assert len(names) <= CEILINGS.get(part, 0), names
