"""Loaders of data sets whose passages are chunks or whole documents, not paragraphs."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ragbench.data.answers import NonBlank
from ragbench.data.base import Dataset, HubSource, data_set
from ragbench.data.hub import hub_corpus
from ragbench.data.load import Item, assemble
from ragbench.data.mapping import Record, validate
from ragbench.data.passages import from_text, need_corpus, read_chunks
from ragbench.data.questions import QuestionRecord, make_item, read_questions
from ragbench.data.readers import read_rows
from ragbench.errors import ConfigError
from ragbench.passages import Corpus
from ragbench.settings import DataSettings


class DocumentRecord(Record):
    """Whole document of GraphRAG-Bench."""

    corpus_name: NonBlank
    context: NonBlank


@data_set(
    "graphrag_bench",
    "question_type source",
    view="chunk",
    hub=HubSource(
        "GraphRAG-Bench/GraphRAG-Bench",
        ("medical", "novel"),
        corpus="Datasets/Corpus/{config}.json",
    ),
)
def load_graphrag_bench(spec: DataSettings) -> Dataset:
    """GraphRAG-Bench: medical and novel questions of four types with long answers.

    Source: Xiang et al. 2025, arXiv:2506.05690. ragbench cuts its documents into chunks. No
    question names its gold passages.
    """
    spec = _as_chunks(spec)
    documents = []
    for row in read_rows(need_corpus(spec)):
        record = validate(DocumentRecord, row)
        name = record.corpus_name
        documents.append(from_text(name, record.context, document=name))
    return assemble(spec, _chunked_items(spec), corpus=documents)


@data_set(
    "arag",
    view="chunk",
    hub=HubSource(
        "Zly0523/linear-rag",
        ("musique", "hotpotqa", "2wikimultihop", "medical"),
        questions="{config}/questions.json",
        corpus="{config}/chunks.json",
    ),
)
def load_arag(spec: DataSettings) -> Dataset:
    """A-RAG and LinearRAG layout: questions.json and the fixed-length chunks.json.

    Chunks have neither titles nor sentence ids, so no support metric can be computed on them.
    """
    spec = _as_chunks(spec)
    chunks = read_chunks(need_corpus(spec))
    # assemble() takes paragraphs; these are chunks already, so the view is set afterwards.
    data = assemble(spec.but(view=None, setting="pooled"), _chunked_items(spec), corpus=chunks)
    return replace(data, corpus=Corpus(data.corpus.passages, view="chunk"))


def _chunked_items(spec: DataSettings) -> Iterator[Item]:
    """Yield the questions. An id that several sources use is prefixed with the source."""
    rows = list(read_questions(spec, QuestionRecord))
    uses = Counter(record.id for _, record in rows)
    for row, record in rows:
        source = str(row.data.get("source") or "")
        fields: dict[str, Any] = {"source": source, "document": [source] if source else []}
        if uses[record.id] > 1 and source:
            fields["qid"] = f"{source}::{record.id}"
        yield make_item(row, record, support=(), gold_pids=(), decomposition=(), **fields)


def _as_chunks(spec: DataSettings) -> DataSettings:
    if spec.view == "paragraph":
        raise ConfigError(f"{spec.dataset} has no paragraphs; use --view chunk")
    if spec.setting == "distractor":
        raise ConfigError(
            f"{spec.dataset} has no passages per question; remove --setting or use pooled"
        )
    corpus = spec.corpus_file or (hub_corpus(spec) if spec.hub else None)
    return spec.but(view="chunk", corpus_file=corpus)
