"""Data sets that come with chunks or whole documents instead of paragraphs."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from pydantic import AliasChoices, Field

from ragbench.data.base import DATASETS, Dataset, DataSpec, make_example
from ragbench.data.hub import hub_corpus
from ragbench.data.load import Item, assemble, rows_of
from ragbench.data.passages import from_text, need_corpus, read_chunks
from ragbench.data.readers import Answer, Answers, Id, NonBlank, Record, Text, read_rows, validate
from ragbench.errors import ConfigError
from ragbench.retrievers import Corpus


class QuestionRecord(Record):
    """A question without passages of its own."""

    renamed = True

    id: Id = Field(validation_alias=AliasChoices("id", "qid", "_id"))
    question: NonBlank
    answer: Answers = Field(min_length=1)
    answer_aliases: tuple[Answer, ...] = ()
    question_type: Text = Field("", validation_alias=AliasChoices("question_type", "type"))
    source: Text = ""


class DocumentRecord(Record):
    """A whole document of GraphRAG-Bench."""

    corpus_name: NonBlank
    context: NonBlank


@DATASETS.register("graphrag_bench")
def load_graphrag_bench(spec: DataSpec) -> Dataset:
    """GraphRAG-Bench: medical and novel questions of four types with long answers.

    Source: Xiang et al. 2025, arXiv:2506.05690. Its documents are cut into chunks here, and no
    question says which passages are gold.
    """
    spec = _as_chunks(spec)
    records = (validate(DocumentRecord, row) for row in read_rows(need_corpus(spec)))
    documents = [from_text(record.corpus_name, record.context) for record in records]
    return assemble(spec, _items(spec), corpus=documents)


@DATASETS.register("arag")
def load_arag(spec: DataSpec) -> Dataset:
    """The A-RAG and LinearRAG layout: questions.json and the fixed-length chunks.json.

    Chunks have neither titles nor sentence ids, so no support metric can be computed on them.
    """
    spec = _as_chunks(spec)
    chunks = read_chunks(need_corpus(spec))
    # assemble() takes paragraphs; these are chunks already, so the view is set afterwards.
    data = assemble(replace(spec, view=None, setting="pooled"), _items(spec), corpus=chunks)
    return replace(data, corpus=Corpus(data.corpus.passages, view="chunk"))


def _items(spec: DataSpec) -> Iterator[Item]:
    """The questions; an id that several sources use is prefixed with the source."""
    rows = [(row, validate(QuestionRecord, row)) for row in rows_of(spec)]
    uses = Counter(record.id for _, record in rows)
    for row, record in rows:
        is_shared = uses[record.id] > 1 and record.source
        example = make_example(
            qid=f"{record.source}::{record.id}" if is_shared else record.id,
            question=record.question,
            answers=[*record.answer, *record.answer_aliases],
            qtype=record.question_type,
            source=record.source,
        )
        yield Item(row, example)


def _as_chunks(spec: DataSpec) -> DataSpec:
    if spec.view == "paragraph":
        raise ConfigError(f"{spec.dataset} has no paragraphs; use --view chunk")
    if spec.setting == "distractor":
        raise ConfigError(
            f"{spec.dataset} has no passages per question; leave --setting out or use pooled"
        )
    corpus = spec.corpus_file or (hub_corpus(spec) if spec.hub else None)
    return replace(spec, view="chunk", corpus_file=corpus)
