"""Train, validation and test: seeded, and disjoint by id and by normalised question."""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Sequence
from typing import NamedTuple

import dspy

from ragbench.data.base import Split, question_key
from ragbench.errors import ConfigError, DataError


class Splits(NamedTuple):
    """Examples by split, and how many were dropped since their question had been seen."""

    examples: dict[Split, list[dspy.Example]]
    duplicates: int


def split_examples(
    examples: Sequence[dspy.Example],
    *,
    seed: int,
    fractions: tuple[float, float, float],
    held_out: Collection[str] = (),
) -> Splits:
    """The examples in a seeded order, cut into train, validation and test by `fractions`.

    Of examples that ask the same question (words, lower case) the first is kept. The first n of a
    split are the same for every n, so a smaller limit is a prefix of a larger one. Where the data
    set has an official evaluation part, `held_out` has its qids: they alone become the test split,
    they win over duplicates elsewhere, and the others are cut into train and validation.

    Raises:
        ConfigError: the fractions are negative or do not sum to 1.
        DataError: two examples have one id, or a question has no word.
    """
    check_fractions(fractions)
    official = set(held_out)
    ordered = sorted(examples, key=lambda example: example.qid not in official)
    kept = _unique(ordered)
    duplicates = len(examples) - len(kept)
    rest = [example for example in kept if example.qid not in official]
    test = [example for example in kept if example.qid in official]
    # One generator per part: the order of one must not hang on the length of the other.
    random.Random(f"{seed}:rest").shuffle(rest)
    random.Random(f"{seed}:held-out").shuffle(test)
    train_share, validation_share, _ = fractions
    if official:
        total = train_share + validation_share
        train_share, validation_share = (
            (train_share / total, validation_share / total) if total else (1.0, 0.0)
        )
    first = round(len(rest) * train_share)
    second = len(rest) if official else round(len(rest) * (train_share + validation_share))
    parts: dict[Split, list[dspy.Example]] = {
        "train": rest[:first],
        "validation": rest[first:second],
        "test": test if official else rest[second:],
    }
    return Splits(parts, duplicates)


def check_fractions(fractions: tuple[float, float, float]) -> None:
    """Nothing, where `fractions` are three shares that sum to 1.

    Raises:
        ConfigError: they are not.
    """
    if len(fractions) != 3 or not all(share >= 0 for share in fractions):
        raise ConfigError(f"fractions must be three shares of at least 0, not {fractions}")
    if not math.isclose(sum(fractions), 1.0, abs_tol=1e-6):
        raise ConfigError(f"fractions must sum to 1, but {fractions} sum to {sum(fractions):g}")


def _unique(examples: Sequence[dspy.Example]) -> list[dspy.Example]:
    ids: set[str] = set()
    questions: dict[str, dspy.Example] = {}
    for example in examples:
        if example.qid in ids:
            raise DataError(f"two questions have the id {example.qid!r}")
        ids.add(example.qid)
        key = question_key(example.question)
        if not key:
            raise DataError(f"question {example.qid!r} has no word in it")
        questions.setdefault(key, example)
    return list(questions.values())
