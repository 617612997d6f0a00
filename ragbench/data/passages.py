"""Passages: paragraphs with a stable id, chunks, corpus files, and folders of documents."""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

import dspy
from pydantic import AliasChoices, BeforeValidator, Field, model_validator

from ragbench.data.answers import Id, Text
from ragbench.data.base import DATASETS
from ragbench.data.documents import Account, is_document, read_documents
from ragbench.data.mapping import Record, fail, map_rows, validate
from ragbench.data.passage_file import is_large, stored_passages
from ragbench.data.readers import Row, read_json, read_rows
from ragbench.data.values import unpacked
from ragbench.errors import DataError
from ragbench.passages import Corpus, Passage
from ragbench.sentences import split_sentences
from ragbench.settings import DataSettings
from ragbench.text_normalization import estimate_tokens

#: Default size of the passages of documents.
PASSAGE_TOKENS = 200
#: Size of fixed-length chunks, as in A-RAG and LinearRAG.
CHUNK_TOKENS = 1000


def content_pid(title: str, text: str) -> str:
    """Return an id derived from title and text: a short ASCII title and a hash.

    Args:
        title: Title of the passage.
        text: Text of the passage.
    """
    digest = hashlib.sha256(f"{title}\x1f{text}".encode()).hexdigest()[:12]
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    slug = re.sub(r"[^a-z0-9]+", "-", plain)[:40].strip("-")
    if slug:
        return f"{slug}-{digest}"
    return digest


def from_sentences(
    title: str, sentences: Iterable[str], *, pid: str = "", document: str = ""
) -> Passage:
    """Make a passage of sentences.

    Args:
        title: Title, or blank.
        sentences: Sentences in order. Blank ones keep their position, because supporting facts
            count them.
        pid: Id. If blank, it is derived from title and text.
        document: File or document that the passage was cut from.
    """
    stripped = tuple(sentence.strip() for sentence in sentences)
    text = " ".join(sentence for sentence in stripped if sentence)
    title = title.strip()
    pid = pid or content_pid(title, text)
    return Passage(pid, title, text, stripped, document=document)


def from_text(title: str, text: str, *, document: str = "") -> Passage:
    """Create a passage from a text whose sentence boundaries are unknown.

    Args:
        title: Title of the passage.
        text: Text of the passage.
        document: Document of the passage.
    """
    return from_sentences(title, split_sentences(text), document=document)


class Pool:
    """Distinct passages by id, in the order of their first use."""

    def __init__(self, passages: Iterable[Passage] = ()) -> None:
        self._places: dict[str, int] = {}
        self.passages: list[Passage] = []
        for passage in passages:
            self.add(passage)

    def add(self, passage: Passage) -> int:
        """Return the position of `passage`. Adds it if its id is new."""
        place = self._places.setdefault(passage.pid, len(self.passages))
        if place == len(self.passages):
            self.passages.append(passage)
        return place

    def is_other(self, passage: Passage) -> bool:
        """Return True if its id belongs to another text. Adds the passage if the id is new."""
        return self.passages[self.add(passage)].text != passage.text


def make_chunk(
    index: int, text: str, sentences: tuple[str, ...] = (), document: str = ""
) -> Passage:
    """Make a chunk. It has no title, and its id begins with its position in the corpus.

    Args:
        index: Position in the corpus.
        text: Text of the chunk.
        sentences: Sentences of the text, if they are known.
        document: File or document that the chunk was cut from. Blank if unknown.
    """
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return Passage(f"{index:06d}-{digest}", "", text, sentences, document=document)


def name_documents(examples: Iterable[dspy.Example], corpus: Corpus) -> None:
    """Set `document` of examples to the documents of their gold passages, if these are known.

    The documents are the cluster key of questions over passages that were cut from documents. An
    example that has documents already is unchanged.

    Args:
        examples: Examples to complete.
        corpus: Passages with their documents.
    """
    for example in examples:
        documents = set()
        for pid in example.get("gold_pids", ()):
            if pid in corpus.positions:
                documents.add(corpus[corpus.positions[pid]].document)
        documents.discard("")
        if documents and not example.get("document"):
            example.document = sorted(documents)


def cut_chunks(
    paragraphs: Sequence[Passage], *, max_tokens: int
) -> tuple[Corpus, dict[str, list[str]]]:
    """Pack paragraphs, in order, into chunks.

    A paragraph that fits into a chunk stays whole. A longer one is cut between sentences. Only a
    sentence that is longer than the limit makes a longer chunk. Titles are not part of a chunk.

    Args:
        paragraphs: Paragraphs in order.
        max_tokens: Maximum size of a chunk in estimated tokens.

    Returns:
        The chunks, and for the id of each paragraph the chunk of each of its sentences.
    """
    passages: list[Passage] = []
    alignment: dict[str, tuple[tuple[str, int], ...]] = {}
    holders: dict[str, list[str]] = {paragraph.pid: [] for paragraph in paragraphs}
    for group in _groups(paragraphs, max_tokens):
        sentences = tuple(paragraph.sentences[i] for paragraph, i in group)
        documents = {paragraph.document for paragraph, _ in group}
        document = documents.pop() if len(documents) == 1 else ""
        text = " ".join(filter(None, sentences))
        chunk = make_chunk(len(passages), text, sentences, document)
        passages.append(chunk)
        alignment[chunk.pid] = tuple((paragraph.title, i) for paragraph, i in group)
        for paragraph, _ in group:
            holders[paragraph.pid].append(chunk.pid)
    return Corpus(tuple(passages), view="chunk", alignment=alignment), holders


def _groups(paragraphs: Sequence[Passage], max_tokens: int) -> Iterator[list[tuple[Passage, int]]]:
    group: list[tuple[Passage, int]] = []
    size = 0
    for paragraph in paragraphs:
        costs = [estimate_tokens(f"{sentence} ") for sentence in paragraph.sentences]
        for index, cost in enumerate(costs):
            needed = cost if index else sum(costs)
            if group and size + needed > max_tokens:
                yield group
                group = []
                size = 0
            group.append((paragraph, index))
            size += cost
    if group:
        yield group


class CorpusRecord(Record):
    """Passage in a corpus file, with `sentences` or with a `text` to split.

    `contents` is the format of FlashRAG: the title in quotation marks, a line break and the text.
    """

    option = "--corpus-field"

    id: Id | None = Field(None, validation_alias=AliasChoices("id", "_id", "doc_id", "docid"))
    title: Text = Field("", validation_alias=AliasChoices("title", "page_name"))
    text: Text | None = Field(
        None, validation_alias=AliasChoices("text", "paragraph_text", "page_snippet")
    )
    contents: Text | None = None
    sentences: Annotated[list[Text], BeforeValidator(unpacked)] | None = None
    document: Id = ""
    is_supporting: bool = False

    @model_validator(mode="after")
    def _needs_text(self) -> Self:
        if (self.text, self.contents, self.sentences) == (None, None, None):
            raise ValueError(
                "the text is missing: give 'text' or 'sentences', or --corpus-field text=NAME"
            )
        return self

    def passage(self, *, keep_id: bool) -> Passage:
        """Return the passage.

        Args:
            keep_id: Use the record's id as the passage id. Otherwise the id is derived from the
                content.
        """
        title = self.title
        text = self.text
        if text is None and self.contents is not None:
            heading, _, body = self.contents.partition("\n")
            title, text = (title or heading.strip().strip('"'), body) if body else (title, heading)
        pid = self.id if keep_id and self.id else ""
        sentences: Sequence[str] | None = self.sentences
        if sentences is None:
            sentences = split_sentences(text or "")
        return from_sentences(title, sentences, pid=pid, document=self.document)


class DocumentPassages(list[Passage]):
    """Passages of a folder of documents. `card` counts its files by result."""

    def __init__(self, passages: Iterable[Passage], card: Mapping[str, Any]) -> None:
        super().__init__(passages)
        self.card = card


def documents_card(passages: object) -> dict[str, Any]:
    """Return the documents' entry of a data card. Empty for passages of other files."""
    if isinstance(passages, DocumentPassages):
        return {"documents": passages.card}
    return {}


def _document_passages(path: Path, spec: DataSettings) -> DocumentPassages:
    """Cut the sections of documents into passages. No passage spans two sections."""
    account = Account()
    pool = Pool()
    for name, title, text in read_documents(path, spec.encoding, account):
        section = from_text(title, text, document=name)
        chunks, _ = cut_chunks([section], max_tokens=spec.passage_tokens or PASSAGE_TOKENS)
        for chunk in chunks:
            pool.add(from_sentences(title, chunk.sentences, document=name))
    return DocumentPassages(pool.passages, account.card())


def read_corpus(spec: DataSettings, *, split_passages: Iterable[Passage] = ()) -> Sequence[Passage]:
    """Read the passages of the spec's corpus file or documents, each content once.

    A file holds records with `title` and `text` (or `sentences`) in any format of `read_rows`, or
    one JSON object that maps titles to texts or sentences. If the data set keeps ids, the `id` of a
    record is the passage id. A large file is copied into the index store once, and its passages
    stay on disk.

    Args:
        spec: Data settings.
        split_passages: Passages whose sentence boundaries are used for the same title and text.

    Returns:
        The passages.

    Raises:
        DataError: The file cannot be read, a record is malformed, or two passages share an id.
    """
    path = need_corpus(spec)
    keep_ids = DATASETS.get(spec.dataset).keeps_ids
    if is_document(path):
        return _document_passages(path, spec)
    if is_large(path):
        rows = _corpus_rows(path, spec)
        passages = (validate(CorpusRecord, row).passage(keep_id=keep_ids) for row in rows)
        return stored_passages(
            path, (keep_ids, sorted(spec.corpus_field.items()), spec.encoding), passages
        )
    boundaries = {(passage.title, passage.text): passage for passage in split_passages}
    pool = Pool()
    for row in _corpus_rows(path, spec):
        passage = validate(CorpusRecord, row).passage(keep_id=keep_ids)
        passage = boundaries.get((passage.title, passage.text), passage)
        if pool.is_other(passage):
            fail(row, "id", f"{passage.pid!r} is the id of another passage too")
    return pool.passages


def need_corpus(spec: DataSettings) -> Path:
    """Return the corpus file of the spec. Raises DataError if there is none."""
    if spec.corpus_file is None:
        raise DataError(f"{spec.dataset} needs its corpus as a file: pass --corpus-file PATH")
    return spec.corpus_file


def _corpus_rows(path: Path, spec: DataSettings) -> Iterator[Row]:
    content = None
    if path.suffix.lower() == ".json":
        content = read_json(path, spec.encoding)
    if isinstance(content, dict) and not {"title", "text", "sentences"} & content.keys():
        for number, (title, body) in enumerate(content.items(), start=1):
            key = "sentences" if isinstance(body, list) else "text"
            yield Row(f"{path}: record {number}", {"title": title, key: body})
        return
    yield from map_rows(read_rows(path, spec.encoding), spec.corpus_field, "--corpus-field")


def read_chunks(path: Path) -> list[Passage]:
    """Read the chunks of a chunk file: a list of "index:text", or of objects with id and text.

    Raises:
        DataError: The file cannot be read, or a chunk is malformed.
    """
    chunks = []
    for number, row in enumerate(read_rows(path)):
        if isinstance(row.data, str):
            index, colon, text = row.data.partition(":")
            if not colon or not index.strip().isdigit():
                raise DataError(f"{row.where}: a chunk must be 'index:text', not {row.data[:40]!r}")
            row = Row(row.where, {"id": index, "text": text})
        chunks.append(make_chunk(number, (validate(CorpusRecord, row).text or "").strip()))
    return chunks
