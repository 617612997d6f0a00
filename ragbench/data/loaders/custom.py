"""Your own questions: the `jsonl` layout, described in docs/data.md."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import AliasChoices, BeforeValidator, Field, StrictInt

from ragbench.data.base import DATASETS, Dataset, DataSpec, make_example
from ragbench.data.load import Item, assemble, detect_layout, question_files, rows_of
from ragbench.data.loaders.gold import Titles
from ragbench.data.passages import CorpusRecord, Pool, read_corpus
from ragbench.data.readers import (
    Answers,
    Id,
    NonBlank,
    Record,
    Row,
    Text,
    as_answers,
    decoded,
    fail,
    validate,
)
from ragbench.retrievers import Corpus, Passage


class CustomRecord(Record):
    """One question; only `question` and one of `answer` and `answers` must be there.

    `golden_answers` and `metadata` are FlashRAG's.
    """

    renamed = True

    id: Id | None = None
    question: NonBlank
    answer: Answers = ()
    answers: Answers = Field((), validation_alias=AliasChoices("answers", "golden_answers"))
    type: Text = ""
    hops: StrictInt | None = None
    context: tuple[CorpusRecord, ...] = ()
    support: tuple[tuple[NonBlank, StrictInt], ...] = ()
    gold: Annotated[tuple[Id, ...], BeforeValidator(as_answers)] = ()
    decomposition: tuple[Mapping[str, Text], ...] = ()
    metadata: Mapping[str, Any] = {}

    @property
    def kind(self) -> str:
        """The type of the question; blank where it has none."""
        given = self.type or self.metadata.get("type")
        return given.encode("utf-8", "replace").decode() if isinstance(given, str) else ""


@DATASETS.register("documents")
def load_documents(spec: DataSpec) -> Dataset:
    """Passages without questions, for `ragbench ask`: a corpus file, or a folder of documents."""
    return Dataset("documents", {}, Corpus(read_corpus(spec)), "pooled")


@DATASETS.register("jsonl")
def load_jsonl(spec: DataSpec) -> Dataset:
    """Your own questions, with passages of their own or a corpus file; named by their file."""
    corpus = None if spec.corpus_file is None else read_corpus(spec)
    items = list(_items(spec, corpus))
    searched = corpus is not None or any(item.passages for item in items)
    layouts = {*map(detect_layout, question_files(spec).values())}
    if not searched and spec.setting is None and layouts <= {"jsonl", None}:
        spec = replace(spec, setting="pooled")  # over none, for programs that do not search
    made = assemble(spec, items, corpus=corpus)
    return replace(made, name=spec.title, layout=spec.dataset)


def _items(spec: DataSpec, corpus: Sequence[Passage] | None) -> Iterator[Item]:
    lookup = _gold_in(corpus or ())
    pool = Pool()
    for number, row in enumerate(rows_of(spec), start=1):
        record = validate(CustomRecord, row)
        passages = tuple(entry.passage(row, keep_id=True) for entry in record.context)
        for passage in filter(pool.is_other, passages):
            fail(row, "context", f"id {passage.pid!r} is the id of another passage too")
        if not record.answer and not record.answers:
            fail(row, "answers", "is missing or empty")
        if not all({"question", "answer"} <= part.keys() for part in record.decomposition):
            fail(row, "decomposition", "each part needs 'question' and 'answer'")
        if corpus is None:
            lookup = _gold_in(passages)
        example = make_example(
            qid=record.id or f"q{number:06d}",
            question=record.question,
            answers=[*record.answer, *record.answers],
            qtype=record.kind,
            hops=record.hops,
            support=record.support,
            gold_pids=[lookup(row, name) for name in record.gold],
            decomposition=record.decomposition,
        )
        yield Item(row, example, passages)


def _gold_in(passages: Sequence[Passage]) -> Callable[[Row, str], str]:
    """What gives the pid that a gold name, an id or a title, has among `passages`."""
    positions, titles = Corpus(passages).positions, Titles(passages)

    def pid(row: Row, name: str) -> str:
        if name in positions:
            return name
        titled = titles.get(decoded(name))
        if titled is None:
            fail(row, "gold", f"{name!r} is neither the id nor the title of a passage")
        return titled.pid

    return pid
