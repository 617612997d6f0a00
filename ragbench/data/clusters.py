"""Questions that vary together: the clusters of every interval and test.

Two questions are linked if they need the same gold passage, come from the same document, have a
sub-question in common, or ask the same thing in nearly the same words. A cluster is a whole set of
linked questions, over any number of links. Splits are linked by passages and sub-questions only.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence

import dspy

from ragbench.data.repeats import repeat_keys
from ragbench.words import question_key


def find_clusters(examples: Iterable[dspy.Example]) -> list[int]:
    """Return the number of the cluster of each example: the position of its first question."""
    keys = []
    for example in examples:
        keys.append(
            cluster_keys(
                example.question,
                example.get("answers", ()),
                gold_pids=example.get("gold_pids", ()),
                decomposition=example.get("decomposition", ()),
                documents=example.get("document"),
            )
        )
    return linked(keys)


def cluster_keys(
    question: str,
    answers: Sequence[str],
    *,
    gold_pids: Sequence[str] = (),
    decomposition: Iterable[Mapping[str, str]] = (),
    documents: str | Sequence[str] | None = None,
) -> list[str]:
    """Return everything that a question shares with the others of its cluster.

    Args:
        question: Question text.
        answers: Gold answers. The first one tells wordings of one question apart.
        gold_pids: Ids of the gold passages.
        decomposition: Sub-questions with their answers.
        documents: Files or documents that the gold passages were cut from.

    Returns:
        Keys, each with its kind. A question without passages and documents has keys of its wording.
    """
    if isinstance(documents, str):
        documents = [documents]
    keys = [f"document:{name}" for name in documents or ()]
    keys += [f"passage:{pid}" for pid in gold_pids]
    keys += [f"step:{step['question']}:{step['answer']}" for step in decomposition]
    if not keys:
        keys = [f"wording:{_text(key)}" for key in repeat_keys(question, answers)]
    return [f"question:{question_key(question)}", *keys]


def links(example: dspy.Example) -> list[Hashable]:
    """Return the keys that link an example to others in splits: passages and sub-questions."""
    steps = [(step["question"], step["answer"]) for step in example.decomposition]
    return [*example.gold_pids, *steps]


def linked(keys: Sequence[Iterable[Hashable]]) -> list[int]:
    """Return for each question the position of the first one that it is linked with.

    Args:
        keys: For each question, everything that it may share with others. Two questions that share
            a key are linked, directly or over others.
    """
    holder: dict[Hashable, int] = {}
    parent = list(range(len(keys)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for i, own_keys in enumerate(keys):
        for key in own_keys:
            a, b = sorted((root(holder.setdefault(key, i)), root(i)))
            parent[b] = a
    return list(map(root, range(len(keys))))


def _text(key: Hashable) -> str:
    """Return a key of `repeat_keys` as text, which does not depend on the order of a set."""
    if isinstance(key, frozenset):
        return " ".join(sorted(key))
    if isinstance(key, tuple):
        return "|".join(map(_text, key))
    return str(key)
