"""Cells of a sweep, and the addresses by which a sweep file names what differs between them.

An address is a field of a run (`retriever`), a key of one that holds a mapping (`set.max_steps`,
`retriever_set.k1`, `lm_for.plan`), `variant`, `optimizer`, or a field of a compile
(`compile.preset`, `compile.opt_set.rounds`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ragbench.errors import UnknownNameError
from ragbench.experiments.config import FLAT, CompileConfig, RunConfig
from ragbench.experiments.runs import check

Fields = Mapping[str, Any]

#: Addresses whose values need no name beside them in a label; they also come first in one.
_PLAIN = ("program", "set.variant", "optimizer", "retriever", "lm", "dataset")
#: Fields that hold a mapping, whose keys are addresses.
MAPPINGS = ("set", "retriever_set", "lm_for", "compile", "compile.opt_set")
#: Names that are another address.
_SAME = {"variant": "set.variant", "k": "set.k"}
_COMPILE = [n for n in CompileConfig.model_fields if n not in ("out", "optimizer")]
#: Every address without a key of its own. A sweep decides by itself where its folders are.
_ADDRESSES = (
    *(name for name in FLAT if name != "out"),
    *("variant", "optimizer", "compile"),
    *(f"compile.{name}" for name in _COMPILE),
)


@dataclass(frozen=True)
class Cell:
    """One run of a sweep; with `settings` its program is compiled first, into `settings.out`."""

    label: str
    config: RunConfig
    settings: CompileConfig | None = None

    @property
    def folder(self) -> Path:
        """Its run folder."""
        return self.config.folder()

    @property
    def program(self) -> Path | None:
        """The folder of the program that it compiles first, if it does."""
        return self.settings.out if self.settings else None

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Address -> value, of everything that decides the cell, knobs resolved."""
        mine = {name: value for name, value in self.config.flat().items() if name != "out"}
        mine["set"] = check(self.config).resolve_knobs(self.config.set).model_dump(mode="json")
        mine["optimizer"] = self.settings.optimizer if self.settings else None
        if self.settings:
            del mine["compiled"]
            mine["compile"] = self.settings.model_dump(mode="json", include=set(_COMPILE))
        return flat(mine)

    def matches(self, wanted: Fields) -> bool:
        """Whether the cell has every value of `wanted`, or one of several where that is a list."""
        for address, values in wanted.items():
            choices = listed(values)
            if address == "optimizer":
                choices = [None if value == "none" else value for value in choices]
            if self.facts.get(address) not in choices:
                return False
        return True

    def alike(self, other: Cell, addresses: Iterable[str]) -> bool:
        """Whether both have one value at each of `addresses`, or one of them has no such thing."""
        pairs = ((self.facts.get(a), other.facts.get(a)) for a in addresses)
        return all(x == y or x is None or y is None for x, y in pairs)


def labelled(cells: Sequence[Cell]) -> list[Cell]:
    """The cells, each labelled by as few of the things that differ as tell all apart."""
    addresses = dict.fromkeys([*_PLAIN, *(a for cell in cells for a in cell.facts)])
    kept, told = list[str](), [""] * len(cells)  # cells that are not told apart have one text
    for address in addresses:
        finer = [
            f"{text}, {cell.facts.get(address)}" for text, cell in zip(told, cells, strict=True)
        ]
        if not kept or len({*finer}) > len({*told}):
            kept.append(address)
            told = finer
    named = []
    for cell in cells:
        words = (_word(address, cell.facts.get(address)) for address in kept)
        named.append(replace(cell, label=", ".join(filter(None, words))))
        named[-1].__dict__["facts"] = cell.facts  # which no label changes
    return named


def _word(address: str, value: Any) -> str:
    if value is None or (address == "set.variant" and value in ("", "default")):
        return ""
    return str(value) if address in _PLAIN else f"{address.rpartition('.')[2]}={value}"


def flat(fields: Fields, under: str = "") -> dict[str, Any]:
    """`fields` by address: those that hold a mapping are taken apart."""
    by_address: dict[str, Any] = {}
    for name, value in fields.items():
        address = _SAME.get(under + name, under + name)
        if address in MAPPINGS and isinstance(value, dict):
            by_address |= flat(value, f"{address}.")
        else:
            by_address[address] = value
    return by_address


def addressed(fields: Fields, where: str, *, also: Iterable[str] = ()) -> dict[str, Any]:
    """`fields` by address.

    Raises:
        UnknownNameError: a key is no address, nor in `also`; names the near ones.
    """
    by_address = flat(fields)
    keyed = tuple(f"{name}." for name in MAPPINGS if name != "compile")
    for address in by_address:
        if address not in {*_ADDRESSES, *also} and not address.startswith(keyed):
            choices = [*_ADDRESSES, *also, *(f"{prefix}KEY" for prefix in keyed)]
            raise UnknownNameError(f"key of {where}", address, choices)
    return by_address


def nested(by_address: Fields) -> dict[str, Any]:
    """The fields of a run that stand at these addresses."""
    fields: dict[str, Any] = {}
    for address, value in by_address.items():
        head, dot, key = address.partition(".")
        if dot and head != "compile":
            fields.setdefault(head, {})[key] = value
        elif head not in ("compile", "optimizer"):
            fields[head] = value
    return fields


def nested_compile(by_address: Fields) -> dict[str, Any]:
    """The fields of a compile that stand at these addresses."""
    inner = {
        a.removeprefix("compile."): v for a, v in by_address.items() if a.startswith("compile.")
    }
    return nested(inner)


def listed(values: Any) -> list[Any]:
    """`values` as a list, which it is where there are several."""
    return values if isinstance(values, list) else [values]
