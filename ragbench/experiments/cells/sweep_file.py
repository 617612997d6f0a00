"""Sweep files: the cells of a sweep, each a whole config, checked before anything runs.

A sweep file is a config file (`inherits:` works) with the fields of a run and of a compile that all
cells share, and a `matrix` of their differences. The matrix has the shape of a config, with a list
of values in place of a value: `{k: [3, 5], set: {max_steps: [2, 4]}}`.

A *leaf* is a field, or a key of a field that holds a mapping: `retriever`, `set.max_steps`.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain, product, starmap
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from ragbench.errors import ConfigError, RagbenchError
from ragbench.experiments.cells.cell import CELLS, PROGRAMS, Cell
from ragbench.experiments.config import (
    CompileConfig,
    RunConfig,
    check_names,
    leaves_of,
    load_config,
    make_config,
    merge,
    with_k,
)
from ragbench.experiments.plans import folder_name, make_optimizer
from ragbench.experiments.runs.compiled import compiled_fields
from ragbench.experiments.runs.summary import HEADLINE
from ragbench.knobs import Knobs, resolve
from ragbench.metrics import get_metric

Fields = Mapping[str, Any]

#: Leaves that labels show first, as a value without a name.
_PLAIN = ("program", "set.variant", "optimizer", "retriever", "lm", "dataset")
#: Leaves in which the cells of one arm differ, whose scores are pooled.
_POOLED = ("seed", "repeat", "optimizer_seed")
#: Fields of a compile; its folder is the sweep's to choose.
_COMPILE_FIELDS = tuple(name for name in CompileConfig.model_fields if name != "out")
_MOST_CELLS = 2_000


class Published(BaseModel):
    """Published figures of some cells.

    Attributes:
        cell: Values of the leaves of these cells.
        source: Publication, table and setting.
        figures: Value by metric, or by calls, tokens, p50 and p95 (seconds).
    """

    model_config = ConfigDict(extra="forbid")

    cell: dict[str, Any]
    source: str
    figures: dict[str, float]

    def is_of(self, cell: Cell) -> bool:
        """Return True if these are figures of `cell`."""
        values = leaves_of(with_k(self.cell))
        return _alike(cell.leaves, values, values)


class SweepFields(Knobs):
    """Keys of a sweep file, in addition to the fields of a run that all cells share."""

    matrix: dict[str, Any] = Field({}, description="field -> values; every combination is a cell")
    include: tuple[dict[str, Any], ...] = Field((), description="more cells, or small matrices")
    baseline: dict[str, Any] | tuple[dict[str, Any], ...] | None = Field(
        None, description="the cells to compare others with; of several, the first that fits a cell"
    )
    metrics: tuple[str, ...] = Field(HEADLINE, min_length=1, description="metrics to compare")
    margin: float | None = Field(None, gt=0, description="difference too small to matter")
    published: tuple[Published, ...] = Field((), description="figures to print next to ours")


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
    published: tuple[Published, ...] = ()


def load_sweep(
    path: str | Path,
    *,
    out: Path | None = None,
    over: Fields | None = None,
    only: Mapping[str, str] | None = None,
) -> Sweep:
    """Load a sweep file and check every name and parameter of every cell; loads no data.

    Args:
        path: The file, or the name of a shipped sweep.
        out: Folder of the sweep. None takes `sweeps/` and the file's name.
        over: Fields of a run that replace those that the cells share.
        only: Leaf -> value, or a part of a path. Other cells are left out.

    Raises:
        ConfigError: A cell is wrong, or `only` leaves none.
    """
    fields = load_config(path)
    spec = resolve(SweepFields, f"sweep {path}", _taken(fields, SweepFields.model_fields))
    chosen_out = fields.pop("out", None)
    folder = Path(out or chosen_out or Path("sweeps") / Path(path).stem)
    shared = merge(fields, over or {})
    _check(shared, path, SweepFields.model_fields)
    for name in spec.metrics:
        get_metric(name)
    blocks = list(spec.include)
    if spec.matrix or not spec.include:
        blocks.insert(0, spec.matrix)
    for block in blocks:
        seeds = block.get("seed")
        if isinstance(seeds, list) and len(seeds) > 1:  # All use the first seed's questions.
            shared.setdefault("split_seed", seeds[0])
    cells: dict[Path, Cell] = {}
    for block in blocks:
        _check(block, path)
        for choices in _product(block):
            cell = _cell(shared, choices, folder)
            earlier = cells.setdefault(cell.folder, cell)  # cells that come to the same are one
            configs = [c.config.but(set={}, retriever_set={}) for c in (earlier, cell)]
            if configs[0] != configs[1]:
                raise ConfigError(
                    f"cells {earlier.label} and {cell.label} would be one run: what differs "
                    "changes no answer; give all cells the same"
                )
    # Group cells by data set, so that each is loaded once.
    data = [cell.config.data_settings() for cell in cells.values()]
    every = sorted(cells.values(), key=lambda cell: data.index(cell.config.data_settings()))
    named = _labelled(every)
    axes = set(chain.from_iterable(leaves_of(with_k(block)) for block in blocks))
    baselines = (spec.baseline,) if isinstance(spec.baseline, dict) else spec.baseline
    pairs: dict[str, str] = {}
    for baseline in baselines or ():  # The first that fits a cell counts.
        pairs = {**_pairs(named, baseline, axes), **pairs}
    if only:
        chosen = [cell for cell in named if _is_chosen(cell, only)]
        if not chosen:
            words = ", ".join(f"{leaf}={value}" for leaf, value in only.items())
            raise ConfigError(f"--only {words} leaves no cell; the cells: {_names(named)}")
        labels = {cell.label for cell in chosen}
        pairs = {a: b for a, b in pairs.items() if {a, b} <= labels}
        named = chosen
    return Sweep(folder, named, pairs, spec.metrics, spec.margin, spec.published)


def _check(fields: Fields, path: str | Path, own: Iterable[str] = ()) -> None:
    """Raise KnobError for a name that is not a field of a run or a compile, or in `own`."""
    check_names(fields, f"sweep {path}", also=(*_COMPILE_FIELDS, *own))


def _product(block: Fields) -> Iterator[dict[str, Any]]:
    """Yield the fields of every combination of the values of `block`."""
    axes = list(chain.from_iterable(starmap(_axes, block.items())))
    combinations = math.prod(map(len, axes))
    if combinations > _MOST_CELLS:
        raise ConfigError(
            f"a matrix has {combinations:,} combinations, and a sweep at most {_MOST_CELLS:,}"
        )
    for combination in product(*axes):
        yield reduce(merge, combination, {})


def _axes(name: str, values: Any) -> Iterator[list[dict[str, Any]]]:
    """Yield each axis as a list of the fields that its values set.

    A field that holds a mapping has an axis for each key. For other fields, a value that is a
    mapping sets several fields, including the field itself.
    """
    if isinstance(values, Mapping) and _holds_mapping(name):
        for key, inner in values.items():
            yield [{name: {key: value}} for value in _listed(f"{name}.{key}", inner)]
        return
    axis = []
    for value in _listed(name, values):
        several = isinstance(value, Mapping) and not _holds_mapping(name)
        if several and name not in value:
            raise ConfigError(f"a value of {name} that sets several fields must set {name}")
        axis.append(with_k(value) if several else with_k({name: value}))
    yield axis


def _listed(leaf: str, values: Any) -> list[Any]:
    """Return `values` as a list. Raises ConfigError if it is empty."""
    listed = values if isinstance(values, list) else [values]
    if not listed:
        raise ConfigError(f"{leaf} has no values; give a list of them")
    return listed


def _holds_mapping(name: str) -> bool:
    field = RunConfig.model_fields.get(name) or CompileConfig.model_fields.get(name)
    return field is not None and isinstance(field.default, dict)


def _cell(shared: Fields, choices: Fields, folder: Path) -> Cell:
    """Build a cell. The names of its folders depend on everything that affects its records."""
    fields = merge(shared, choices)
    choice_words = ", ".join(f"{leaf}={value}" for leaf, value in leaves_of(choices).items())
    try:
        _check(choices, "cell")
        own = _taken(fields, _COMPILE_FIELDS)
        settings = None
        if own.get("optimizer") not in (None, "none"):
            settings = resolve(CompileConfig, "compile", own)
            make_optimizer(settings)
        base = {name: value for name, value in shared.items() if name in fields}
        over = {name: value for name, value in choices.items() if name in fields}
        config = make_config(over, base=base)
        if config.compiled is not None:
            if settings is not None:
                raise ConfigError("a compiled program is not compiled again; drop one of the two")
            # Choices must agree with the settings of the compile.
            stored = compiled_fields(config.compiled)
            config = make_config(over, base=base, stored=stored, owner=str(config.compiled))
        out = folder / CELLS / (folder_name(config, settings) if settings else config.name())
        if settings is not None:
            if config.split != "test":
                raise ConfigError(
                    f"compiling uses {config.split} questions; ask those of split: test"
                )
            # Name a compile only after the settings that affect it, so that cells share it.
            start = config.but(split="train", form=False, votes=1)
            program = folder / PROGRAMS / folder_name(start, settings)
            settings = settings.model_copy(update={"out": program})
            config = config.but(compiled=program)
    except RagbenchError as error:
        raise ConfigError(f"cell {choice_words or 'of the file'}: {error}") from None
    leaves = {"program": config.program, **leaves_of(merge(shared, choices))}
    if settings is None:
        for leaf in [leaf for leaf in leaves if leaf.partition(".")[0] in _COMPILE_FIELDS]:
            del leaves[leaf]
        leaves["optimizer"] = None
    return Cell(choice_words or "of the file", config.but(out=out), settings, leaves)


def _taken(fields: dict[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """Remove `keys` from `fields` and return the removed ones."""
    return {key: fields.pop(key) for key in keys if key in fields}


def _labelled(cells: Sequence[Cell]) -> list[Cell]:
    """Label the cells by as few of the differing leaves as make the labels unique."""
    leaves = dict.fromkeys(_PLAIN)
    for cell in cells:
        leaves |= dict.fromkeys(cell.leaves)
    for leaf in _POOLED:  # last, so that the others alone tell arms apart
        leaves.pop(leaf, None)
    label_leaves: list[str] = []
    texts = [""] * len(cells)  # cells that are alike in the leaves shown have one text
    for leaf in (*leaves, *_POOLED):
        finer = [f"{text}, {c.leaves.get(leaf)}" for text, c in zip(texts, cells, strict=True)]
        if not label_leaves or len({*finer}) > len({*texts}):
            label_leaves.append(leaf)
            texts = finer
    labelled = []
    for cell in cells:
        words = {}
        for leaf in label_leaves:
            value = cell.leaves.get(leaf)
            if leaf == "set.variant" and value in ("", "default"):
                value = None
            if value is not None:
                words[leaf] = str(value) if leaf in _PLAIN else f"{leaf.rpartition('.')[2]}={value}"
        label = ", ".join(filter(None, words.values()))
        for leaf in _POOLED:
            words.pop(leaf, None)
        labelled.append(replace(cell, label=label, arm=", ".join(filter(None, words.values()))))
    return labelled


def _pairs(cells: Sequence[Cell], baseline: Fields, axes: set[str]) -> dict[str, str]:
    """Map each cell to its baseline: the only one, or the one that is equal on the other axes."""
    values = leaves_of(with_k(baseline))
    if values.get("optimizer") == "none":
        values["optimizer"] = None
    bases = [cell for cell in cells if _alike(cell.leaves, values, values)]
    if not bases:
        raise ConfigError(f"baseline {baseline} is not a cell; choose from: {_names(cells)}")
    pairs = {}
    for cell in (cell for cell in cells if cell not in bases):
        candidates = bases
        if len(bases) > 1:
            shared = (axes - values.keys()) & cell.leaves.keys()
            candidates = []
            for base in bases:
                if _alike(base.leaves, cell.leaves, shared & base.leaves.keys()):
                    candidates.append(base)
        if len(candidates) > 1:  # Values of one axis may set more fields.
            same = [b for b in candidates if {**b.leaves, **values} == {**cell.leaves, **values}]
            candidates = same or candidates
        if len(candidates) > 1:
            raise ConfigError(
                f"baseline {baseline} is {len(candidates)} cells for {cell.label} "
                f"({_names(candidates)}); say more of it"
            )
        if candidates:
            pairs[cell.label] = candidates[0].label
    return pairs


def _is_chosen(cell: Cell, only: Mapping[str, str]) -> bool:
    """Return True if each leaf has its value. The data set is also known by its file's folder."""
    for leaf, value in only.items():
        texts = [str(cell.leaves.get(leaf))]
        if leaf == "dataset":
            texts.append(str(cell.config.data_file))
        if not any(value == text or value in Path(text).parts for text in texts):
            return False
    return True


def missing_file(cell: Cell) -> Path | None:
    """Return a file of questions or passages that the cell names and that does not exist."""
    for name in ("data_file", "test_file", "train_file", "val_file", "corpus_file"):
        path = getattr(cell.config, name)
        if path is not None and "://" not in str(path) and not Path(path).exists():
            return Path(path)
    return None


def _alike(a: Fields, b: Fields, leaves: Iterable[str]) -> bool:
    """Return True if `a` and `b` are equal in all of `leaves`."""
    return all(a.get(leaf) == b.get(leaf) for leaf in leaves)


def _names(cells: Sequence[Cell]) -> str:
    ending = f"; and {len(cells) - 8} more" if len(cells) > 8 else ""
    return "; ".join(cell.label for cell in cells[:8]) + ending
