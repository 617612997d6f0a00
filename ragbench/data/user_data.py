"""Examples, passages and data sets that a user passes in Python."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import dspy

from ragbench.data.answers import Answers, Id, Text, printable
from ragbench.data.base import DATASETS, Dataset, Source, Split, as_json, make_example
from ragbench.data.mapping import Record, fail, map_rows, missing, validate
from ragbench.data.passages import name_documents
from ragbench.data.readers import Row
from ragbench.errors import ConfigError
from ragbench.external import PREFIX, digest_of_texts, find, keep
from ragbench.passages import Corpus, Passage

#: Field of an example with the gold answer, or our field names -> paths in the example.
Field: TypeAlias = str | Mapping[str, str] | None


def keep_dataset(dataset: Dataset) -> str:
    """Register `dataset` in this process and return its name, which depends on its content."""
    inputs = (str(sorted(example.inputs().keys())) for example in dataset.every)
    content = digest_of_texts([dataset.digest, *inputs])
    return keep(dataset, f"{PREFIX}{dataset.name}", content=content)


@DATASETS.outside
def source_of(name: str) -> Source:
    """Return the source of the data set that was registered under `name`.

    Raises:
        ConfigError: The data set is not registered in this process.
    """
    dataset: Dataset = find(name)
    return Source(lambda spec: dataset, view=dataset.corpus.view, setting=dataset.setting)


def own_dataset(
    splits: Mapping[Split, Iterable[dspy.Example]],
    corpus: Iterable[Passage | str] | None = None,
    field: Field = None,
) -> Dataset:
    """Build a data set from the user's examples. Its setting is pooled.

    Args:
        splits: Examples of each split.
        corpus: Passages to search.
        field: Field of the gold answer, or our field names -> paths in an example.

    Returns:
        The data set.

    Raises:
        ConfigError: An example or a passage is invalid, or two examples have one id.
    """
    paths = field or {}
    if isinstance(paths, str):
        paths = {"answer": paths}
    examples_of_split: dict[Split, list[dspy.Example]] = {}
    qids: set[str] = set()
    for split, examples in splits.items():
        if not isinstance(examples, Iterable):
            raise ConfigError(f"{examples!r} is neither a data set nor a list of dspy.Example")
        given = list(examples)
        rows = map_rows(map(_row, given), paths, "field")
        made = [_example(row, original, paths) for original, row in zip(given, rows, strict=True)]
        for example in made:
            if example.qid in qids:
                raise ConfigError(
                    f"two examples have the qid {example.qid!r} (without one it is of the "
                    f"question): {example.question[:80]!r}; give each its own qid, or leave one out"
                )
            qids.add(example.qid)
        examples_of_split[split] = made
    searched = Corpus(passages_of(corpus))
    for examples in examples_of_split.values():
        name_documents(examples, searched)
    return Dataset("own", examples_of_split, searched, "pooled")


def passages_of(corpus: Iterable[Passage | str] | None) -> tuple[Passage, ...]:
    """Return `corpus` as passages. A text becomes a passage without a title.

    Raises:
        ConfigError: `corpus` is a single text, or an item is neither a passage nor a text.
    """
    if isinstance(corpus, str | Mapping):
        raise ConfigError(f"corpus is one {type(corpus).__name__}; give a list of Passage or text")
    passages = []
    for number, item in enumerate(corpus or ()):
        if not isinstance(item, Passage | str):
            raise ConfigError(f"corpus has {repr(item)[:80]}; give each as a Passage or as text")
        if isinstance(item, str):
            try:
                item = Passage(f"p{number}", "", printable(item))
            except ValueError as error:
                raise ConfigError(f"corpus has {repr(item)[:80]}, which {error}") from None
        passages.append(item)
    return tuple(passages)


def _row(example: dspy.Example | Mapping[str, Any]) -> Row:
    if not isinstance(example, dspy.Example | Mapping):
        raise ConfigError(f"data has {repr(example)[:80]}; give each question as a dspy.Example")
    return Row("an example", dict(example.items()))


class ExampleRecord(Record):
    """Fields of an example that every one needs, and its id."""

    option = "field"

    qid: Id = ""
    question: Text
    answer: Answers = ()
    answers: Answers = ()


def _example(
    row: Row, example: dspy.Example | Mapping[str, Any], paths: Mapping[str, str]
) -> dspy.Example:
    """Return an example with our field names for question, answers and id."""
    record = validate(ExampleRecord, row)
    answers = [*record.answer, *record.answers]
    if not answers or not record.question:
        name = "answer" if record.question else "question"
        fail(row, name, missing(ExampleRecord, row, name))
    absent = {name for name in paths if row.data[name] is None}  # Only other examples have them.
    known = ExampleRecord.model_fields.keys() | absent
    fields = {k: v for k, v in row.data.items() if k not in known}
    sources = (path.partition(".")[0] for path in paths.values())
    if own_fields := {name: example[name] for name in sources if name in example}:
        fields["own_fields"] = own_fields
    qid = record.qid or hashlib.sha256(record.question.encode()).hexdigest()[:12]
    complete = make_example(qid=qid, question=record.question, answers=answers, **fields)
    declared = getattr(example, "_input_keys", None)  # Set by `with_inputs`.
    complete._input_keys = {"question", *(declared or ())}
    as_json(dict(complete.items()))  # Fails early if a field cannot be stored.
    return complete
