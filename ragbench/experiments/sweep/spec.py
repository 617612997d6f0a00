"""What a sweep file asks for: its cells, each a whole config, checked before anything runs.

A sweep file is a config file (`inherits:` works) whose fields all cells share, with a `matrix` of
what differs on top.

An address names what differs between cells: a field of a run (`retriever`), a key of one that holds
a mapping (`set.max_steps`, `retriever_set.k1`, `lm_for.plan`), `variant`, `optimizer`, or a field
of a compile (`compile.preset`, `compile.opt_set.rounds`).
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
from ragbench.experiments.runs.context import compiled_fields
from ragbench.experiments.runs.summary import HEADLINE
from ragbench.knobs import Knobs, resolve
from ragbench.metrics import get_metric
from ragbench.optimizers import OPTIMIZERS

Fields = Mapping[str, Any]

#: Addresses whose values need no name beside them in a label; they also come first in one.
_PLAIN = ("program", "set.variant", "optimizer", "retriever", "lm", "dataset")
#: Fields that hold a mapping, whose keys are addresses.
_MAPPINGS = ("set", "retriever_set", "lm_for", "compile", "compile.opt_set")
#: Names that are another address.
_SAME = {"variant": "set.variant", "k": "set.k"}
_MOST_CELLS = 2_000


@dataclass(frozen=True)
class Cell:
    """One run of a sweep; with `settings` its program is compiled first, into `settings.out`.

    `given` is all that the file says of it, by address.
    """

    label: str
    config: RunConfig
    settings: CompileConfig | None
    given: Fields

    @property
    def folder(self) -> Path:
        return self.config.folder()

    @property
    def program(self) -> Path | None:
        """The folder of the program that it compiles first, if it does."""
        return self.settings.out if self.settings else None


class SweepFields(Knobs):
    """The keys of a sweep file beside the fields of a run, which all cells share."""

    matrix: dict[str, Any] = Field({}, description="address -> values; every combination is a cell")
    include: tuple[dict[str, Any], ...] = Field((), description="more cells, or small matrices")
    baseline: dict[str, Any] | None = Field(None, description="the cells to compare others with")
    metrics: tuple[str, ...] = Field(HEADLINE, min_length=1, description="what is compared")
    margin: float | None = Field(None, gt=0, description="difference too small to matter")


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
    """
    fields = flatten(load_config(path))
    own = {key: fields.pop(key) for key in list(fields) if key in SweepFields.model_fields}
    spec = resolve(SweepFields, f"sweep {path}", own)
    given_out = fields.pop("out", None)
    folder = Path(out or given_out or Path("sweeps") / Path(path).stem)
    shared = {**_flat(fields), **(over or {})}
    choices = [*FLAT, *SweepFields.model_fields, *_SAME, "optimizer", *_MAPPINGS]
    for address in shared:
        if address not in choices and address.partition(".")[0] not in _MAPPINGS:
            raise UnknownNameError(f"key of {path}", address, choices)
    for name in spec.metrics:
        get_metric(name)
    blocks = [spec.matrix, *spec.include] if spec.matrix or not spec.include else spec.include
    cells: dict[Path, Cell] = {}
    for cell in (_cell(shared, each, folder) for block in blocks for each in _product(block)):
        other = cells.setdefault(cell.folder, cell)  # cells that come to the same are one
        one, two = (c.config.but(set={}, retriever_set={}) for c in (other, cell))
        if one != two:
            raise ConfigError(
                f"cells {other.label} and {cell.label} would be one run: what differs changes no "
                "answer; give all cells the same"
            )
    # Cells of one data set stand next to each other, so that it is loaded once.
    data = [cell.config.data_spec() for cell in cells.values()]
    every = sorted(cells.values(), key=lambda cell: data.index(cell.config.data_spec()))
    named = _labelled(every)
    axes = {_SAME.get(name, name) for block in blocks for name in block}
    return Sweep(folder, named, _pairs(named, spec.baseline, axes), spec.metrics, spec.margin)


def _flat(fields: Fields, under: str = "") -> dict[str, Any]:
    """`fields` by address: those that hold a mapping are taken apart."""
    by_address: dict[str, Any] = {}
    for name, value in fields.items():
        address = _SAME.get(under + name, under + name)
        if address in _MAPPINGS and isinstance(value, dict):
            by_address |= _flat(value, f"{address}.")
        else:
            by_address[address] = None if (address, value) == ("optimizer", "none") else value
    return by_address


def _nested(by_address: Fields) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for address, value in by_address.items():
        *above, last = address.split(".")
        at = fields
        for name in above:
            at = at.setdefault(name, {})
        at[last] = value
    return fields


def _product(block: Fields) -> Iterator[dict[str, Any]]:
    """Every combination of the values of `block`, by address.

    A value that is a mapping of fields sets them all, the one that it is a value of among them.
    """
    axes = []
    for name, values in block.items():
        patches = []
        for value in values if isinstance(values, list) else [values]:
            several = isinstance(value, dict) and name not in _MAPPINGS
            if several and name not in value:
                raise ConfigError(f"a value of {name} that sets several fields must set {name}")
            patches.append(_flat(value if several else {name: value}))
        if not patches:
            raise ConfigError(f"{name} has no values; give a list of them")
        axes.append(patches)
    if (combinations := math.prod(map(len, axes))) > _MOST_CELLS:
        raise ConfigError(
            f"a matrix has {combinations:,} combinations, and a sweep at most {_MOST_CELLS:,}"
        )
    for combination in itertools.product(*axes):
        yield {address: value for patch in combination for address, value in patch.items()}


def _cell(shared: Fields, choices: Fields, folder: Path) -> Cell:
    """The cell with its folders, whose names are decided by all that decides its records."""
    shown = ", ".join(f"{name}={value}" for name, value in choices.items()) or "of the file"
    base, over, both = map(_nested, (shared, choices, {**shared, **choices}))
    for fields in (base, over):
        for name in ("optimizer", "compile"):
            fields.pop(name, None)
    try:
        config = make_config(over, base=base)
        settings = _compile_settings(both)
        if config.compiled is not None:
            if settings is not None:
                raise ConfigError("a compiled program is not compiled again; drop one of the two")
            # A choice may not contradict what it was compiled with.
            config = make_config(over, base={**base, **compiled_fields(config.compiled)})
        out = folder / "cells" / (folder_name(config, settings) if settings else config.name())
        if settings is not None:
            if config.data.split != "test":
                raise ConfigError(
                    f"compiling uses {config.data.split} questions; ask those of split: test"
                )
            # What does not matter to a compile is no part of its name, so that cells share it.
            start = config.but(split="train", form=False, votes=1)
            program = folder / "programs" / folder_name(start, settings)
            settings = settings.model_copy(update={"out": program})
            config = config.but(compiled=program)
    except RagbenchError as error:
        raise ConfigError(f"cell {shown}: {error}") from None
    return Cell(
        shown, config.but(out=out), settings, {"program": config.program, **shared, **choices}
    )


def _compile_settings(fields: Fields) -> CompileConfig | None:
    given, optimizer = fields.get("compile", {}), fields.get("optimizer")
    if not isinstance(given, dict):
        raise ConfigError(f"compile={given!r} is no mapping of fields such as preset")
    if optimizer is None:
        return None
    settings = resolve(CompileConfig, "compile", {**given, "optimizer": optimizer})
    OPTIMIZERS.get(settings.optimizer)(settings.preset, **settings.opt_set)
    return settings


def _labelled(cells: Sequence[Cell]) -> list[Cell]:
    """The cells, each labelled by as few of the things that differ as tell all apart."""
    kept, told = list[str](), [""] * len(cells)  # cells that are not told apart have one text
    for address in dict.fromkeys([*_PLAIN, *(a for cell in cells for a in cell.given)]):
        pairs = zip(told, cells, strict=True)
        finer = [f"{text}, {cell.given.get(address)}" for text, cell in pairs]
        if not kept or len({*finer}) > len({*told}):
            kept.append(address)
            told = finer
    named = []
    for cell in cells:
        words = (_word(address, cell.given.get(address)) for address in kept)
        named.append(replace(cell, label=", ".join(filter(None, words))))
    return named


def _word(address: str, value: Any) -> str:
    if value is None or (address == "set.variant" and value in ("", "default")):
        return ""
    return str(value) if address in _PLAIN else f"{address.rpartition('.')[2]}={value}"


def _pairs(cells: Sequence[Cell], baseline: Fields | None, axes: set[str]) -> dict[str, str]:
    """The baseline of each cell: the only one, or of several the one alike on the other axes."""
    if baseline is None:
        return {}
    wanted = _flat(baseline)
    bases = [c for c in cells if all(c.given.get(a) == value for a, value in wanted.items())]
    if not bases:
        raise ConfigError(f"baseline {baseline} is no cell; the cells: {_names(cells)}")
    pairs = {}
    for cell in (cell for cell in cells if cell not in bases):
        like = [
            base
            for base in bases
            if len(bases) == 1
            or all(
                cell.given[axis] == base.given[axis]
                for axis in axes - wanted.keys()
                if axis in cell.given and axis in base.given
            )
        ]
        if len(like) > 1:  # values of one axis that differ in further fields alone
            same = [b for b in like if {**b.given, **wanted} == {**cell.given, **wanted}]
            like = same or like
        if len(like) > 1:
            raise ConfigError(
                f"baseline {baseline} is {len(like)} cells for {cell.label} "
                f"({_names(like)}); say more of it"
            )
        if like:
            pairs[cell.label] = like[0].label
    return pairs


def _names(cells: Sequence[Cell]) -> str:
    more = f"; and {len(cells) - 8} more" if len(cells) > 8 else ""
    return "; ".join(cell.label for cell in cells[:8]) + more
