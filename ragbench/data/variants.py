"""Twins of a data set: the same questions in an unknown world, or without an answer.

Both keep the ids of questions, so that a run over a twin can be paired with a run over the
original.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import dspy

from ragbench.data.base import Dataset, Split
from ragbench.data.renaming import Renaming
from ragbench.errors import DataError
from ragbench.passages import Corpus, Passage

#: Fields of an example without text about the world.
_NOT_RENAMED = frozenset(
    {"qid", "qtype", "hops", "cluster", "level", "source", "f1", "answerable"}
    | {"answer_id", "evidences_id", "document"}
)


def rename_entities(dataset: Dataset, key: str) -> Dataset:
    """Return a copy of `dataset` with new names and years in questions, passages and answers.

    See `ragbench.data.renaming`. The passages are in memory.

    Args:
        dataset: Data set.
        key: Seed of the new words.

    Raises:
        DataError: The texts hold no name, for example because all words are in lower case.
    """
    every = dataset.every
    rename = Renaming(_texts(dataset, every), (p.title for p in dataset.corpus), key)
    if not rename.words:
        raise DataError(f"{dataset.name} has no capitalized name, so nothing can be renamed")
    corpus = dataset.corpus
    alignment: dict[str, Any] = {rename(k): rename.of(v) for k, v in corpus.alignment.items()}
    changed = replace(
        corpus,
        passages=tuple(_rename_passage(passage, rename) for passage in corpus),
        alignment=alignment,
        askers={rename(question): qids for question, qids in corpus.askers.items()},
        plain=rename.undo,
    )
    twins = {str(example.qid): _rename_example(example, rename) for example in every}
    return _with(dataset, twins, changed, {"rename_entities": key, "names": len(rename.words)})


def without_gold(dataset: Dataset, share: float, *, seed: int) -> Dataset:
    """Return a copy of `dataset` in which some questions lack a gold passage.

    The passage is removed from the question's own passages, or from a pooled corpus, where every
    question with that passage loses it. A question that lost a passage has `answerable` False and
    neither gold passages nor supporting facts. Other questions have it True. A question without
    known gold passages is unchanged.

    Args:
        dataset: Data set.
        share: Share of the questions with gold passages, in (0, 1].
        seed: Seed of the selection.

    Raises:
        DataError: No question has known gold passages.
    """
    every = dataset.every
    with_gold = [example for example in every if example.gold_pids]
    if not with_gold:
        raise DataError(f"{dataset.name} has no known gold passages, so none can be removed")
    chance = random.Random(f"ragbench unanswerable {seed}")
    chosen = chance.sample(with_gold, max(1, round(share * len(with_gold))))
    removed = {str(example.qid): chance.choice(sorted(example.gold_pids)) for example in chosen}
    corpus = dataset.corpus
    if corpus.contexts:
        lost = {qid: {pid} for qid, pid in removed.items()}
        contexts = dict(corpus.contexts)
        for qid, pid in removed.items():
            place = corpus.positions[pid]
            contexts[qid] = tuple(at for at in contexts[qid] if at != place)
        corpus = replace(corpus, contexts=contexts)
    else:
        gone = set(removed.values())
        lost = {str(example.qid): gone for example in with_gold}
        corpus = corpus.subset([i for i, passage in enumerate(corpus) if passage.pid not in gone])
    twins = {}
    for example in every:
        twin = example.copy()
        if example.gold_pids:
            twin.answerable = lost.get(str(example.qid), set()).isdisjoint(example.gold_pids)
            if not twin.answerable:
                twin.gold_pids = []
                twin.support = []
        twins[str(example.qid)] = twin
    unanswerable = sum(twin.get("answerable") is False for twin in twins.values())
    return _with(dataset, twins, corpus, {"unanswerable": unanswerable})


def _with(
    dataset: Dataset, twins: Mapping[str, dspy.Example], corpus: Corpus, card: Mapping[str, Any]
) -> Dataset:
    splits: dict[Split, Sequence[dspy.Example]] = {}
    for name, examples in dataset.splits.items():
        splits[name] = [twins[str(example.qid)] for example in examples]
    questions = [twins[str(example.qid)] for example in dataset.questions]
    origin = dataset.card.get("twin_of", dataset.digest)
    card = {**dataset.card, **card, "twin_of": origin}
    return replace(dataset, splits=splits, corpus=corpus, card=card, questions=questions)


def _texts(dataset: Dataset, examples: Sequence[dspy.Example]) -> Iterator[str]:
    for passage in dataset.corpus:
        yield passage.title
        yield passage.text
    for example in examples:
        yield example.question
        yield from example.answers


def _rename_passage(passage: Passage, rename: Renaming) -> Passage:
    sentences = tuple(map(rename, passage.sentences))
    text = " ".join(sentences) or rename(passage.text)
    return Passage(
        rename(passage.pid), rename(passage.title), text, sentences, document=passage.document
    )


def _rename_example(example: dspy.Example, rename: Renaming) -> dspy.Example:
    twin = example.copy()
    for field, value in example.items():
        if field not in _NOT_RENAMED:
            twin[field] = rename.of(value)
    return twin
