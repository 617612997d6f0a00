"""From the questions of a loader to a Dataset: one pool, one split, one view, for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import dspy

from ragbench.data.base import Dataset, DataSpec, Setting, Split, question_key
from ragbench.data.chunks import Chunked, align_chunks, cut_chunks
from ragbench.data.clusters import find_clusters, links
from ragbench.data.corpora import read_chunks
from ragbench.data.load import default_setting
from ragbench.data.passages import Pool
from ragbench.data.readers import Row, fail
from ragbench.data.splits import split_examples
from ragbench.errors import ConfigError, DataError
from ragbench.retrievers import Corpus, Passage, PassageSource


@dataclass(frozen=True, slots=True)
class Item:
    """One question as a loader read it: its record, the example, and the passages it came with."""

    row: Row
    example: dspy.Example
    passages: tuple[Passage, ...] = ()


@dataclass
class _Questions:
    """The questions, passages and counts gathered from a loader's items."""

    examples: list[dspy.Example] = field(default_factory=list)
    splits: dict[str, Split] = field(default_factory=dict)
    pool: Pool = field(default_factory=Pool)
    contexts: dict[str, tuple[int, ...]] = field(default_factory=dict)
    rows: dict[str, Row] = field(default_factory=dict)
    support_missing: int = 0

    def add(self, item: Item) -> None:
        example = item.example
        before = self.rows.setdefault(example.qid, item.row)
        if before is not item.row:
            fail(item.row, "id", f"{example.qid!r} is the id of {before.where} too")
        if not question_key(example.question):
            fail(item.row, "question", "has no word in it")
        self.examples.append(example)
        if item.row.split is not None:
            self.splits[example.qid] = item.row.split
        self.support_missing += _missing_support(example, item.passages)
        self.contexts.setdefault(example.question, self.pool.add_all(item.passages))


def assemble(
    spec: DataSpec,
    items: Iterable[Item],
    *,
    corpus: Sequence[Passage] | None = None,
    pool: Iterable[Passage] = (),
    card: dict[str, Any] | None = None,
) -> Dataset:
    """The data set of `items`, whose gold pids name paragraphs.

    `corpus` is given where the passages come from a file of their own; else they are those of
    `pool` and of the items, each content once.

    Raises:
        ConfigError: a setting and a view that do not go together.
        DataError: no questions, or two with one id.
    """
    gathered = _Questions(pool=Pool(pool))
    for item in items:
        gathered.add(item)
    if not gathered.examples:
        raise DataError(f"{spec.dataset}: there are no questions")
    chosen = choose_setting(spec, has_corpus=corpus is not None)
    if chosen == "distractor":
        _need_contexts(gathered, corpus)
    passages = _fixed(gathered.pool.passages if corpus is None else corpus)
    # The user's own splits keep the order of their files; official ones are sampled from.
    given = {"train": spec.train_file, "validation": spec.val_file, "test": spec.test_file}
    every = gathered.examples
    _name_clusters(every)
    splits, duplicates, overlapping, disjoint = split_examples(
        every,
        seed=spec.seed,
        fractions=spec.fractions,
        assigned=gathered.splits,
        in_order={split for split, path in given.items() if path is not None},
        disjoint=spec.disjoint,
    )
    counts: dict[str, Any] = {"questions": len(every)}
    counts["splits"] = {name: len(part) for name, part in splits.items()}
    counts["duplicates_dropped"] = duplicates
    counts |= {"splits_disjoint_by": disjoint, "sharing_passages_dropped": overlapping}
    counts["clusters"] = len({example.cluster for example in every})
    counts["support_missing"] = gathered.support_missing
    if spec.view == "chunk":
        searched, more = _chunk_view(spec, passages, every)
        counts |= more
    else:
        contexts = {e.question: gathered.contexts[e.question] for e in every}
        searched = Corpus(passages, contexts=contexts if chosen == "distractor" else {})
    counts["passages"] = len(searched)
    kept = [example for part in splits.values() for example in part]
    counts["questions_with_gold"] = sum(bool(example.gold_pids) for example in kept)
    card = {**counts, **(card or {})}
    return Dataset(spec.dataset, splits, searched, chosen, card, every)


def _fixed(passages: Sequence[Passage]) -> Sequence[Passage]:
    return passages if isinstance(passages, PassageSource) else tuple(passages)


def _name_clusters(examples: Sequence[dspy.Example]) -> None:
    for example, at in zip(
        examples, find_clusters([links(example) for example in examples]), strict=True
    ):
        example.cluster = examples[at].qid


def choose_setting(spec: DataSpec, *, has_corpus: bool) -> Setting:
    """The spec's setting, or the data set's default.

    Raises:
        ConfigError: chunks are wanted in the distractor setting.
    """
    if spec.view == "chunk" and spec.setting == "distractor":
        raise ConfigError(
            "--view chunk cuts chunks across questions, so it cannot go with --setting distractor; "
            "use --setting pooled or --view paragraph"
        )
    return spec.setting or default_setting(spec.dataset, spec.view, has_corpus=has_corpus)


def _need_contexts(gathered: _Questions, corpus: Sequence[Passage] | None) -> None:
    if corpus is not None:
        raise ConfigError(
            "a corpus file is searched as a whole, so it cannot go with --setting distractor; "
            "use --setting pooled or leave the corpus file out"
        )
    for example in gathered.examples:
        if not gathered.contexts[example.question]:
            where = gathered.rows[example.qid].where
            raise DataError(
                f"{where}: question {example.qid!r} has no passages of its own; "
                f"use --setting pooled with --corpus-file"
            )


def _missing_support(example: dspy.Example, passages: Sequence[Passage]) -> int:
    """How many supporting facts point to no sentence of the question's passages."""
    if not passages:
        return 0
    lengths: dict[str, int] = {}
    for passage in passages:
        lengths[passage.title] = max(lengths.get(passage.title, 0), len(passage.sentences))
    return sum(not 0 <= index < lengths.get(title, 0) for title, index in example.support)


def _chunk_view(
    spec: DataSpec, paragraphs: Sequence[Passage], examples: Sequence[dspy.Example]
) -> tuple[Corpus, dict[str, Any]]:
    """The chunks, and the examples' gold pids moved from paragraphs to chunks."""
    if spec.chunk_file is None:
        chunked = cut_chunks(paragraphs, max_tokens=spec.chunk_tokens)
    else:
        chunked = align_chunks(paragraphs, read_chunks(spec.chunk_file))
    by_pid = {passage.pid: passage for passage in paragraphs}
    for example in examples:
        example.gold_pids = _gold_chunks(chunked, example, by_pid)
    corpus = Corpus(chunked.passages, view="chunk", alignment=chunked.alignment)
    return corpus, {"sentences_aligned": round(chunked.coverage, 4)}


def _gold_chunks(
    chunked: Chunked, example: dspy.Example, paragraphs: dict[str, Passage]
) -> list[str]:
    """The chunks of all gold paragraphs; none where one of them cannot be placed."""
    gold: set[str | None] = set()
    for pid in example.gold_pids:
        gold |= chunked.gold(paragraphs[pid], example.support)
    return [] if None in gold else sorted(pid for pid in gold if pid is not None)
