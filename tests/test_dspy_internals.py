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


def test_values_read_in_prompts_as_without_the_kept_validators() -> None:
    from dspy.adapters.utils import serialize_for_json
    from pydantic import BaseModel, TypeAdapter

    class Plan(BaseModel):
        step: str
        weight: float

    class Odd:
        def __str__(self) -> str:
            return "odd"

    values: list[object] = [
        "text", 1, True, 1.5, None, ["a", 1], {"a": [1]}, (1, 2), {3}, b"bytes",
        Plan(step="search", weight=0.5), [Plan(step="read", weight=1.0)],
    ]  # fmt: skip
    for value in [*values, *values]:  # the second time with what was kept
        plain = TypeAdapter(type(value)).dump_python(value, mode="json", fallback=str)
        assert serialize_for_json(value) == plain
        assert type(serialize_for_json(value)) is type(plain)
    assert serialize_for_json(Odd()) == "odd"
