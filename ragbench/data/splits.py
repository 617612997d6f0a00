"""Train, validation and test: seeded, and disjoint by id, by normalised question and by passage.

Questions that share a gold passage or a sub-question vary together: a program that finds or misses
a passage does so for every question that needs it. Such questions are a cluster in a test, and none
of them may be in training while another is held out.
"""

import math
import random
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, get_args

import dspy

from ragbench.data.base import Disjoint, Split, question_key
from ragbench.errors import ConfigError

Shares = tuple[float, float, float]

_NAMES: tuple[Split, ...] = get_args(Split)
#: Where a question is in several splits, the first of these keeps it.
_PRECEDENCE: Mapping[Split | None, int] = {"test": 0, "validation": 1, "train": 2, None: 3}
#: The name under which the order of a given split is drawn.
_SEEDED_AS: Mapping[str, str] = {"test": "held-out"}
#: A set of linked questions larger than this share of all is taken apart again.
_LARGEST = 0.2


class Splits(NamedTuple):
    """Examples by split; how many were dropped as duplicates, or for a held-out passage."""

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
    disjoint: Disjoint | None = None,
) -> Splits:
    """The examples in a seeded order, cut into train, validation and test by `fractions`.

    Of examples that ask the same question (words, lower case) one is kept. The first n of a split
    are the same for every n, so a smaller limit is a prefix of a larger one. Where a part of the
    data set is a split already, as an official evaluation part is, `assigned` maps its qids to that
    split: they alone become it, and the others are cut into the other splits in proportion. A
    question that is in several splits is kept by test before validation and train. The splits of
    `in_order` stay in the order given.

    Questions that are linked, directly or over others, by gold passages or sub-questions go into
    one split, or are dropped where they are linked with an assigned one; with `disjoint`
    "questions" they need not, and with None they do where the shares of the splits can then be
    met within 2 % of all questions and at most half of those to be cut would be dropped.

    ConfigError where the fractions are no shares, or "passages" cannot be had.
    """
    check_fractions(fractions)
    unique: dict[str, dspy.Example] = {}
    for example in sorted(examples, key=lambda e: _PRECEDENCE[assigned.get(e.qid)]):
        unique.setdefault(question_key(example.question), example)
    kept = list(unique.values())
    fixed: dict[Split, list[dspy.Example]] = {"train": [], "validation": [], "test": []}
    for example in kept:
        if example.qid in assigned:
            fixed[assigned[example.qid]].append(example)
    rest = [example for example in kept if example.qid not in assigned]
    # One generator per part: the order of one must not hang on the length of the other.
    random.Random(f"{seed}:rest").shuffle(rest)
    for name, part in fixed.items():
        if name not in in_order:
            random.Random(f"{seed}:{_SEEDED_AS.get(name, name)}").shuffle(part)
    shares = _free_shares(fractions, taken=[name for name, part in fixed.items() if part])
    first, second, _ = _targets(len(rest), shares)
    cut = [rest[:first], rest[first : first + second], rest[first + second :]]
    overlapping = 0
    kind: Disjoint = "questions"
    if disjoint != "questions":
        held = {key for part in fixed.values() for example in part for key in links(example)}
        free = [example for example in rest if held.isdisjoint(links(example))]
        apart = _by_passage(free, _targets(len(free), shares))
        problem = _overlap(fixed) or _problem(apart, len(rest), len(free), shares)
        if problem and disjoint == "passages":
            raise ConfigError(
                f"the splits cannot share no gold passage: {problem}; "
                "use --disjoint questions, or other --fractions"
            )
        if not problem:
            cut, overlapping, kind = apart, len(rest) - len(free), "passages"
    parts = {name: [*own, *new] for (name, own), new in zip(fixed.items(), cut, strict=True)}
    return Splits(parts, len(examples) - len(kept), overlapping, kind)


def _free_shares(fractions: Shares, *, taken: Collection[Split]) -> Shares:
    """The fractions of the splits that are not taken, scaled to a sum of 1."""
    free = [0.0 if name in taken else f for name, f in zip(_NAMES, fractions, strict=True)]
    total = sum(free)
    if not total:
        first = next((i for i, name in enumerate(_NAMES) if name not in taken), 0)
        free[first] = total = 1.0
    train, validation, test = (share / total for share in free)
    return train, validation, test


def _targets(n: int, shares: Shares) -> list[int]:
    """How many of `n` examples go to train, validation and test."""
    train, validation, test = shares
    first = n if not validation + test else round(n * train)
    second = n if not test else round(n * (train + validation))
    return [first, second - first, n - second]


def _overlap(fixed: Mapping[Split, Sequence[dspy.Example]]) -> str:
    """Why splits that are given share a passage; empty where they do not."""
    seen: set[Hashable] = set()
    for part in fixed.values():
        own = {key for example in part for key in links(example)}
        if not seen.isdisjoint(own):
            return "those that are given share some"
        seen |= own
    return ""


def _by_passage(examples: list[dspy.Example], targets: Sequence[int]) -> list[list[dspy.Example]]:
    """Linked examples together: the largest sets first, each to the split that lacks the most.

    Splits keep the order of `examples`. Where nothing is linked, they are cut one after another.
    """
    groups: dict[int, list[int]] = defaultdict(list)
    for i, root in enumerate(linked([links(example) for example in examples])):
        groups[root].append(i)
    lacking, places = list(targets), [0] * len(examples)
    for group in sorted(groups.values(), key=len, reverse=True):
        fits = next((p for p in range(3) if lacking[p] >= len(group) == 1), None)
        place = max(range(3), key=lambda p: lacking[p]) if fits is None else fits
        lacking[place] -= len(group)
        for i in group:
            places[i] = place
    return [[e for e, at in zip(examples, places, strict=True) if at == p] for p in range(3)]


def _problem(
    apart: Sequence[Sequence[dspy.Example]], n_rest: int, n_free: int, shares: Shares
) -> str:
    """Why the splits `apart` will not do; empty where they will."""
    if n_free < n_rest / 2:
        return (
            f"{n_rest - n_free} of {n_rest} questions outside the official part need a "
            "passage of that"
        )
    targets = _targets(n_free, shares)
    off = max(abs(len(part) - target) for part, target in zip(apart, targets, strict=True))
    if off > max(1, 0.02 * n_free):
        sizes = "/".join(str(len(part)) for part in apart)
        return f"too many questions are linked, which would make splits of {sizes}"
    return ""


def linked(keys: Sequence[Iterable[Hashable]]) -> list[int]:
    """For each question the number of the first one that it is linked with, over any others.

    `keys` lists what each question has that others may share; two that share a key are linked.
    """
    first: dict[Hashable, int] = {}
    parent = list(range(len(keys)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for i, some in enumerate(keys):
        for key in some:
            a, b = sorted((root(first.setdefault(key, i)), root(i)))
            parent[b] = a
    return [root(i) for i in range(len(keys))]


def find_clusters(keys: Sequence[Sequence[Hashable]]) -> list[int]:
    """For each question the number of its cluster, that of a question in it.

    Clusters are the sets of linked questions. Where one set has more than a fifth of all questions
    (and more than 20), as passages that everything is linked by make it, each of its questions is
    clustered instead with those that have the same commonest key.
    """
    roots = linked(keys)
    sizes = Counter(roots)
    if max(sizes.values(), default=0) <= max(20, _LARGEST * len(keys)):
        return roots
    common = Counter(key for some in keys for key in dict.fromkeys(some))
    hubs: dict[Hashable, int] = {}
    for i, some in enumerate(keys):
        if sizes[roots[i]] > _LARGEST * len(keys):
            hub = max(some, key=lambda key: (common[key], str(key)))
            roots[i] = hubs.setdefault(hub, i)
    return roots


def links(example: dspy.Example) -> list[Hashable]:
    """Keys that link an example to others: gold passages, and sub-questions with answers."""
    parts = [(part["question"], part["answer"]) for part in example.decomposition]
    return [*example.gold_pids, *parts]


def parse_fractions(text: str) -> Shares:
    """The shares in a text such as `0.4,0.2,0.4`; ConfigError where they are none."""
    try:
        train, validation, test = (float(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(
            f"fractions must be three numbers such as 0.4,0.2,0.4, not {text!r}"
        ) from None
    check_fractions((train, validation, test))
    return train, validation, test


def check_fractions(fractions: Shares) -> None:
    """Nothing, where `fractions` are three shares that sum to 1, else ConfigError."""
    if len(fractions) != 3 or not all(share >= 0 for share in fractions):
        raise ConfigError(f"fractions must be three shares of at least 0, not {fractions}")
    if not math.isclose(sum(fractions), 1.0, abs_tol=1e-6):
        raise ConfigError(f"fractions must sum to 1, but {fractions} sum to {sum(fractions):g}")
