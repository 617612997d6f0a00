"""MuSiQue (Trivedi et al. 2022, arXiv:2108.00573): questions of 2 to 4 hops by composition."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, StrictBool, StrictInt

from ragbench.data.assemble import Item, assemble
from ragbench.data.base import DATASETS, Dataset, DataSpec, make_example
from ragbench.data.corpora import read_corpus
from ragbench.data.load import rows_of
from ragbench.data.passages import from_text
from ragbench.data.readers import Id, NonBlank, Record, Text, same_length, validate
from ragbench.retrievers import Corpus


def _rows(value: Any) -> Any:
    """Columns, as `datasets` may hand out a list of objects, turned back into objects."""
    if isinstance(value, dict) and all(isinstance(column, list) for column in value.values()):
        columns = zip(*same_length(value.values(), value), strict=True)
        return [dict(zip(value, row, strict=True)) for row in columns]
    return value


class Paragraph(Record):
    """A paragraph of a question; titles repeat, so `idx` and the text tell them apart."""

    idx: StrictInt
    title: Text
    paragraph_text: Text
    is_supporting: StrictBool = False


class Part(Record):
    """A single-hop part of a question; "#1" stands for the first part's answer."""

    id: Id | None = None
    question: Text
    answer: Text
    paragraph_support_idx: StrictInt | None = None


class MusiqueRecord(Record):
    """One line of the official file."""

    renamed = True

    id: Id
    question: NonBlank
    answer: NonBlank
    answer_aliases: tuple[NonBlank, ...] = ()
    answerable: StrictBool = True
    paragraphs: Annotated[list[Paragraph], BeforeValidator(_rows)]
    question_decomposition: Annotated[tuple[Part, ...], BeforeValidator(_rows)] = ()


@DATASETS.register("musique")
def load_musique(spec: DataSpec) -> Dataset:
    """MuSiQue: questions of 2 to 4 hops, 20 paragraphs each, with aliases and decomposition."""
    if spec.corpus_file is None:
        return assemble(spec, _items(spec, None))
    corpus = Corpus(read_corpus(spec))
    return assemble(spec, _items(spec, corpus.positions), corpus=corpus.passages)


def _items(spec: DataSpec, known: Mapping[str, int] | None) -> Iterator[Item]:
    """The file's questions; with a corpus file, gold passages count only where it has them."""
    for row in rows_of(spec):
        record = validate(MusiqueRecord, row)
        passages = tuple(from_text(p.title, p.paragraph_text) for p in record.paragraphs)
        pairs = zip(passages, record.paragraphs, strict=True)
        gold = [passage.pid for passage, paragraph in pairs if paragraph.is_supporting]
        if known is not None and not all(pid in known for pid in gold):
            gold = []
        kind = record.id.partition("__")[0]
        example = make_example(
            qid=record.id,
            question=record.question,
            answers=[record.answer, *record.answer_aliases],
            qtype=kind if "hop" in kind else "",
            hops=len(record.question_decomposition) or None,
            gold_pids=gold,
            decomposition=[
                {"question": part.question, "answer": part.answer}
                for part in record.question_decomposition
            ],
            answerable=record.answerable,
            f1="musique",  # whose F1 scores it; see `metrics.answer.official_f1`
        )
        yield Item(row, example, passages)
