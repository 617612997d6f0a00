"""Corpus files and chunk files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import AliasChoices, Field

from ragbench.data.chunks import make_chunk
from ragbench.data.files import Id, Record, Row, Text, fail, read_json, read_rows, validate
from ragbench.data.passages import Pool, from_sentences
from ragbench.data.sentences import split_sentences
from ragbench.errors import DataError
from ragbench.retrievers.base import Passage


class CorpusRecord(Record):
    """A passage in a corpus file: `sentences`, or `text` that is to be split."""

    id: Id | None = None
    title: Text = ""
    text: Text | None = Field(None, validation_alias=AliasChoices("text", "paragraph_text"))
    sentences: list[Text] | None = None

    def passage(self, row: Row, *, keep_id: bool) -> Passage:
        """The passage; its pid is the record's id where that is kept, else made of the content."""
        if self.text is None and self.sentences is None:
            fail(row, "text", "is missing (or give 'sentences')")
        pid = self.id if keep_id and self.id else ""
        sentences = split_sentences(self.text or "") if self.sentences is None else self.sentences
        return from_sentences(self.title, sentences, pid=pid)


class ChunkRecord(Record):
    """A chunk in a chunk file."""

    id: Id
    text: Text


def read_corpus(
    path: Path, *, keep_ids: bool = False, known: Iterable[Passage] = ()
) -> list[Passage]:
    """The passages of a corpus file, each content once.

    A file is a JSON list or JSON lines of `title` and `text` (or `sentences`), or one JSON object
    from title to text or to sentences. Sentence boundaries of `known` passages with the same title
    and text are taken over. With `keep_ids` a record's `id` is the pid.

    Raises:
        DataError: the file cannot be read, a record is malformed, or an id names two passages.
    """
    boundaries = {(passage.title, passage.text): passage for passage in known}
    pool = Pool()
    for row in _corpus_rows(path):
        passage = validate(CorpusRecord, row).passage(row, keep_id=keep_ids)
        passage = boundaries.get((passage.title, passage.text), passage)
        if pool.passages[pool.add(passage)].text != passage.text:
            fail(row, "id", f"{passage.pid!r} is the id of another passage too")
    return pool.passages


def read_chunks(path: Path) -> list[Passage]:
    """The chunks of a chunk file in order: a list of "index:text", or of objects with id and text.

    Raises:
        DataError: the file cannot be read, or a chunk is malformed.
    """
    return [make_chunk(number, _chunk_text(row)) for number, row in enumerate(read_rows(path))]


def _chunk_text(row: Row) -> str:
    if isinstance(row.data, str):
        index, colon, text = row.data.partition(":")
        if not colon or not index.strip().isdigit():
            raise DataError(f"{row.where}: a chunk must be 'index:text', not {row.data[:40]!r}")
        return validate(ChunkRecord, Row(row.where, {"id": index, "text": text})).text.strip()
    return validate(ChunkRecord, row).text.strip()


def _corpus_rows(path: Path) -> Iterator[Row]:
    if path.suffix.lower() == ".json":
        content = read_json(path) if path.is_file() else None
        if isinstance(content, dict) and not {"title", "text", "sentences"} & content.keys():
            for number, (title, body) in enumerate(content.items(), start=1):
                key = "sentences" if isinstance(body, list) else "text"
                yield Row(f"{path}: record {number}", {"title": title, key: body})
            return
    yield from read_rows(path)
