"""From the questions of a loader to a Dataset: one pool, one split, one view, for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import dspy

from ragbench.data.base import Dataset, DataSpec, Setting, question_key
from ragbench.data.chunks import Chunked, align_chunks, cut_chunks
from ragbench.data.corpora import read_chunks
from ragbench.data.files import Row, fail
from ragbench.data.passages import Pool
from ragbench.data.splits import split_examples
from ragbench.errors import ConfigError, DataError
from ragbench.retrievers.base import Corpus, Passage


@dataclass(frozen=True, slots=True)
class Item:
    """One question as a loader read it: where it stood, the example, the passages it came with."""

    row: Row
    example: dspy.Example
    passages: tuple[Passage, ...] = ()


@dataclass
class _Questions:
    """What is gathered while the items go by."""

    examples: list[dspy.Example] = field(default_factory=list)
    held_out: set[str] = field(default_factory=set)
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
        if item.row.held_out:
            self.held_out.add(example.qid)
        self.support_missing += _missing_support(example, item.passages)
        self.contexts.setdefault(example.question, self.pool.add_all(item.passages))


def assemble(
    spec: DataSpec,
    items: Iterable[Item],
    *,
    corpus: Sequence[Passage] | None = None,
    pool: Iterable[Passage] = (),
    setting: Setting = "distractor",
    card: dict[str, Any] | None = None,
) -> Dataset:
    """The data set of `items`, whose gold pids name paragraphs.

    `corpus` is given where the passages come from a file of their own; else they are those of
    `pool` and of the items, each content once. `setting` is the data set's own, used where the spec
    names none.

    Raises:
        ConfigError: a setting and a view that do not go together.
        DataError: no questions, or two with one id.
    """
    found = _Questions(pool=Pool(pool))
    for item in items:
        found.add(item)
    if not found.examples:
        raise DataError(f"{spec.dataset}: there are no questions")
    chosen = choose_setting(spec, "pooled" if corpus is not None else setting)
    if chosen == "distractor":
        _need_contexts(spec, found, corpus)
    passages = tuple(found.pool.passages if corpus is None else corpus)
    splits, duplicates = split_examples(
        found.examples, seed=spec.seed, fractions=spec.fractions, held_out=found.held_out
    )
    kept = [example for part in splits.values() for example in part]
    facts: dict[str, Any] = {"questions": len(kept), "duplicates_dropped": duplicates}
    facts["support_missing"] = found.support_missing
    if spec.view == "chunk":
        built, more = _chunk_view(spec, passages, kept)
        facts |= more
    else:
        contexts = {e.question: found.contexts[e.question] for e in kept}
        built = Corpus(passages, contexts=contexts if chosen == "distractor" else {})
    facts["passages"] = len(built)
    facts["questions_with_gold"] = sum(bool(example.gold_pids) for example in kept)
    return Dataset(spec.dataset, splits, built, chosen, {**facts, **(card or {})})


def choose_setting(spec: DataSpec, default: Setting) -> Setting:
    """The spec's setting, or `default`; pooled for chunks.

    Raises:
        ConfigError: chunks are wanted in the distractor setting.
    """
    if spec.view != "chunk":
        return spec.setting or default
    if spec.setting == "distractor":
        raise ConfigError(
            "--view chunk cuts chunks across questions, so it cannot go with --setting distractor; "
            "use --setting pooled or --view paragraph"
        )
    return "pooled"


def _need_contexts(spec: DataSpec, found: _Questions, corpus: Sequence[Passage] | None) -> None:
    if corpus is not None:
        raise ConfigError(
            "a corpus file is searched as a whole, so it cannot go with --setting distractor; "
            "use --setting pooled or leave the corpus file out"
        )
    for example in found.examples:
        if not found.contexts[example.question]:
            where = found.rows[example.qid].where
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
