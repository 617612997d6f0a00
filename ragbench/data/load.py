"""Load a data set from its settings: options, records, pool of passages, splits and view."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import dspy

from ragbench.data import hub
from ragbench.data.base import DATASETS, Dataset, Setting, Split
from ragbench.data.documents import is_document
from ragbench.data.mapping import fail, map_rows
from ragbench.data.passages import (
    CHUNK_TOKENS,
    PASSAGE_TOKENS,
    Pool,
    cut_chunks,
    documents_card,
    name_documents,
    read_corpus,
)
from ragbench.data.readers import Row, read_rows
from ragbench.data.splits import FRACTIONS, parse_fractions, split_examples
from ragbench.data.variants import rename_entities, without_gold
from ragbench.errors import ConfigError, DataError
from ragbench.passages import Corpus, Passage, PassageSource, View
from ragbench.settings import DataSettings
from ragbench.text_normalization import is_unspaced, words

#: Data sets whose files differ only in optional fields.
_ONE_LAYOUT = {"hotpotqa", "2wikimultihopqa"}


def default_view(dataset: str) -> View:
    """Return the default unit of retrieval of a data set."""
    return DATASETS.get(dataset).view


def default_setting(dataset: str, view: View | None, *, has_corpus: bool) -> Setting:
    """Return the default setting of a data set.

    Args:
        dataset: Name of the data set.
        view: Unit of retrieval. None: the default one.
        has_corpus: True if there is a corpus file.

    Returns:
        `pooled` for chunks and with a corpus file, else the setting of the data set.
    """
    source = DATASETS.get(dataset)
    if has_corpus or (view or source.view) == "chunk":
        return "pooled"
    return source.setting


def without_defaults(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data `options`, by flat name, without those equal to the data set's defaults.

    Raises:
        ConfigError: The fractions are not three shares.
    """
    dataset = options["dataset"]
    fractions = options.get("fractions")
    has_corpus = options.get("corpus_file") is not None
    defaults: dict[str, Any] = {
        "fractions": FRACTIONS,
        "passage_tokens": PASSAGE_TOKENS,
        "view": default_view(dataset),
        "setting": default_setting(dataset, options.get("view"), has_corpus=has_corpus),
    }
    if source := DATASETS.get(dataset).hub:
        defaults["hub_repo"] = source.repo
        defaults["hub_config"] = next(iter(source.configs), None)
    if fractions is not None:
        shares = ",".join(f"{share:.15g}" for share in parse_fractions(fractions))
        options = {**options, "fractions": shares}
    return {k: v for k, v in options.items() if k not in defaults or v != defaults[k]}


def load_dataset(spec: DataSettings) -> Dataset:
    """Load the data set that `spec` describes.

    Raises:
        UnknownNameError: No data set has this name.
        ConfigError: Options contradict each other.
        DataError: A file or a hub repository is missing or malformed.
    """
    source = DATASETS.get(spec.dataset)
    files = question_files(spec)
    if spec.hub and files:
        raise ConfigError(f"choose one: the hub, or the file {next(iter(files.values()))}")
    has_file = bool(files or spec.hub or spec.corpus_file)
    has_effect = {
        "size": not has_file,  # Only generated data have a size.
        "encoding": has_file,
        "field": bool(files or spec.hub),
        "corpus_field": has_file,
        "passage_tokens": spec.corpus_file is not None and is_document(spec.corpus_file),
        "fractions": spec.dataset != "documents",
        "hub_config": spec.hub,
        "hub_repo": spec.hub,
        "alias_file": source.aliased,
    }
    for name, is_read in has_effect.items():
        value = getattr(spec, name)
        if value != DataSettings.model_fields[name].default and not is_read:
            raise ConfigError(f"{name}={value!r} has no effect on the data {spec.dataset}")
    dataset = replace(source.load(spec), is_own=spec.is_own)
    if spec.unanswerable is not None:
        dataset = without_gold(dataset, spec.unanswerable, seed=spec.seed_of_data)
    if spec.rename_entities is not None:
        dataset = rename_entities(dataset, spec.rename_entities)
    return dataset


def question_files(spec: DataSettings) -> dict[Split | None, Path]:
    """Return the spec's question files by split. The key None is the file to split."""
    files: dict[Split | None, Path | None] = {
        None: spec.data_file,
        "train": spec.train_file,
        "validation": spec.val_file,
        "test": spec.test_file,
    }
    return {split: path for split, path in files.items() if path is not None}


def rows_of(spec: DataSettings) -> Iterator[Row]:
    """Yield the records of the spec's files, or of its hub data set, with mapped fields.

    Raises:
        DataError: There is neither a file nor the hub, or a file cannot be read.
        ConfigError: The hub has no such configuration.
    """
    files = question_files(spec)
    if not files and not spec.hub:
        raise DataError(f"{spec.dataset} needs its questions: pass --data-file PATH, or --hub")
    rows = hub.hub_rows(spec) if spec.hub else _file_rows(files, spec)
    return map_rows(rows, spec.field, "--field")


def _file_rows(files: Mapping[Split | None, Path], spec: DataSettings) -> Iterator[Row]:
    for split, path in files.items():
        for number, row in enumerate(read_rows(path, spec.encoding)):
            if not number and not spec.field:
                _check_layout(path, row.data, spec.dataset)
            yield row._replace(split=split)


def _check_layout(path: Path, record: Any, dataset: str) -> None:
    """Raise DataError if the first record of `path` has the layout of another data set."""
    layout = _layout_of(record, dataset)
    if layout in (None, "jsonl", dataset) or {layout, dataset} == _ONE_LAYOUT:
        return
    if DATASETS.get(dataset).layouts:
        raise DataError(
            f"{path} has the layout of {layout}, not of {dataset}; give --dataset {layout}"
        )


def detect_layout(path: Path) -> str | None:
    """Return the data set with the layout of a question file, else None."""
    try:
        row = next(iter(read_rows(path)), None)
    except DataError:
        return None
    return None if row is None else _layout_of(row.data)


def _layout_of(record: Any, first: str = "") -> str | None:
    """Return the data set with the layout of a record, else None.

    Args:
        record: First record of a question file.
        first: Data set to return if the record has all fields of one of its layouts.
    """
    if not isinstance(record, dict):
        return None
    most = 0  # The layout with the most matching fields counts.
    best = None
    for name, source in DATASETS:
        for fields in source.layouts:
            if not fields <= record.keys():
                continue
            if name == first:
                return name
            if len(fields) > most and ("question" in record or len(fields) > 1):
                most = len(fields)
                best = name
    evidence = record.get("evidence")
    if isinstance(evidence, list) and evidence and isinstance(evidence[0], list):
        # GraphRAG-Bench has the same field, as text.
        return "2wikimultihopqa"
    return best


class Item(NamedTuple):
    """A question as a loader read it: its record, its example and its own passages."""

    row: Row
    example: dspy.Example
    passages: tuple[Passage, ...] = ()


def assemble(
    spec: DataSettings,
    items: Iterable[Item],
    *,
    corpus: Sequence[Passage] | None = None,
    pool: Iterable[Passage] = (),
) -> Dataset:
    """Build the data set from `items`, whose gold ids name paragraphs.

    Args:
        spec: Data settings.
        items: Questions with their passages.
        corpus: Passages of a file. If None, those of the spec's corpus file, if it has one.
        pool: Further passages to search next to those of the items, each content once.

    Returns:
        The data set, split and in the view of the spec.

    Raises:
        ConfigError: The setting contradicts the view, or an option has no effect.
        DataError: There are no questions, two share an id, or one lacks passages that it needs.
    """
    if corpus is None and spec.corpus_file is not None:
        corpus = read_corpus(spec)
    gathered = Pool(pool)
    examples = list[dspy.Example]()
    rows = dict[str, Row]()
    contexts: dict[str, tuple[int, ...]] = {}
    askers: dict[str, list[str]] = {}
    for row, example, own in items:
        before = rows.setdefault(example.qid, row)
        if before is not row:
            fail(row, "id", f"{example.qid!r} is the id of {before.where} too")
        if not words(example.question):
            fail(row, "question", "has no word in it")
        for passage in filter(gathered.is_other, own):
            fail(row, "context", f"id {passage.pid!r} is the id of another passage too")
        examples.append(example)
        contexts[example.qid] = tuple(dict.fromkeys(map(gathered.add, own)))
        askers.setdefault(example.question, []).append(example.qid)
    if not examples:
        raise DataError(f"{spec.dataset}: there are no questions")
    setting = _setting(spec, has_corpus=corpus is not None)
    lacking = next((qid for qid, places in contexts.items() if not places), None)
    if setting == "distractor" and lacking is not None:
        raise DataError(
            f"{rows[lacking].where}: question {lacking!r} has no passages; "
            "use --setting pooled with --corpus-file"
        )
    assigned = {qid: row.split for qid, row in rows.items() if row.split is not None}
    if spec.fractions is not None and len(assigned) == len(examples):
        raise ConfigError(
            f"fractions={spec.fractions!r} has no effect: every question has a split already; "
            "remove it"
        )
    passages = gathered.passages if corpus is None else corpus
    if not isinstance(passages, PassageSource):
        passages = tuple(passages)
    name_documents(examples, Corpus(passages))
    if setting == "pooled":
        contexts = {}
        askers = {}
    splits, duplicates, overlapping, disjoint = split_examples(
        examples,
        seed=spec.seed_of_data,
        fractions=parse_fractions(spec.fractions or FRACTIONS),
        assigned=assigned,
        # The user's splits keep the order of their files. Official splits are sampled.
        in_order={split for split in question_files(spec) if split},
        contexts=contexts,
    )
    if spec.view == "chunk":
        searched = _chunk_view(spec, passages, examples)
    else:
        searched = Corpus(passages, contexts=contexts, askers=askers)
    used = [example for members in splits.values() for example in members]
    card = {
        "questions": len(examples),
        "splits": {name: len(members) for name, members in splits.items()},
        "duplicates_dropped": duplicates,
        "splits_disjoint_by": disjoint,
        "sharing_passages_dropped": overlapping,
        "passages": len(searched),
        "questions_with_gold": sum(bool(example.gold_pids) for example in used),
        **documents_card(corpus),
    }
    unspaced = sum(is_unspaced(example.answers[0]) for example in used if example.answers)
    if 2 * unspaced > len(used):
        card["scores"] = (
            f"{unspaced} of {len(used)} gold answers are in scripts without spaces, in which `f1` "
            "takes an answer as one word: read `f1_chars`"
        )
    return Dataset(spec.dataset, splits, searched, setting, card, examples)


def _setting(spec: DataSettings, *, has_corpus: bool) -> Setting:
    """Return the setting of the spec or the default. Raises ConfigError if it cannot apply."""
    setting = spec.setting or default_setting(spec.dataset, spec.view, has_corpus=has_corpus)
    if setting == "distractor" and spec.view == "chunk":
        raise ConfigError(
            "--view chunk cuts chunks across questions, so --setting distractor is not possible; "
            "use --setting pooled or --view paragraph"
        )
    if setting == "distractor" and has_corpus:
        raise ConfigError(
            "--setting distractor cannot use a corpus file, which is searched as a whole; "
            "use --setting pooled or remove the corpus file"
        )
    return setting


def _chunk_view(
    spec: DataSettings, paragraphs: Sequence[Passage], examples: Sequence[dspy.Example]
) -> Corpus:
    """Return the corpus of chunks, and replace the gold paragraphs of `examples` by chunks.

    The gold chunks hold the supporting sentences of a paragraph, or all of its sentences if none is
    named.
    """
    chunks, holders = cut_chunks(paragraphs, max_tokens=CHUNK_TOKENS)
    titles = {passage.pid: passage.title for passage in paragraphs}
    for example in examples:
        gold: set[str] = set()
        for pid in example.gold_pids:
            held = holders[pid]
            if not held:  # A gold passage without text has no chunk.
                gold = set()
                break
            places = [i for title, i in example.support if title == titles[pid]]
            gold |= {held[i] for i in places if 0 <= i < len(held)} or {*held}
        example.gold_pids = sorted(gold)
    return chunks
