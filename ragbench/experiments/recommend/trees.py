"""Shallow decision trees that choose a program for a question, by exhaustive search.

With every program's score of every question known, the tree that would have scored best can be
found outright: of all trees of depth one or two over the given splits (policy trees of Zhou, Athey
and Wager 2023, arXiv:1810.04778, whose scores are estimated where ours are observed).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

#: Bounds tried per feature at the most, at its quantiles.
BOUNDS = 9
DEEPEST = 2


@dataclass(frozen=True)
class Choice:
    """A leaf: the number of the program."""

    program: int


@dataclass(frozen=True)
class Branch:
    """A split by its number: `yes` for the questions that it holds for."""

    split: int
    yes: Tree
    no: Tree


Tree = Choice | Branch


@dataclass(frozen=True)
class Splits:
    """Ways to cut questions in two: `holds` `(questions, splits)`, and what each of them asks."""

    holds: Bools
    features: tuple[str, ...]
    bounds: tuple[float, ...]


def make_splits(names: Sequence[str], values: Floats) -> Splits:
    """The splits of `values` `(questions, features)`: halfway between neighbours, at quantiles."""
    columns: list[Bools] = []
    features: list[str] = []
    bounds: list[float] = []
    seen: set[bytes] = set()
    for name, column in zip(names, values.T, strict=True):
        for bound in _bounds(column):
            holds = column >= bound
            if holds.tobytes() not in seen:
                seen.add(holds.tobytes())
                columns.append(holds)
                features.append(name)
                bounds.append(bound)
    made = np.stack(columns, axis=1) if columns else np.zeros((len(values), 0), dtype=bool)
    return Splits(made, tuple(features), tuple(bounds))


def _bounds(column: Floats) -> list[float]:
    values = np.unique(column)
    halfway = (values[1:] + values[:-1]) / 2
    if len(halfway) <= BOUNDS:
        return [float(bound) for bound in halfway]
    wanted = np.quantile(column, np.linspace(0, 1, BOUNDS + 2)[1:-1])
    at = np.unique(np.abs(halfway[None, :] - wanted[:, None]).argmin(axis=1))
    return [float(bound) for bound in halfway[at]]


def assign(tree: Tree, holds: Bools) -> NDArray[np.int64]:
    """The program of each question, for `holds` `(questions, splits)`."""
    if isinstance(tree, Choice):
        return np.full(len(holds), tree.program, dtype=np.int64)
    yes, no = assign(tree.yes, holds), assign(tree.no, holds)
    return np.where(holds[:, tree.split], yes, no)


def best_trees(worth: Floats, holds: Bools, least: int) -> list[Tree]:
    """The best tree of each depth, from 0 to `DEEPEST`, for `worth` `(questions, programs)`.

    No leaf has fewer than `least` questions. Of equals the simpler tree wins.
    """
    n, shown = len(worth), holds.astype(np.float64)
    total = worth.sum(axis=0)  # (programs,)
    none = Choice(int(total.argmax()))
    if not shown.shape[1]:
        return [none] * (DEEPEST + 1)
    right = shown.T @ worth  # (splits, programs): sums where the split holds
    count = shown.sum(axis=0)
    one, value_one = _depth_one(right, total - right, count, n - count, least)
    simple = float(total.max())
    depth_one = one if value_one > simple + 1e-9 else none
    depth_two = _depth_two(worth, shown, right, total, least, max(value_one, simple), depth_one)
    return [none, depth_one, depth_two]


def _depth_one(
    yes: Floats, no: Floats, n_yes: Floats, n_no: Floats, least: int
) -> tuple[Tree, float]:
    """The best split by its sums on both sides, and what it comes to."""
    value = np.where((n_yes >= least) & (n_no >= least), yes.max(axis=1) + no.max(axis=1), -np.inf)
    at = int(value.argmax())
    return (
        Branch(at, Choice(int(yes[at].argmax())), Choice(int(no[at].argmax()))),
        float(value[at]),
    )


def _depth_two(
    worth: Floats, shown: Floats, right: Floats, total: Floats, least: int, simple: float,
    otherwise: Tree,
) -> Tree:  # fmt: skip
    """The best tree whose two sides may be split again; `otherwise` where none beats `simple`."""
    n, count = len(worth), shown.sum(axis=0)
    # (splits, splits, programs): sums where both hold; (splits, splits): their numbers.
    both = np.stack([shown.T @ (shown * column[:, None]) for column in worth.T], axis=2)
    n_both = shown.T @ shown
    sides = (
        (right[:, None], both, count[:, None], n_both),
        ((total - right)[:, None], right[None] - both, (n - count)[:, None], count[None] - n_both),
    )
    values, seconds = [], []
    for whole, yes, size, n_yes in sides:
        no, n_no = whole - yes, size - n_yes
        split = yes.max(axis=2) + no.max(axis=2)
        split[(n_yes < least) | (n_no < least)] = -np.inf
        second = split.argmax(axis=1)
        best = split[np.arange(len(split)), second]
        plain = whole[:, 0].max(axis=1)
        values.append(np.where(best > plain + 1e-9, best, plain))
        seconds.append(np.where(best > plain + 1e-9, second, -1))
    value = np.where((count >= least) & (n - count >= least), values[0] + values[1], -np.inf)
    root = int(value.argmax())
    if value[root] <= simple + 1e-9:
        return otherwise
    branches = [
        _side(whole[root, 0], yes[root], int(second[root]))
        for (whole, yes, _, _), second in zip(sides, seconds, strict=True)
    ]
    return Branch(root, *branches)


def _side(whole: Floats, yes: Floats, second: int) -> Tree:
    if second < 0:
        return Choice(int(whole.argmax()))
    return Branch(
        second, Choice(int(yes[second].argmax())), Choice(int((whole - yes[second]).argmax()))
    )
