"""Seeded train, validation and test splits, disjoint by id, question and passage.

Questions that share a gold passage or a sub-question vary together: a program that finds or misses
a passage does so for every question that needs it. Such questions form a cluster in a test. A
training set must not contain a question that is linked with a held-out one.
"""

import math
import random
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate, chain
from types import MappingProxyType
from typing import Literal, NamedTuple, get_args

import dspy

from ragbench.data.base import Split
from ragbench.data.clusters import linked, links
from ragbench.errors import ConfigError
from ragbench.text_normalization import question_key

Shares = tuple[float, float, float]
#: Default shares of train, validation and test.
FRACTIONS = "0.4,0.2,0.4"
Disjoint = Literal["passages", "questions"]

_NAMES: tuple[Split, ...] = get_args(Split)
#: Precedence of splits for a question that is in several of them. None: in no split yet.
_PRECEDENCE = ("test", "validation", "train", None)


class Splits(NamedTuple):
    """Examples by split, and how many were dropped as duplicates or for held-out links."""

    examples: dict[Split, list[dspy.Example]]
    duplicates: int
    overlapping: int = 0
    disjoint: Disjoint = "questions"


def split_examples(
    examples: Sequence[dspy.Example],
    *,
    seed: int,
    fractions: Shares,
    assigned: Mapping[str, Split] = MappingProxyType({}),
    in_order: Collection[str] = (),
    contexts: Mapping[str, Sequence[int]] = MappingProxyType({}),
) -> Splits:
    """Shuffle the examples with a seed and cut them into splits.

    The first n examples of a split are the same for every n. Linked questions go into one split.
    Questions that are linked with an assigned one are dropped. This rule is not applied if two
    assigned splits are linked, if a size would be off by more than 2 % of the questions, or if more
    than half of the questions to cut would be dropped.

    Args:
        examples: Examples.
        seed: Seed.
        fractions: Shares of train, validation and test.
        assigned: Split of each question id that has one already, such as an official evaluation
            part. Only these questions are in that split. The others are cut into the other splits.
        in_order: Splits that keep their order.
        contexts: Own passages of each question id. Of examples with the same question and passages
            one remains: test before validation before train. If the passages differ, the others
            follow the first into its split.

    Returns:
        The splits.
    """
    unique, followers = _without_duplicates(examples, assigned, contexts)
    fixed: dict[Split, list[dspy.Example]] = {name: [] for name in _NAMES}
    unassigned: list[dspy.Example] = []
    for example in unique:
        (fixed[assigned[example.qid]] if example.qid in assigned else unassigned).append(example)
    # One generator per part: the order of one must not depend on the length of the other.
    random.Random(f"{seed}:rest").shuffle(unassigned)
    for name, members in fixed.items():
        if name not in in_order:
            seeded_as = "held-out" if name == "test" else name
            random.Random(f"{seed}:{seeded_as}").shuffle(members)
    shares = [0.0 if members else f for members, f in zip(fixed.values(), fractions, strict=True)]
    if not any(shares):  # The first split without assigned questions takes all.
        shares[next((i for i, members in enumerate(fixed.values()) if not members), 0)] = 1.0
    cut = _apart(unassigned, list(fixed.values()), shares)
    overlapping = 0
    kind: Disjoint = "questions"
    if cut:
        overlapping = len(unassigned) - sum(map(len, cut))
        kind = "passages"
    else:
        a, b, _ = accumulate(_targets(len(unassigned), shares))
        cut = [unassigned[:a], unassigned[a:b], unassigned[b:]]
    by_split: dict[Split, list[dspy.Example]] = {}
    for (name, own), new in zip(fixed.items(), cut, strict=True):
        by_split[name] = []
        for example in (*own, *new):
            by_split[name] += [example, *followers[example.qid]]
    kept = len(unique) + sum(map(len, followers.values()))
    return Splits(by_split, len(examples) - kept, overlapping, kind)


def _without_duplicates(
    examples: Sequence[dspy.Example],
    assigned: Mapping[str, Split],
    contexts: Mapping[str, Sequence[int]],
) -> tuple[list[dspy.Example], dict[str, list[dspy.Example]]]:
    """Return the first example of each question, and by its id those over other passages."""
    unique: dict[str, dspy.Example] = {}
    followers: dict[str, list[dspy.Example]] = {}
    for example in sorted(examples, key=lambda e: _PRECEDENCE.index(assigned.get(e.qid))):
        first = unique.setdefault(question_key(example.question), example)
        alike = [first, *followers.setdefault(first.qid, [])]
        is_new = all(contexts.get(example.qid) != contexts.get(other.qid) for other in alike)
        if is_new and assigned.get(example.qid) == assigned.get(first.qid):
            followers[first.qid].append(example)
    return list(unique.values()), followers


def _apart(
    unassigned: list[dspy.Example],
    fixed: Sequence[Sequence[dspy.Example]],
    shares: Sequence[float],
) -> list[list[dspy.Example]]:
    """Cut the examples that are linked with none in `fixed`. Empty if the data do not allow it."""
    held = [set(chain.from_iterable(map(links, members))) for members in fixed]
    taken = set().union(*held)
    lone = [example for example in unassigned if taken.isdisjoint(links(example))]
    if sum(map(len, held)) != len(taken) or len(lone) < len(unassigned) / 2:
        return []
    targets = _targets(len(lone), shares)
    cut = _by_passage(lone, targets)
    off = max(abs(len(members) - target) for members, target in zip(cut, targets, strict=True))
    return cut if off <= max(1, 0.02 * len(lone)) else []


def _targets(n: int, shares: Sequence[float]) -> list[int]:
    """Return the sizes of train, validation and test for `n` examples in these shares."""
    train, validation, test = (share / sum(shares) for share in shares)
    end_of_train = n if not validation + test else round(n * train)
    end_of_validation = n if not test else round(n * (train + validation))
    return [end_of_train, end_of_validation - end_of_train, n - end_of_validation]


def _by_passage(examples: list[dspy.Example], targets: Sequence[int]) -> list[list[dspy.Example]]:
    """Cut the examples and keep linked ones together.

    The largest groups come first, and each goes to the split that lacks the most. Splits keep the
    order of `examples`. If nothing is linked, the splits are consecutive parts.
    """
    groups: dict[int, list[int]] = defaultdict(list)
    for i, root in enumerate(linked(list(map(links, examples)))):
        groups[root].append(i)
    lacking = list(targets)
    places = [0] * len(examples)
    for group in sorted(groups.values(), key=len, reverse=True):
        most = max(range(3), key=lacking.__getitem__)
        place = next((p for p in range(3) if lacking[p] >= len(group) == 1), most)
        lacking[place] -= len(group)
        for i in group:
            places[i] = place
    cut: list[list[dspy.Example]] = [[], [], []]
    for example, place in zip(examples, places, strict=True):
        cut[place].append(example)
    return cut


def parse_fractions(text: str) -> Shares:
    """Parse shares such as `0.4,0.2,0.4`. Raises ConfigError if they are invalid."""
    with suppress(ValueError):
        train, validation, test = shares = tuple(map(float, text.split(",")))
        if min(shares) >= 0 and math.isclose(sum(shares), 1.0, abs_tol=1e-6):
            return train, validation, test
    raise ConfigError(f"fractions must be three shares that sum to 1, not {text!r}")
