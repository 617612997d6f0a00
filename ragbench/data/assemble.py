"""From the questions of a loader to a Dataset: one pool, one split, one view, for all of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import dspy

from ragbench.data.base import Dataset, DataSpec, Setting, Split, question_key
from ragbench.data.load import default_setting
from ragbench.data.passages import Pool, cut_chunks
from ragbench.data.readers import Row, fail
from ragbench.data.splits import find_clusters, links, split_examples
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

    pool: Pool
    examples: list[dspy.Example] = field(default_factory=list)
    splits: dict[str, Split] = field(default_factory=dict)
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
        places = dict.fromkeys(map(self.pool.add, item.passages))
        self.contexts.setdefault(example.question, tuple(places))


def assemble(
    spec: DataSpec,
    items: Iterable[Item],
    *,
    corpus: Sequence[Passage] | None = None,
    pool: Iterable[Passage] = (),
) -> Dataset:
    """The data set of `items`, whose gold pids name paragraphs.

    `corpus` is given where the passages come from a file of their own; else they are those of
    `pool` and of the items, each content once. ConfigError for a setting and a view that do not go
    together, DataError where there are no questions or two with one id.
    """
    gathered = _Questions(Pool(pool))
    for item in items:
        gathered.add(item)
    examples = gathered.examples
    if not examples:
        raise DataError(f"{spec.dataset}: there are no questions")
    setting = _setting(spec, gathered, corpus)
    passages = gathered.pool.passages if corpus is None else corpus
    if not isinstance(passages, PassageSource):
        passages = tuple(passages)
    clusters = find_clusters([links(example) for example in examples])
    for example, at in zip(examples, clusters, strict=True):
        example.cluster = examples[at].qid
    # The user's own splits keep the order of their files; official ones are sampled from.
    given = {"train": spec.train_file, "validation": spec.val_file, "test": spec.test_file}
    splits, duplicates, overlapping, disjoint = split_examples(
        examples,
        seed=spec.seed,
        fractions=spec.fractions,
        assigned=gathered.splits,
        in_order={split for split, path in given.items() if path is not None},
        disjoint=spec.disjoint,
    )
    card: dict[str, Any] = {
        "questions": len(examples),
        "splits": {name: len(part) for name, part in splits.items()},
        "duplicates_dropped": duplicates,
        "splits_disjoint_by": disjoint,
        "sharing_passages_dropped": overlapping,
        "clusters": len({example.cluster for example in examples}),
        "support_missing": gathered.support_missing,
    }
    if spec.view == "chunk":
        searched = _chunk_view(spec, passages, examples)
    else:
        contexts = {e.question: gathered.contexts[e.question] for e in examples}
        searched = Corpus(passages, contexts=contexts if setting == "distractor" else {})
    card["passages"] = len(searched)
    kept = [example for part in splits.values() for example in part]
    card["questions_with_gold"] = sum(bool(example.gold_pids) for example in kept)
    return Dataset(spec.dataset, splits, searched, setting, card, examples)


def _setting(spec: DataSpec, gathered: _Questions, corpus: Sequence[Passage] | None) -> Setting:
    """The spec's setting, or the data set's default, where the data allow it."""
    if spec.view == "chunk" and spec.setting == "distractor":
        raise ConfigError(
            "--view chunk cuts chunks across questions, so it cannot go with --setting distractor; "
            "use --setting pooled or --view paragraph"
        )
    default = default_setting(spec.dataset, spec.view, has_corpus=corpus is not None)
    setting = spec.setting or default
    if setting == "pooled":
        return setting
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
                "use --setting pooled with --corpus-file"
            )
    return setting


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
) -> Corpus:
    """The chunks; moves the gold pids of `examples` from paragraphs to chunks.

    Gold are the chunks of a paragraph's supporting sentences, or of all where none is named.
    """
    chunks, holders = cut_chunks(paragraphs, max_tokens=spec.chunk_tokens)
    titles = {passage.pid: passage.title for passage in paragraphs}
    for example in examples:
        gold: set[str] = set()
        for pid in example.gold_pids:
            held = holders[pid]
            named = [i for title, i in example.support if title == titles[pid]]
            gold |= {held[i] for i in named if 0 <= i < len(held)} or set(held)
        whole = all(holders[pid] for pid in example.gold_pids)  # none is without text
        example.gold_pids = sorted(gold) if whole else []
    return chunks
