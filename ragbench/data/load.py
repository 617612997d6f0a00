"""From a DataSpec to a Dataset: the options that go together, their defaults, and the records."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, get_args

from ragbench.data import hub
from ragbench.data.base import DATASETS, Dataset, DataSpec, Setting, Split
from ragbench.data.readers import Row, map_fields, read_rows
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
    for it is an error, so that "passages" written down comes to what is left out. ConfigError where
    the fractions are no three shares.
    """
    dataset, fractions = given["dataset"], given.get("fractions")
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
    if fractions is not None:
        given = {**given, "fractions": _written(parse_fractions(fractions))}
    return {k: v for k, v in given.items() if k not in defaults or v != defaults[k]}


def _written(shares: tuple[float, ...]) -> str:
    return ",".join(f"{share:.15g}" for share in shares)


def load_dataset(spec: DataSpec) -> Dataset:
    """The data set that `spec` describes.

    UnknownNameError where there is none of that name, ConfigError for options that do not go
    together, DataError for a file or a hub repository that is missing or malformed.
    """
    loader = DATASETS.get(spec.dataset)
    check_spec(spec)
    try:
        return loader(spec)
    except (DataError, ConfigError) as error:
        for path in question_files(spec).values():
            layout = detect_layout(path)
            if layout is not None and layout.dataset != spec.dataset:
                remark = f"this looks like {layout.title}: give --dataset {layout.dataset}"
                raise type(error)(f"{error}; {remark}") from None
        raise


def check_spec(spec: DataSpec) -> None:
    """Nothing, where the options of `spec` go together, else a ConfigError with the cure."""
    check_fractions(spec.fractions)
    for name, choices in (("setting", get_args(Setting)), ("view", get_args(View))):
        if (value := getattr(spec, name)) is not None and value not in choices:
            raise ConfigError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
    files = question_files(spec)
    if spec.hub and files:
        raise ConfigError(f"choose one: the hub, or the file {next(iter(files.values()))}")
    for name in ("hub_config", "hub_repo"):
        if getattr(spec, name) and not spec.hub:
            raise ConfigError(f"{name} {getattr(spec, name)!r} needs the hub to be chosen too")
    if spec.alias_file and spec.dataset != "2wikimultihopqa":
        raise ConfigError(f"--alias-file {spec.alias_file} is for 2wikimultihopqa alone")
    for name in ("chunk_tokens", "passage_tokens"):
        if not 10 <= getattr(spec, name) <= 100_000:
            raise ConfigError(f"{name} must be from 10 to 100,000, not {getattr(spec, name)}")


def question_files(spec: DataSpec) -> dict[Split | None, Path]:
    """The spec's question files by the split that they are; None for the one that is cut."""
    given: dict[Split | None, Path | None] = {
        None: spec.data_file,
        "train": spec.train_file,
        "validation": spec.val_file,
        "test": spec.test_file,
    }
    return {split: path for split, path in given.items() if path is not None}


def rows_of(spec: DataSpec) -> Iterator[Row]:
    """The records of the spec's files, or of its data set on the hub, their fields renamed.

    DataError where neither is given or what is given cannot be read, ConfigError where the hub has
    no such configuration.
    """
    rows = hub.hub_rows(spec) if spec.hub else _file_rows(spec)
    names = dict(spec.fields)
    return (map_fields(row, names) for row in rows)


def _file_rows(spec: DataSpec) -> Iterator[Row]:
    files = question_files(spec)
    if not files:
        source = hub.HUB.get(spec.dataset)
        instead = f" or take {source.repo} from the hub" if source else ""
        raise DataError(f"{spec.dataset} needs its questions: pass --data-file PATH{instead}")
    for split, path in files.items():
        for row in read_rows(path):
            yield row._replace(split=split)


def need_corpus(spec: DataSpec) -> Path:
    """The corpus file of a data set that cannot do without; DataError where there is none."""
    if spec.corpus_file is not None:
        return spec.corpus_file
    if spec.hub and (corpus := hub.hub_corpus(spec)):
        return corpus
    raise DataError(f"{spec.dataset} needs its corpus as a file: pass --corpus-file PATH")


class Layout(NamedTuple):
    """A layout of questions: the name of its data set, its title, and the fields it is known by."""

    dataset: str
    title: str
    fields: frozenset[str] = frozenset()


_SUPPORTED = frozenset({"question", "supporting_facts", "context"})
#: In this order: the first whose fields are all there.
_LAYOUTS = (
    Layout("musique", "MuSiQue", frozenset({"question", "paragraphs"})),
    Layout("2wikimultihopqa", "2WikiMultiHopQA", _SUPPORTED | {"evidences"}),
    Layout("hotpotqa", "HotpotQA", _SUPPORTED),
    Layout("graphrag_bench", "GraphRAG-Bench", frozenset({"question", "question_type", "source"})),
    Layout("2wikimultihopqa", "2WikiMultiHopQA", frozenset({"question", "answer_id"})),
    Layout("jsonl", "FlashRAG", frozenset({"question", "golden_answers"})),
    Layout("jsonl", "questions of your own", frozenset({"question", "answer"})),
    Layout("jsonl", "questions of your own", frozenset({"question", "answers"})),
)


def detect_layout(path: Path) -> Layout | None:
    """The layout of the questions in a file, or in a folder; None where it is not known."""
    if (path / "queries.jsonl").is_file():
        return Layout("beir", "BEIR")
    try:
        first = next(iter(read_rows(path)), None)
    except DataError:
        return None
    if first is None or not isinstance(first.data, dict):
        return None
    evidence = first.data.get("evidence")
    if isinstance(evidence, list) and evidence and isinstance(evidence[0], list):
        # GraphRAG-Bench has the same field, as text.
        return Layout("2wikimultihopqa", "2WikiMultiHopQA as HippoRAG has it")
    return next((layout for layout in _LAYOUTS if layout.fields <= first.data.keys()), None)
