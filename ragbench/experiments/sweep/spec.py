"""What a sweep file asks for: its cells, each a whole config, checked before anything runs.

A sweep file is a config file (`inherits:` works) whose fields all cells share, with a `matrix` of
what differs on top.

An address names what differs between cells: a field of a run (`retriever`), a key of one that holds
a mapping (`set.max_steps`, `retriever_set.k1`, `lm_for.plan`), `variant`, `optimizer`, or a field
of a compile (`compile.preset`, `compile.opt_set.rounds`).
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import Field

from ragbench.errors import ConfigError, RagbenchError, UnknownNameError
from ragbench.experiments.compile import folder_name
from ragbench.experiments.config import (
    FLAT,
    CompileConfig,
    RunConfig,
    flatten,
    load_config,
    make_config,
)
from ragbench.experiments.runs import HEADLINE, check, compiled_fields
from ragbench.knobs import Knobs, resolve
from ragbench.metrics import get_metric
from ragbench.optimizers import OPTIMIZERS

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


class SweepFields(Knobs):
    """The keys of a sweep file beside the fields of a run, which all cells share."""

    matrix: dict[str, Any] = Field({}, description="address -> values; every combination is a cell")
    include: tuple[dict[str, Any], ...] = Field((), description="more cells, or small matrices")
    exclude: tuple[dict[str, Any], ...] = Field((), description="combinations to leave out")
    baseline: dict[str, Any] | None = Field(None, description="the cells to compare others with")
    metrics: tuple[str, ...] = Field(HEADLINE, min_length=1, description="what is compared")
    margin: float | None = Field(None, gt=0, description="difference too small to matter")


_MOST_CELLS = 2_000


@dataclass(frozen=True)
class Sweep:
    """The cells of a sweep, in the order in which they run, and how they are compared.

    `pairs` holds each cell that is compared, by label, and its baseline's label.
    """

    folder: Path
    cells: Sequence[Cell]
    pairs: Mapping[str, str]
    metrics: tuple[str, ...] = HEADLINE
    margin: float | None = None


def load_sweep(path: str | Path, *, out: Path | None = None, over: Fields | None = None) -> Sweep:
    """The sweep of a file, every name and knob of every cell checked; loads no data.

    `out` is its folder, by default `sweeps/` and the file's name; `over` are fields of a run that
    replace those that the cells share.

    Raises:
        RagbenchError: something the user can mend; a cell at fault is named.
    """
    fields = flatten(load_config(path))
    own = {key: fields.pop(key) for key in list(fields) if key in SweepFields.model_fields}
    folder = Path(out or fields.pop("out", None) or Path("sweeps") / Path(path).stem)
    fields.pop("out", None)
    shared = {**addressed(fields, str(path), also=SweepFields.model_fields), **(over or {})}
    spec = resolve(SweepFields, f"sweep {path}", own)
    for name in spec.metrics:
        get_metric(name)
    cells = _distinct(_cells(spec, shared, folder))
    data = [cell.config.data_spec() for cell in cells]
    # Cells of one data set stand next to each other, so that it is loaded once.
    cells = labelled(sorted(cells, key=lambda cell: data.index(cell.config.data_spec())))
    return Sweep(folder, cells, _pairs(cells, spec), spec.metrics, spec.margin)


def _cells(spec: SweepFields, shared: Fields, folder: Path) -> Iterator[Cell]:
    blocks = [(entry, "include") for entry in spec.include]
    if spec.matrix or not blocks:
        blocks = [(spec.matrix, "matrix"), *blocks]
    excluded = [addressed(entry, "exclude") for entry in spec.exclude]
    used = set()
    for block, where in blocks:
        for choices in _product(block, where):
            cell = _cell(shared, choices, folder)
            hits = {i for i, e in enumerate(excluded) if where == "matrix" and cell.matches(e)}
            used |= hits
            if not hits:
                yield cell
    for number, entry in enumerate(spec.exclude):
        if number not in used:
            raise ConfigError(f"exclude {entry} leaves out no cell of the matrix; mend or drop it")


def _product(block: Fields, where: str) -> Iterator[dict[str, Any]]:
    """Every combination of the values of `block`, by address."""
    addressed(block, where)
    axes = [[_patch(name, v, where) for v in listed(values)] for name, values in block.items()]
    for name, axis in zip(block, axes, strict=True):
        if not axis:
            raise ConfigError(f"{where}: {name} has no values; give a list of them")
    if (combinations := math.prod(map(len, axes))) > _MOST_CELLS:
        raise ConfigError(
            f"{where} has {combinations:,} combinations, and a sweep at most {_MOST_CELLS:,}"
        )
    for combination in itertools.product(*axes):
        yield {address: value for patch in combination for address, value in patch.items()}


def _patch(name: str, value: Any, where: str) -> dict[str, Any]:
    """One value of an axis, by address; a mapping of fields sets several at once."""
    several = isinstance(value, dict) and name not in MAPPINGS
    fields = value if several else {name: value}
    by_address = addressed(fields, f"{where}, {name}")
    if several and name not in fields:
        raise ConfigError(f"{where}: a value of {name} that sets several fields must set {name}")
    return by_address


def _cell(shared: Fields, choices: Fields, folder: Path) -> Cell:
    shown = ", ".join(f"{name}={value}" for name, value in choices.items())
    try:
        config = make_config(nested(choices), base=nested(shared))
        settings = _compile_settings({**shared, **choices})
        if config.compiled is not None:
            if settings is not None:
                raise ConfigError("a compiled program is not compiled again; drop one of the two")
            fields = compiled_fields(config.compiled)  # which a choice may not contradict
            config = make_config(nested(choices), base={**nested(shared), **fields})
        check(config)
        return _placed(config, settings, folder)
    except RagbenchError as error:
        raise ConfigError(f"cell {shown or 'of the file'}: {error}") from None


def _compile_settings(fields: Fields) -> CompileConfig | None:
    if fields.get("compile") is not None:  # those of a mapping stand by themselves
        raise ConfigError(f"compile={fields['compile']!r} is no mapping of fields such as preset")
    optimizer = fields.get("optimizer")
    if optimizer in (None, "none"):
        return None
    given = {**nested_compile(fields), "optimizer": optimizer}
    settings = resolve(CompileConfig, "compile", given)
    OPTIMIZERS.get(settings.optimizer)(settings.preset, **settings.opt_set)
    return settings


def _placed(config: RunConfig, settings: CompileConfig | None, folder: Path) -> Cell:
    """The cell with its folders, whose names are decided by all that decides its records."""
    if settings is None:
        return Cell("", config.but(out=folder / "cells" / config.name()))
    if config.data.split != "test":
        raise ConfigError(f"compiling uses {config.data.split} questions; ask those of split: test")
    out = folder / "cells" / folder_name(config, settings)
    # What does not matter to a compile is no part of its name, so that cells share it.
    start = config.but(split="train", form=False, votes=1)
    program = folder / "programs" / folder_name(start, settings)
    run = config.but(out=out, compiled=program)
    return Cell("", run, settings.model_copy(update={"out": program}))


def _distinct(cells: Iterable[Cell]) -> list[Cell]:
    """The cells without those that come to the same as one before."""
    cells_of: dict[str, Cell] = {}
    for cell in cells:
        cells_of.setdefault(json.dumps(cell.facts, sort_keys=True), cell)
    folders: dict[Path, Cell] = {}
    for cell in cells_of.values():
        other = folders.setdefault(cell.folder, cell)
        if other is not cell:
            name = next(n for n in cell.facts if cell.facts[n] != other.facts[n])
            raise ConfigError(
                f"two cells differ in nothing but {name} ({other.facts[name]} and "
                f"{cell.facts[name]}), which changes no answer, so they would be one run; give all "
                "cells the same"
            )
    if not cells_of:
        raise ConfigError("every cell is excluded; nothing is left to run")
    return list(cells_of.values())


def _pairs(cells: Sequence[Cell], spec: SweepFields) -> dict[str, str]:
    """The baseline of each cell: the only one, or of several the one alike in all else that varies.

    Raises:
        ConfigError: no cell is a baseline, or several are one cell's.
    """
    if spec.baseline is None:
        return {}
    wanted = addressed(spec.baseline, "baseline")
    bases = [cell for cell in cells if cell.matches(wanted)]
    if not bases:
        raise ConfigError(f"baseline {spec.baseline} is no cell; the cells: {_names(cells)}")
    blocks = (spec.matrix, *spec.include)
    axes = dict.fromkeys(a for block in blocks for choices in _product(block, "") for a in choices)
    varied = [address for address in axes if address not in wanted]
    pairs = {}
    for cell in (cell for cell in cells if cell not in bases):
        like = bases if len(bases) == 1 else [base for base in bases if base.alike(cell, varied)]
        if len(like) > 1:
            raise ConfigError(
                f"baseline {spec.baseline} is {len(like)} cells for {cell.label} "
                f"({_names(like)}); say more of it"
            )
        if like:
            pairs[cell.label] = like[0].label
    return pairs


def _names(cells: Sequence[Cell]) -> str:
    more = f"; and {len(cells) - 8} more" if len(cells) > 8 else ""
    return "; ".join(cell.label for cell in cells[:8]) + more
