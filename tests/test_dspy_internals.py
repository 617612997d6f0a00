"""What is used of DSPy beyond its public interface is in the table of docs/architecture.md."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import ragbench
from ragbench import dspy_internals

TABLE = (
    (Path(__file__).parents[1] / "docs/architecture.md")
    .read_text(encoding="utf-8")
    .partition("## What we use of DSPy that is not public")[2]
)
#: Scripts: importing them runs them.
SCRIPTS = ("ragbench.__main__", "ragbench.programs.rlm.sandbox_worker")


@pytest.mark.parametrize("name", dspy_internals.__all__)
def test_every_imported_name_is_listed(name: str) -> None:
    assert re.search(rf"`{name}`", TABLE), f"{name} is not in the table"


def test_every_private_method_that_is_replaced_is_listed() -> None:
    replaced = set(_replaced())
    assert "_read_head" in replaced
    assert [name for name in sorted(replaced) if not re.search(rf"\b{name}`", TABLE)] == []


def _replaced() -> Iterator[str]:
    """Names of private methods of DSPy's classes that classes of ours define."""
    for module in pkgutil.walk_packages(ragbench.__path__, "ragbench."):
        if module.name in SCRIPTS:
            continue
        for cls in vars(importlib.import_module(module.name)).values():
            if inspect.isclass(cls) and cls.__module__ == module.name:
                yield from _replaced_by(cls)


def _replaced_by(cls: type) -> Iterator[str]:
    for base in cls.__mro__[1:]:
        if base.__module__.startswith("dspy."):
            ours = (name for name in vars(cls) if name in vars(base))
            yield from (n for n in ours if re.match(r"_(?!_|abc_impl)", n))
