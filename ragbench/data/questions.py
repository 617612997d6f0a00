"""Read the questions of every file with one record: official files, other projects, the user's.

`QuestionRecord` lists the names that the files use for a field. A data set adds only its own fields
and its oddities (see `loaders`). `docs/data.md` has the layouts.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Annotated, Any, TypeVar

from pydantic import AliasChoices, AliasPath, BeforeValidator, Field

from ragbench.data.answers import Answers, Id, Ids, NonBlank, OptionalWhole, Text, Whole
from ragbench.data.base import make_example
from ragbench.data.load import Item, rows_of
from ragbench.data.mapping import Record, fail, map_fields, missing, validate
from ragbench.data.passages import CorpusRecord
from ragbench.data.readers import Row
from ragbench.data.titles import Titles
from ragbench.data.values import unpacked
from ragbench.passages import Passage
from ragbench.settings import DataSettings


def from_columns(value: Any) -> Any:
    """Parse a list in text form. Convert columns, in which the hub stores objects, to objects."""
    value = unpacked(value)
    if isinstance(value, dict) and all(isinstance(column, list) for column in value.values()):
        rows = zip(*value.values(), strict=True)
        return [dict(zip(value, row, strict=True)) for row in rows]
    return value


def tuples_of(*columns: str) -> BeforeValidator:
    """Return a validator that converts columns or objects to tuples of these `columns`."""

    def convert(value: Any) -> Any:
        rows = from_columns(value)
        if isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows):
            rows = [list(map(row.get, columns)) for row in rows]
        return rows

    return BeforeValidator(convert)


def _as_passages(value: Any) -> Any:
    """Convert a text, or a title with its sentences, to the object of a passage."""
    value = from_columns(value)
    entries = []
    for entry in value if isinstance(value, list) else [value]:
        if isinstance(entry, str):
            entry = {"text": entry}
        elif isinstance(entry, list) and len(entry) == 2:
            entry = {"title": entry[0], "sentences": entry[1]}
        entries.append(entry)
    return entries


class Step(Record):
    """Sub-question of a question. "#1" refers to the answer of the first one."""

    question: Text
    answer: Text


Facts = tuple[tuple[NonBlank, Whole], ...]


class QuestionRecord(Record):
    """One question. Only `question` and one of `answer` and `answers` are required.

    Attributes:
        gold: Ids or titles of the gold passages.
        document: Files or documents that the gold passages were cut from.
    """

    option = "--field"

    id: Id = Field("", validation_alias=AliasChoices("id", "_id", "qid", "interaction_id"))
    question: NonBlank = Field(validation_alias=AliasChoices("question", "query"))
    answer: Answers = ()
    answers: Answers = Field(
        (), validation_alias=AliasChoices("answers", "golden_answers", "generation_gt", "alt_ans")
    )
    answer_aliases: Answers = ()
    type: Text = Field(
        "", validation_alias=AliasChoices("type", "question_type", AliasPath("metadata", "type"))
    )
    hops: OptionalWhole = None
    context: Annotated[tuple[CorpusRecord, ...], BeforeValidator(_as_passages)] = Field(
        (), validation_alias=AliasChoices("context", "paragraphs", "search_results")
    )
    support: Annotated[Facts, tuples_of("title", "sent_id")] = Field(
        (), validation_alias=AliasChoices("support", "supporting_facts")
    )
    gold: Ids = Field((), validation_alias=AliasChoices("gold", "retrieval_gt"))
    decomposition: Annotated[tuple[Step, ...], BeforeValidator(from_columns)] = Field(
        (), validation_alias=AliasChoices("decomposition", "question_decomposition")
    )
    document: Ids = ()

    @cached_property
    def passages(self) -> tuple[Passage, ...]:
        return tuple(passage.passage(keep_id=True) for passage in self.context)

    @cached_property
    def gold_titles(self) -> list[str]:
        return list(dict.fromkeys(title for title, _ in self.support))

    def gold_pids(self, row: Row, titles: Titles | None) -> list[str]:
        """Return the ids of the gold passages. Empty unless all are known.

        `gold` names them, `is_supporting` marks them, or they have the titles of the support.

        Args:
            row: Row of the record, for messages.
            titles: Passages of a corpus file. None: the question's own passages.

        Raises:
            DataError: A name in `gold` matches no passage.
        """
        marked = []
        for entry, own in zip(self.context, self.passages, strict=True):
            if entry.is_supporting:
                marked.append(own.pid)
        if marked and not self.gold:
            is_known = titles is None or all(pid in titles.positions for pid in marked)
            return marked if is_known else []
        if titles is None:
            titles = Titles(self.passages)
        if not titles.positions:
            return []
        pids = []
        for name in self.gold or self.gold_titles:
            passage = titles.find(name)
            if passage is not None:
                pids.append(passage.pid)
            elif self.gold:
                fail(row, "gold", f"{name!r} is neither the id nor the title of a passage")
            else:
                return []
        return pids


Q = TypeVar("Q", bound=QuestionRecord)


def read_questions(spec: DataSettings, model: type[Q]) -> Iterator[tuple[Row, Q]]:
    """Yield the rows of the spec's questions with their records.

    Args:
        spec: Data settings.
        model: Record of the data set.

    Raises:
        DataError: A file cannot be read, or a record is malformed or has no answer.
    """
    for number, row in enumerate(rows_of(spec), start=1):
        row = _with_mapped_passages(row, spec)
        record = validate(model, row)
        if not record.answer and not record.answers:
            why = missing(model, row, "answer")
            if {"answer", "answers", "golden_answers"} & row.data.keys():
                why = why.replace("is missing", "is missing or empty", 1)
            fail(row, "answer", why)
        if not record.id:
            record = record.model_copy(update={"id": f"q{number:06d}"})
        yield row, record


def _with_mapped_passages(row: Row, spec: DataSettings) -> Row:
    """Map the fields of the passages of a question."""
    if not spec.corpus_field or not isinstance(row.data.get("context"), list):
        return row
    passages = []
    for entry in row.data["context"]:
        passages.append(map_fields(row._replace(data=entry), spec.corpus_field).data)
    return row._replace(data={**row.data, "context": passages})


def make_item(
    row: Row, record: QuestionRecord, titles: Titles | None = None, **fields: Any
) -> Item:
    """Return a question as an item.

    Args:
        row: Row of the file.
        record: Record of the row.
        titles: Passages of a corpus file. None: the question's own passages.
        fields: Further fields of the example, and fields that replace those of the record.
    """
    of_record: dict[str, Any] = {
        "qid": record.id,
        "question": record.question,
        "answers": [*record.answer, *record.answers, *record.answer_aliases],
        "qtype": record.type,
        "hops": record.hops,
        "support": record.support,
        "decomposition": [dict(step) for step in record.decomposition],
    }
    if record.document:
        of_record["document"] = list(record.document)
    if "gold_pids" not in fields:
        of_record["gold_pids"] = record.gold_pids(row, titles)
    return Item(row, make_example(**{**of_record, **fields}), record.passages)
