"""Clusters of questions that vary together, for every interval and test.

Two questions are linked if they need the same gold passage, come from the same document, share a
sub-question, or ask the same thing in nearly the same words. A cluster is a set of questions that
are linked directly or indirectly. For splits, only passages and sub-questions link questions.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence

import dspy

from ragbench.data.repeats import repeat_keys
from ragbench.text_normalization import question_key


def find_clusters(examples: Iterable[dspy.Example]) -> list[int]:
    """Return the cluster of each example, as the position of its first question."""
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
    """Return the keys that a question shares with the others of its cluster.

    Args:
        question: Question text.
        answers: Gold answers. The first one distinguishes different questions in similar words.
        gold_pids: Ids of the gold passages.
        decomposition: Sub-questions with their answers.
        documents: Files or documents that the gold passages were cut from.

    Returns:
        Keys, each with its kind. The wording gives further keys only if there is no other key.
    """
    if isinstance(documents, str):
        documents = [documents]
    keys = [f"document:{name}" for name in documents or ()]
    keys += [f"passage:{pid}" for pid in gold_pids]
    keys += [f"step:{step['question']}:{step['answer']}" for step in decomposition]
    if not keys:
        keys = [f"wording:{key}" for key in repeat_keys(question, answers)]
    return [f"question:{question_key(question)}", *keys]


def links(example: dspy.Example) -> list[Hashable]:
    """Return the keys that link an example in splits: passages and sub-questions."""
    steps = [(step["question"], step["answer"]) for step in example.decomposition]
    return [*example.gold_pids, *steps]


def linked(keys: Sequence[Iterable[Hashable]]) -> list[int]:
    """Return for each question the position of the first question of its cluster.

    Args:
        keys: Keys of each question. Questions that share a key are linked, directly or indirectly.
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
