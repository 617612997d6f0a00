"""Which questions vary together: those that share a gold passage or a sub-question.

A program that finds or misses a passage does so for every question that needs it. Such questions
count together in a test, and none of them may be in training while another is held out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

#: A set of linked questions larger than this share of all is taken apart again.
_LARGEST = 0.2


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


def links(example: Any) -> list[Hashable]:
    """Keys that link an example to others: gold passages, and sub-questions with answers."""
    parts = [(part["question"], part["answer"]) for part in example.decomposition]
    return [*example.gold_pids, *parts]
