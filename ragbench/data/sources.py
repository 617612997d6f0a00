"""Where a loader's records come from: files, or the Hugging Face hub."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ragbench.data import hub
from ragbench.data.base import DataSpec, Split
from ragbench.data.readers import Row, map_fields, read_rows
from ragbench.errors import DataError


def rows_of(spec: DataSpec) -> Iterator[Row]:
    """The records of the spec's files, or of its data set on the hub, their fields renamed.

    Raises:
        DataError: neither is given, or what is given cannot be read.
        ConfigError: no such configuration on the hub.
    """
    rows = _hub_rows(spec) if spec.hub else _file_rows(spec)
    names = dict(spec.fields)
    return (map_fields(row, names) for row in rows)


def question_files(spec: DataSpec) -> dict[Split | None, Path]:
    """The spec's question files by the split that they are; None for the one that is cut."""
    given: dict[Split | None, Path | None] = {
        None: spec.data_file,
        "train": spec.train_file,
        "validation": spec.val_file,
        "test": spec.test_file,
    }
    return {split: path for split, path in given.items() if path is not None}


def need_corpus(spec: DataSpec) -> Path:
    """The corpus file of a data set that cannot do without.

    Raises:
        DataError: none is given, and the hub has none.
    """
    if spec.corpus_file is not None:
        return spec.corpus_file
    if spec.hub:
        source, config = hub.source_of(spec)
        if source.corpus:
            return hub.fetch_file(source.repo, source.corpus.format(config=config))
    raise DataError(f"{spec.dataset} needs its corpus as a file: pass --corpus-file PATH")


def _file_rows(spec: DataSpec) -> Iterator[Row]:
    files = question_files(spec)
    if not files:
        source = hub.HUB.get(spec.dataset)
        instead = f" or take {source.repo} from the hub" if source else ""
        raise DataError(f"{spec.dataset} needs its questions: pass --data-file PATH{instead}")
    for split, path in files.items():
        for row in read_rows(path):
            yield row._replace(split=split)


def _hub_rows(spec: DataSpec) -> Iterator[Row]:
    source, config = hub.source_of(spec)
    if source.questions:
        path = hub.fetch_file(source.repo, source.questions.format(config=config))
        return read_rows(path)
    official = spec.dataset in hub.HUB
    return hub.hub_rows(source.repo, hub.fetch(source.repo, config), official=official)
