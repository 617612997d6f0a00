"""Read the files of predictions that other systems write.

A file has one record per question: `id` (or `question`) and `answer`. Optional fields are
`passages` (texts, titles or ids, best first), `supporting_facts`, `evidence`, `tokens`, `calls`,
`cost_usd` and `latency_s`. `--prediction-field` maps other names. The official prediction files of
HotpotQA, 2WikiMultiHopQA, MuSiQue and GraphRAG-Bench need no mapping, nor do AutoRAG's.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AliasChoices, BeforeValidator, Field

from ragbench.data.answers import Amount, Answer, Count, Id, Text, Whole, as_list
from ragbench.data.mapping import Record, fail, map_rows, missing, validate
from ragbench.data.readers import Row, read_json, read_rows
from ragbench.data.values import plain, unpacked
from ragbench.errors import DataError
from ragbench.text_normalization import question_key

#: Suffix of the key of the second prediction for an id.
TWIN = "::twin"
#: Keys that may name a passage that is an object; the first one present counts.
_PASSAGE_KEYS = ("id", "pid", "doc_id", "title", "text", "contents", "content")


def _blank_is_none(value: Any) -> Any:
    value = plain(unpacked(value))
    if isinstance(value, list):  # Systems that sample several answers write a list.
        value = next(iter(value), None)
    if isinstance(value, str) and not value.strip():
        return None
    return value


def _as_names(value: Any) -> Any:
    """Return passages as names or texts; an object gives the first of `_PASSAGE_KEYS`."""
    mentions: list[Any] = []
    for entry in as_list(value):
        if isinstance(entry, dict):
            entry = next((entry[key] for key in _PASSAGE_KEYS if entry.get(key)), None)
        if isinstance(entry, int) and not isinstance(entry, bool):
            entry = str(entry)
        mentions.append(entry)
    return mentions


def _no_text(value: Any) -> Any:
    """Return an empty tuple for the evidence of GraphRAG-Bench, which is a text."""
    value = unpacked(value)
    return () if isinstance(value, str) else value


class PredictionRecord(Record):
    """Record of a file of predictions. A blank answer counts as missing."""

    option = "--prediction-field"

    id: Id | None = Field(None, validation_alias=AliasChoices("id", "_id", "qid"))
    question: Text | None = None
    answer: Annotated[Answer | None, BeforeValidator(_blank_is_none)] = Field(
        None,
        validation_alias=AliasChoices(
            "answer", "predicted_answer", "generated_answer", "generated_texts"
        ),
    )
    passages: Annotated[tuple[Text, ...], BeforeValidator(_as_names)] | None = Field(
        None, validation_alias=AliasChoices("passages", "context", "retrieved_ids")
    )
    supporting_facts: Annotated[tuple[tuple[Text, Whole], ...], BeforeValidator(unpacked)] = ()
    evidence: Annotated[tuple[tuple[Text, Text, Text], ...], BeforeValidator(_no_text)] = ()
    support_idxs: Annotated[tuple[Whole, ...], BeforeValidator(unpacked)] | None = Field(
        None, validation_alias=AliasChoices("support_idxs", "predicted_support_idxs")
    )
    answerable: bool | None = Field(
        None, validation_alias=AliasChoices("answerable", "predicted_answerable")
    )
    tokens: Count = None
    calls: Count = None
    cost_usd: Amount = None
    latency_s: Amount = None


def read_predictions(
    file: Path, fields: Mapping[str, str], encoding: str = ""
) -> Mapping[str, PredictionRecord]:
    """Read predictions by id, or by normalized question.

    Args:
        file: File of predictions.
        fields: Our names of a prediction's fields -> paths in the file.
        encoding: Encoding of a text that is not UTF-8.

    Returns:
        The predictions. In MuSiQue's Full set two questions share an id. The second has the key
        `id` and `TWIN`.

    Raises:
        DataError: The file cannot be read, a prediction has neither id nor question, no prediction
            has an answer, or two predictions are for one question.
    """
    predictions: dict[str, PredictionRecord] = {}
    rows = list(map_rows(_rows(file, encoding), fields, PredictionRecord.option))
    for row in rows:
        record = validate(PredictionRecord, row)
        key = record.id or question_key(record.question or "")
        if not key:
            fail(row, "id", missing(PredictionRecord, row, "id"))
        if key in predictions and record.answerable is not None:
            key += TWIN
        if key in predictions:
            raise DataError(f"{row.where}: {key!r} already has a prediction")
        predictions[key] = record
    if all(record.answer is None for record in predictions.values()):
        fail(rows[0], "answer", missing(PredictionRecord, rows[0], "answer"))
    return predictions


def _rows(file: Path, encoding: str) -> Iterator[Row]:
    """Yield the records. An official file of HotpotQA or 2WikiMultiHopQA has them by id."""
    content = read_json(file, encoding) if file.suffix.lower() == ".json" else None
    answers = content.get("answer") if isinstance(content, dict) else None
    if not (isinstance(content, dict) and answers and isinstance(answers, dict)):
        yield from read_rows(file, encoding)
        return
    facts = content.get("sp") or {}
    evidence = content.get("evidence") or {}
    if not isinstance(facts, dict) or not isinstance(evidence, dict):
        raise DataError(f'{file}: "sp" and "evidence" must be objects by id, as "answer" is')
    for qid, answer in answers.items():
        data = {"id": qid, "answer": answer, "evidence": evidence.get(qid)}
        data["supporting_facts"] = named = facts.get(qid) or []
        if isinstance(named, list):  # The record checks their shape.
            data["passages"] = list(dict.fromkeys(str(fact[0]) for fact in named if fact))
        yield Row(f"{file}: {qid}", data)
