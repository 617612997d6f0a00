"""From a DataSpec to a Dataset: the options that go together, their defaults, and the records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from ragbench.data import hub
from ragbench.data.base import DATASETS, Dataset, DataSpec, Setting, Split
from ragbench.data.readers import Row, describe_layout, map_fields, read_rows
from ragbench.data.splits import check_fractions, parse_fractions
from ragbench.errors import ConfigError, DataError
from ragbench.retrievers import View

_CHUNKED = frozenset({"arag", "graphrag_bench"})
_POOLED = frozenset({"beir", "documents"})
_OTHERS = frozenset({"2wikimultihopqa", "hotpotqa", "jsonl", "musique", "synthetic"})


def default_view(dataset: str) -> View:
    """The unit of retrieval of a data set where none is chosen."""
    return "chunk" if dataset in _CHUNKED else "paragraph"


def default_setting(dataset: str, view: View | None, *, has_corpus: bool) -> Setting:
    """What a question searches where nothing is chosen: pooled for chunks and a corpus file."""
    chunks = (view or default_view(dataset)) == "chunk"
    return "pooled" if chunks or has_corpus or dataset in _POOLED else "distractor"


def without_defaults(given: Mapping[str, Any]) -> dict[str, Any]:
    """The data options `given`, by flat name, without those that have the data set's default.

    Options of a data set that another package registers have no default that is known here. The
    default of `disjoint` is to share no passage where the data allow it; where they do not, asking
    for it is an error, so that "passages" written down comes to what is left out.

    Raises:
        ConfigError: fractions that are no three shares.
    """
    dataset, fractions = given["dataset"], given.get("fractions")
    shares = None if fractions is None else parse_fractions(fractions)
    defaults: dict[str, Any] = {
        "disjoint": "passages",
        "fractions": _written(DataSpec.fractions),
        "passage_tokens": DataSpec.passage_tokens,
    }
    if dataset in _CHUNKED | _POOLED | _OTHERS:
        has_corpus = given.get("corpus_file") is not None
        defaults["view"] = default_view(dataset)
        defaults["setting"] = default_setting(dataset, given.get("view"), has_corpus=has_corpus)
    if source := hub.HUB.get(dataset):
        defaults["hub_repo"] = source.repo
        defaults["hub_config"] = next(iter(source.configs), None)
    if shares is not None:
        given = {**given, "fractions": _written(shares)}
    return {k: v for k, v in given.items() if k not in defaults or v != defaults[k]}


def _written(shares: tuple[float, ...]) -> str:
    return ",".join(f"{share:.15g}" for share in shares)


def load_dataset(spec: DataSpec) -> Dataset:
    """The data set that `spec` describes.

    Raises:
        UnknownNameError: no such data set.
        ConfigError: options that do not go together.
        DataError: a file or a hub repository that is missing or malformed.
    """
    loader = DATASETS.get(spec.dataset)
    check_spec(spec)
    try:
        return loader(spec)
    except (DataError, ConfigError) as error:
        remarks = (describe_layout(path, spec.dataset) for path in question_files(spec).values())
        if remark := next(filter(None, remarks), ""):
            raise type(error)(f"{error}{remark}") from None
        raise


def check_spec(spec: DataSpec) -> None:
    """Nothing, where the options of `spec` go together.

    Raises:
        ConfigError: they do not; the message has the cure.
    """
    check_fractions(spec.fractions)
    _choice("setting", spec.setting, get_args(Setting))
    _choice("view", spec.view, get_args(View))
    files = question_files(spec)
    if spec.hub and files:
        raise ConfigError(f"choose one: the hub, or the file {next(iter(files.values()))}")
    for name in ("hub_config", "hub_repo"):
        if getattr(spec, name) and not spec.hub:
            raise ConfigError(f"{name} {getattr(spec, name)!r} needs the hub to be chosen too")
    if spec.chunk_file and spec.view != "chunk":
        raise ConfigError(f"--chunk-file {spec.chunk_file} needs --view chunk")
    if spec.alias_file and spec.dataset != "2wikimultihopqa":
        raise ConfigError(f"--alias-file {spec.alias_file} is for 2wikimultihopqa alone")
    for name in ("chunk_tokens", "passage_tokens"):
        if not 10 <= getattr(spec, name) <= 100_000:
            raise ConfigError(f"{name} must be from 10 to 100,000, not {getattr(spec, name)}")


def _choice(name: str, value: str | None, choices: tuple[str, ...]) -> None:
    if value is not None and value not in choices:
        raise ConfigError(f"{name} must be one of {', '.join(choices)}, not {value!r}")


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
