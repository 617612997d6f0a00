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
#: Every address without a key of its own. A sweep decides by itself where its folders are.
RUN_ADDRESSES = (*(name for name in FLAT if name != "out"), *_SAME, "optimizer")
_COMPILE = tuple(n for n in CompileConfig.model_fields if n not in ("out", "optimizer"))


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
        if self.settings:
            mine.pop("compiled")
        knobs = check(self.config).resolve_knobs(self.config.set).model_dump(mode="json")
        facts = flat({**mine, "set": knobs})
        facts["optimizer"] = self.settings.optimizer if self.settings else None
        if self.settings:
            facts |= flat_compile(self.settings.model_dump(mode="json", include=set(_COMPILE)))
        return facts

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
    addresses = dict.fromkeys(_PLAIN) | {a: None for cell in cells for a in cell.facts}
    columns = {a: [cell.facts.get(a) for cell in cells] for a in addresses}
    kept, told = list[str](), [0] * len(cells)  # cells that are not told apart share a number
    for address, column in columns.items():
        finer = _numbered(zip(told, column, strict=True))
        if not kept or max(finer) > max(told):
            kept.append(address)
            told = finer
    rows = zip(*(columns[a] for a in kept), strict=True)
    named = []
    for cell, row in zip(cells, rows, strict=True):
        words = (_word(address, value) for address, value in zip(kept, row, strict=True))
        named.append(replace(cell, label=", ".join(filter(None, words))))
        named[-1].__dict__["facts"] = cell.facts  # which no label changes
    return named


def _numbered(rows: Iterable[tuple[int, Any]]) -> list[int]:
    """A number from 0 for each row, the same for rows that read the same."""
    numbers: dict[str, int] = {}
    return [numbers.setdefault(str(row), len(numbers)) for row in rows]


def _word(address: str, value: Any) -> str:
    if value is None or (address == "set.variant" and value in ("", "default")):
        return ""
    return str(value) if address in _PLAIN else f"{address.rpartition('.')[2]}={value}"


def flat(fields: Fields) -> dict[str, Any]:
    """`fields` by address: those that hold a mapping are taken apart."""
    by_address: dict[str, Any] = {}
    for name, value in fields.items():
        if name == "compile" and isinstance(value, dict):
            by_address |= flat_compile(value)
        elif name in MAPPINGS and isinstance(value, dict):
            by_address |= {f"{name}.{key}": each for key, each in value.items()}
        else:
            by_address[_SAME.get(name, name)] = value
    return by_address


def flat_compile(fields: Fields) -> dict[str, Any]:
    """Fields of a compile by address."""
    by_address: dict[str, Any] = {}
    for name, value in fields.items():
        if name == "opt_set" and isinstance(value, dict):
            by_address |= {f"compile.opt_set.{key}": each for key, each in value.items()}
        else:
            by_address[f"compile.{name}"] = value
    return by_address


def nested(addressed: Fields, under: str = "") -> dict[str, Any]:
    """The fields of a run that `addressed` stands for, or with `under` "compile" a compile's."""
    groups: dict[str, Any] = {}
    for address, value in addressed.items():
        inside = address.startswith("compile.")
        if address == "optimizer" or inside != (under == "compile"):
            continue
        head, dot, key = address.removeprefix("compile.").partition(".")
        if dot:
            groups.setdefault(head, {})[key] = value
        else:
            groups[head] = value
    return groups


def check_addresses(fields: Fields, where: str, *, also: Iterable[str] = ()) -> None:
    """Nothing, if every key of `fields`, and of the mappings in it, is an address or in `also`.

    Else UnknownNameError with the near ones.
    """
    for address, value in fields.items():
        head, dot, key = address.partition(".")
        if head == "compile" and (dot or isinstance(value, dict)):
            for inner in [key] if dot else value:
                if inner not in _COMPILE and not inner.startswith("opt_set."):
                    choices = [*(f"compile.{name}" for name in _COMPILE), "compile.opt_set.KNOB"]
                    raise UnknownNameError(f"key of {where}", f"compile.{inner}", choices)
        elif address not in {*RUN_ADDRESSES, *also} and not (key and head in MAPPINGS):
            choices = [*RUN_ADDRESSES, *also, *(f"{name}.KEY" for name in MAPPINGS)]
            raise UnknownNameError(f"key of {where}", address, choices)


def listed(values: Any) -> list[Any]:
    """`values` as a list, which it is where there are several."""
    return values if isinstance(values, list) else [values]
