"""Syntax trees of the package, parsed once for all tests of its code."""

import ast
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "ragbench"


@cache
def trees() -> dict[Path, ast.Module]:
    """Return the syntax tree of each module of the package."""
    return {path: ast.parse(path.read_text("utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}
