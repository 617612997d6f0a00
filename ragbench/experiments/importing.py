"""Predictions of another system as a run: scored, compared and shown beside our own.

A file has one record per question: `id` (or the `question` itself), `answer`, and where they are
known `passages` (texts, titles or ids, best first), `supporting_facts`, `evidence`, `tokens`,
`calls`, `cost_usd` and `latency_s`; `--prediction-field` maps other names. Read as they are: the
official prediction files of HotpotQA and 2WikiMultiHopQA (`{"answer": {id: text}, "sp": {id:
[[title, index]]}, "evidence": {id: [[subject, relation, object]]}}`), MuSiQue's, SQuAD's (`{id:
text}`), and the outputs that `ragbench.data.forms` knows. A question without a prediction counts as
failed, as in the official scripts.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import dspy
from pydantic import BeforeValidator

import ragbench
from ragbench.data import Dataset, load_dataset
from ragbench.data.answers import Amount, Answer, Count, Id, Text, Whole, as_list, unpacked
from ragbench.data.forms import PREDICTIONS, formed, records_in
from ragbench.data.mapping import (
    Record as FileRecord,
    absent_fields,
    fail,
    map_fields,
    missing,
    validate,
)
from ragbench.data.readers import Row, is_records, read_json, read_rows
from ragbench.errors import DataError, RunError
from ragbench.experiments.config import RunConfig
from ragbench.experiments.runs.runner import make_record
from ragbench.experiments.runs.summary import SUMMARY, Evaluation, reopen
from ragbench.experiments.store import DataId, RunCard, Store, is_run, locked, write_json
from ragbench.folder_store import sha256_of
from ragbench.passages import Corpus, Passage
from ragbench.record import Call, CriticalPath, Failure, Ledger, Record, Search
from ragbench.settings import QuestionSettings
from ragbench.words import question_key

#: Amount -> the columns of a table of runs that are of it. What a file does not tell is unknown.
_COLUMNS_OF = {
    "calls": ("calls",),
    "tokens": ("tokens",),
    "cost_usd": ("cost_usd",),
    "latency_s": ("p50_s", "p95_s"),
}
#: Amounts that no file of predictions tells, and their columns.
_NEVER_KNOWN = ("embedding_and_reranking_calls", "embedding_and_reranking_tokens", "retrievals",
                "critical_path_calls", "critical_path_s")  # fmt: skip
_NEVER_SHOWN = ("path", "searches")


#: What a passage of a prediction is named by, where it is an object: the first that it has.
_NAMES = ("id", "pid", "doc_id", "title", "text", "contents", "content")


def _blank_is_none(value: Any) -> Any:
    value = unpacked(value)
    if isinstance(value, str) and not value.strip():
        return None
    if isinstance(value, list):  # as systems that sample several write it
        if value:
            return value[0]
        return None
    return value


def _as_names(value: Any) -> Any:
    """Passages as names or texts, where some are objects with one of these."""
    entries: list[Any] = []
    for entry in as_list(value):
        if isinstance(entry, dict):
            entry = next((entry[key] for key in _NAMES if entry.get(key)), None)
        if isinstance(entry, int) and not isinstance(entry, bool):
            entry = str(entry)
        entries.append(entry)
    return entries


class PredictionRecord(FileRecord):
    """One record of a file of predictions; a blank answer is none.

    `support_idxs` and `answerable` are MuSiQue's, `evidence` is 2WikiMultiHopQA's. `as_written` is
    the answer before anything was done to it.
    """

    option = "--prediction-field"

    id: Id | None = None
    question: Text | None = None
    answer: Annotated[Answer | None, BeforeValidator(_blank_is_none)] = None
    as_written: Any = None
    passages: Annotated[tuple[Text, ...], BeforeValidator(_as_names)] = ()
    supporting_facts: tuple[tuple[Text, Whole], ...] = ()
    evidence: tuple[tuple[Text, Text, Text], ...] = ()
    support_idxs: tuple[Whole, ...] = ()
    answerable: bool | None = None
    tokens: Count = None
    calls: Count = None
    cost_usd: Amount = None
    latency_s: Amount = None

    def ledger(self, model: str) -> Ledger:
        """Calls that come to the totals given; none where nothing is known."""
        ledger = Ledger([], CriticalPath())
        if (self.tokens, self.calls, self.cost_usd) != (None, None, None):
            call = Call(
                model=model,
                prompt_tokens=self.tokens or 0,
                cost_usd=self.cost_usd,
                latency_s=self.latency_s or 0.0,
                count=1 if self.calls is None else self.calls,
            )
            ledger.calls.append(call)
        return ledger

    def unknown(self) -> list[str]:
        """The amounts that it does not tell."""
        unknown = [name for name in _COLUMNS_OF if getattr(self, name) is None]
        return [*unknown, *_NEVER_KNOWN]


def import_run(
    config: RunConfig,
    file: Path,
    name: str,
    model: str,
    folder: Path,
    fields: Mapping[str, str] = MappingProxyType({}),
) -> Evaluation:
    """The run of the predictions in `file`, made by the system `name`, written to `folder`.

    `fields` maps our names of a prediction's fields to paths in the file.

    Raises:
        DataError: the file cannot be read, or none of it is of the questions.
        RunError: there is a run in `folder`.
    """
    dataset = load_dataset(config.data_settings())
    examples = dataset.select(config.split, config.limit)
    predictions = read_predictions(file, fields, config.encoding or "")
    all_records = list(chain.from_iterable(predictions.values()))
    # Questions of MuSiQue's Full set share an id: the file has them in the order of the data.
    uses: Counter[str] = Counter()
    numbers: dict[str, int] = {}
    for example in dataset.questions or examples:
        written = example.get("twin_of") or example.qid
        numbers[example.qid] = uses[written]
        uses[written] += 1
    records = []
    for example in examples:
        row = _found(example, predictions, numbers.get(example.qid, 0))
        records.append(_record(example, row, dataset, model))
    if any(prediction.supporting_facts for prediction in all_records):
        records = [replace(record, cites_sentences=True) for record in records]
    if not any(prediction.passages or prediction.support_idxs for prediction in all_records):
        records = [replace(record, gold_pids=[]) for record in records]  # unknown what was read
    if all(record.failure for record in records):
        raise DataError(
            f"{file}: none of its {len(all_records)} predictions is of the {len(examples)} "
            f"questions asked: their ids, such as {next(iter(predictions))[:60]!r}, must be ids "
            f"of the data, such as {examples[0].qid!r}, or their questions the same"
        )
    of_data = config.identity()
    for field in RunConfig.model_fields.keys() - QuestionSettings.model_fields.keys():
        of_data.pop(field, None)
    unknown = list(_NEVER_SHOWN)
    for amount, columns in _COLUMNS_OF.items():
        if any(amount in record.unknown for record in records):
            unknown += columns
    card = RunCard(
        identity={**of_data, "program": name, "imported": f"sha256:{sha256_of(file)}"},
        label=name,
        questions=len(examples),
        knobs={},
        model=model,
        data=DataId(name=dataset.name, setting=dataset.setting, digest=dataset.digest),
        data_card=dict(dataset.card),
        versions={"ragbench": ragbench.__version__},
        unknown=unknown,
    )
    with locked(folder):
        if is_run(folder):
            raise RunError(f"{folder} holds a run already; give another --out")
        with Store(folder, card) as store:
            for record in records:
                store.write(record)
    evaluation = reopen(folder)
    write_json(folder / SUMMARY, evaluation.stored())  # which `ragbench runs` lists
    return evaluation


Predictions = Mapping[str, Sequence[PredictionRecord]]


def read_predictions(
    file: Path, fields: Mapping[str, str] = MappingProxyType({}), encoding: str = ""
) -> Predictions:
    """Predictions by id, or by normalised question; several only where MuSiQue's twins have one id.

    Raises:
        DataError: the file cannot be read, a prediction has neither id nor question, no prediction
            has an answer, or two are of one question.
    """
    predictions: dict[str, list[PredictionRecord]] = {}
    unanswered: Row | None = None
    is_answered = False
    first_row: Row | None = None
    never_there = set(fields)
    for row in _rows(file, encoding):
        row = formed(row, PREDICTIONS)
        absent = absent_fields(row, fields)
        first_row = first_row or row
        never_there &= absent
        present = {ours: path for ours, path in fields.items() if ours not in absent}
        row = map_fields(row, present, PredictionRecord.option)
        if isinstance(row.data, dict):
            if isinstance(milliseconds := row.data.get("latency_ms"), int | float):
                row.data.setdefault("latency_s", milliseconds / 1000)
            for alias in ("_id", "qid"):
                if alias in row.data:
                    row.data.setdefault("id", row.data[alias])
        record = validate(PredictionRecord, row)
        record = record.model_copy(update={"as_written": row.data.get("answer")})
        key = record.id or (question_key(record.question) if record.question else "")
        if not key:
            fail(row, "id", missing(PredictionRecord, row, "id"))
        same = predictions.setdefault(key, [])
        if same and not (record.answerable is not None and len(same) == 1):
            raise DataError(f"{row.where}: {key!r} has a prediction already")
        same.append(record)
        is_answered = is_answered or record.answer is not None
        if unanswered is None and "answer" not in row.data:
            unanswered = row
    if first_row is not None and never_there:
        map_fields(first_row, fields, PredictionRecord.option)  # which says what is not there
    if not is_answered and unanswered is not None:
        fail(unanswered, "answer", missing(PredictionRecord, unanswered, "answer"))
    return predictions


def _rows(file: Path, encoding: str) -> Iterator[Row]:
    content = None
    if file.suffix.lower() == ".json":
        content = records_in(read_json(file, encoding))
    if isinstance(content, list) and is_records(content):
        for number, record in enumerate(content, start=1):
            yield Row(f"{file}: record {number}", record)
    elif isinstance(content, Mapping) and isinstance(content.get("answer"), Mapping):
        yield from _official_rows(file, content)
    elif isinstance(content, Mapping) and content and all(map(_is_record, content.values())):
        for qid, value in content.items():
            data = value if isinstance(value, dict) else {"answer": value}
            yield Row(f"{file}: {qid}", {"id": qid, **data})
    else:
        yield from read_rows(file, encoding)


def _is_record(value: Any) -> bool:
    """Whether `value` may be what a file has by id: an answer, several, or a record."""
    if isinstance(value, list):
        return not any(isinstance(entry, dict | list) for entry in value)
    return True


def _official_rows(file: Path, content: Mapping[str, Any]) -> Iterator[Row]:
    """The records of HotpotQA's or 2WikiMultiHopQA's prediction file."""
    facts = content.get("sp") or {}
    evidence = content.get("evidence") or {}
    if not isinstance(facts, Mapping) or not isinstance(evidence, Mapping):
        raise DataError(f'{file}: "sp" and "evidence" must be objects by id, as "answer" is')
    for qid, answer in content["answer"].items():
        named = facts.get(qid, [])
        pairs = named if isinstance(named, list) else []  # whose shape the record checks
        titles = dict.fromkeys(str(fact[0]) for fact in pairs if isinstance(fact, list) and fact)
        data = {
            "id": qid, "answer": answer, "passages": [*titles], "supporting_facts": named,
            "evidence": evidence.get(qid, []),
        }  # fmt: skip
        yield Row(f"{file}: {qid}", data)


def _found(example: dspy.Example, predictions: Predictions, number: int) -> PredictionRecord:
    """The prediction of a question, the `number`th of those with its id; an empty one for none."""
    for key in (str(example.qid), example.get("twin_of"), question_key(example.question)):
        same = predictions.get(key or "", ())
        if len(same) == 1:
            return same[0]
        if number < len(same):
            return same[number]
    return PredictionRecord()


def _record(example: dspy.Example, row: PredictionRecord, dataset: Dataset, model: str) -> Record:
    prediction = None
    failure = None
    if row.answer is None:
        failure = Failure("import", "NoPrediction", "the file has no answer to this question")
    else:
        cited = _citations(example, row)
        pids = row.passages or [pid for pid in cited or () if isinstance(pid, str)]
        passages = _passages(pids, dataset.corpus)
        hits = tuple((passage.pid, 1 / rank) for rank, passage in enumerate(passages, start=1))
        prediction = dspy.Prediction(
            answer=row.answer,
            stop_reason="imported",
            steps=[],
            # Evidence is counted in what searches found: here all of it is one search.
            searches=[Search(example.question, len(hits), hits, 0.0)] if hits else [],
            counts={},
            passages=passages,
            citations=cited,
            facts=list(map(list, row.evidence)) or None,
        )
    record = make_record(
        example, prediction, row.ledger(model), latency_s=row.latency_s or 0.0,
        failure=failure, alignment=dataset.corpus.alignment,
    )  # fmt: skip
    written = {}
    if row.as_written is not None and row.as_written != row.answer:
        written["answer_as_written"] = row.as_written
    if row.answerable is not None:
        written["answerable_as_written"] = row.answerable
    return replace(record, extra={**record.extra, **written}, unknown=row.unknown())


def _citations(example: dspy.Example, row: PredictionRecord) -> list[Any] | None:
    """The supporting facts of a prediction, or the pids of MuSiQue's paragraphs by number."""
    if row.supporting_facts:
        return list(map(list, row.supporting_facts))
    pids = example.get("paragraph_pids", ())
    return [pids[i] for i in row.support_idxs if 0 <= i < len(pids)] or None


def _passages(texts: Sequence[str], corpus: Corpus) -> list[Passage]:
    """The passages named by id, title or text; one that the corpus has not stands for itself."""
    passages = {}
    for number, name in enumerate(texts):
        place = corpus.positions.get(name)
        if place is None:
            place = corpus.titled(name)
        passage = Passage(f"imported-{number}", "", name)
        if place is not None:
            passage = corpus[place]
        passages[passage.pid] = passage
    return list(passages.values())
