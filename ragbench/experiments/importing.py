"""Import the predictions of another system as a run, to score and compare it.

A file has one record per question: `id` (or `question`) and `answer`. Optional fields are
`passages` (texts, titles or ids, best first), `supporting_facts`, `evidence`, `tokens`, `calls`,
`cost_usd` and `latency_s`. `--prediction-field` maps other names. The official prediction files of
HotpotQA, 2WikiMultiHopQA, MuSiQue and GraphRAG-Bench need no mapping, nor do AutoRAG's. A question
without a prediction counts as failed, as in the official scripts.
"""

import re
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import dspy
from pydantic import AliasChoices, BeforeValidator, Field

import ragbench
from ragbench.data import Dataset, find_clusters, load_dataset
from ragbench.data.answers import Amount, Answer, Count, Id, Text, Whole, as_list
from ragbench.data.mapping import (
    Record as FileRecord,
    absent_fields,
    fail,
    map_fields,
    missing,
    validate,
)
from ragbench.data.readers import Row, read_json, read_rows
from ragbench.data.values import plain, unpacked
from ragbench.errors import DataError, RunError
from ragbench.experiments.config import RunConfig
from ragbench.experiments.runs.matching import PassageMatcher
from ragbench.experiments.runs.runner import make_record
from ragbench.experiments.runs.summary import SUMMARY, Evaluation, reopen
from ragbench.experiments.store import DataId, RunCard, Store, is_run, write_json
from ragbench.folder_store import sha256_of
from ragbench.logs import get
from ragbench.passages import Passage
from ragbench.paths import make_folder
from ragbench.record import Call, CriticalPath, Failure, Ledger, Record, Search
from ragbench.settings import QuestionSettings
from ragbench.text_normalization import question_key

_log = get(__name__)

#: Amount -> the columns of a table of runs that need it. An amount that a file lacks is unknown.
_COLUMNS_OF = {
    "calls": ("calls",),
    "tokens": ("tokens",),
    "cost_usd": ("cost_usd",),
    "latency_s": ("p50_s", "p95_s"),
}
#: Amounts that no file of predictions has, and their columns.
_NEVER_KNOWN = ("embedding_and_reranking_calls", "embedding_and_reranking_tokens", "retrievals",
                "critical_path_calls", "critical_path_s")  # fmt: skip
_NEVER_SHOWN = ("sequential_calls", "searches")
#: Keys that may name a passage that is an object; the first one present counts.
_PASSAGE_KEYS = ("id", "pid", "doc_id", "title", "text", "contents", "content")
#: Names of the answer field: ours, MuSiQue's, GraphRAG-Bench's and AutoRAG's.
_ANSWER_KEYS = ("answer", "predicted_answer", "generated_answer", "generated_texts")


def _blank_is_none(value: Any) -> Any:
    value = plain(unpacked(value))
    if isinstance(value, list):  # systems that sample several answers write a list
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
    if isinstance(value, str):
        return ()
    return value


class PredictionRecord(FileRecord):
    """Record of a file of predictions. A blank answer counts as missing."""

    option = "--prediction-field"

    id: Id | None = Field(None, validation_alias=AliasChoices("id", "_id", "qid"))
    question: Text | None = None
    answer: Annotated[Answer | None, BeforeValidator(_blank_is_none)] = Field(
        None, validation_alias=AliasChoices(*_ANSWER_KEYS)
    )
    passages: Annotated[tuple[Text, ...], BeforeValidator(_as_names)] | None = Field(
        None, validation_alias=AliasChoices("passages", "context", "retrieved_ids")
    )
    supporting_facts: tuple[tuple[Text, Whole], ...] = ()
    evidence: Annotated[tuple[tuple[Text, Text, Text], ...], BeforeValidator(_no_text)] = ()
    support_idxs: tuple[Whole, ...] | None = Field(
        None, validation_alias=AliasChoices("support_idxs", "predicted_support_idxs")
    )
    answerable: bool | None = Field(
        None, validation_alias=AliasChoices("answerable", "predicted_answerable")
    )
    tokens: Count = None
    calls: Count = None
    cost_usd: Amount = None
    latency_s: Amount = None
    as_written: Any = None

    def ledger(self, model: str) -> Ledger:
        """Return a call with the reported totals. No call if nothing is known."""
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
        """Return the names of the amounts that the record lacks."""
        unknown = [name for name in _COLUMNS_OF if getattr(self, name) is None]
        return [*unknown, *_NEVER_KNOWN]


def folder_of(name: str) -> Path:
    """Return the default run folder of the system `name`, directly below `runs`."""
    return Path("runs") / ("imported-" + re.sub(r"[^\w.-]", "_", name))


def import_run(
    config: RunConfig,
    file: Path,
    name: str,
    model: str,
    folder: Path,
    fields: Mapping[str, str] = MappingProxyType({}),
) -> Evaluation:
    """Write the predictions in a file as a run. A failed import leaves no files.

    Args:
        config: Data settings of the questions.
        file: File of predictions.
        name: Name of the system in tables.
        model: LM of the system, for tables.
        folder: Run folder.
        fields: Our names of a prediction's fields -> paths in the file.

    Returns:
        The run.

    Raises:
        DataError: The file cannot be read, or no prediction matches a question.
        RunError: `folder` holds a run already, or it cannot be written.
    """
    if is_run(folder):
        raise RunError(f"{folder} already holds a run; choose another --out")
    dataset = load_dataset(config.data_settings())
    examples = dataset.select(config.split, config.limit)
    predictions = read_predictions(file, fields, config.encoding or "")
    # Without its gold passages a question could not be clustered with others that need them.
    clusters = find_clusters(examples)
    examples = [e.copy(cluster=examples[at].qid) for e, at in zip(examples, clusters, strict=True)]
    pairs = _paired(dataset.questions or examples, examples, predictions)
    if all(row.answer is None for _, row in pairs):
        raise DataError(
            f"{file}: none of its {sum(map(len, predictions.values()))} predictions is of the "
            f"{len(examples)} questions: their ids, such as {next(iter(predictions))[:60]!r}, must "
            f"be ids of the data, such as {examples[0].qid!r}, or their questions the same"
        )
    every_row = list(chain.from_iterable(predictions.values()))
    records = _records(pairs, every_row, dataset, model, file)
    card = _card(config, file, name, model, dataset, records)
    _write(folder, card, records)
    return reopen(folder)


def _card(
    config: RunConfig,
    file: Path,
    name: str,
    model: str,
    dataset: Dataset,
    records: Sequence[Record],
) -> RunCard:
    of_data = config.identity()
    for field in RunConfig.model_fields.keys() - QuestionSettings.model_fields.keys():
        of_data.pop(field, None)
    unknown = list(_NEVER_SHOWN)
    for amount, columns in _COLUMNS_OF.items():
        if all(amount in record.unknown for record in records):
            unknown += columns
    return RunCard(
        identity={**of_data, "program": name, "imported": f"sha256:{sha256_of(file)}"},
        label=name,
        questions=len(records),
        knobs={},
        model=model,
        data=DataId(name=dataset.name, setting=dataset.setting, digest=dataset.digest),
        data_card=dict(dataset.card),
        versions={"ragbench": ragbench.__version__},
        unknown=unknown,
    )


def _write(folder: Path, card: RunCard, records: Sequence[Record]) -> None:
    """Write a run to a temporary folder and rename it, so that `folder` is never incomplete."""
    unfinished = None
    try:
        make_folder(folder.parent)
        unfinished = Path(tempfile.mkdtemp(prefix=".import-", dir=folder.parent))
        with Store(unfinished, card) as store:
            for record in records:
                store.write(record)
        write_json(unfinished / SUMMARY, reopen(unfinished).stored())  # Lists of runs read it.
        unfinished.chmod(0o755)
        unfinished.rename(folder)
    except (OSError, sqlite3.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise RunError(f"cannot write the run folder {folder}: {reason}") from None
    finally:
        if unfinished is not None:
            shutil.rmtree(unfinished, ignore_errors=True)


Predictions = Mapping[str, Sequence[PredictionRecord]]


def read_predictions(
    file: Path, fields: Mapping[str, str] = MappingProxyType({}), encoding: str = ""
) -> Predictions:
    """Read predictions by id, or by normalized question.

    Args:
        file: File of predictions.
        fields: Our names of a prediction's fields -> paths in the file.
        encoding: Encoding of a text that is not UTF-8.

    Returns:
        The predictions of each key. Only in MuSiQue's Full set two questions share an id.

    Raises:
        DataError: The file cannot be read, a prediction has neither id nor question, no prediction
            has an answer, or two predictions are for one question.
    """
    predictions: dict[str, list[PredictionRecord]] = {}
    unanswered: Row | None = None
    first_row: Row | None = None
    never_there = set(fields)
    for row in _rows(file, encoding):
        first_row = first_row or row
        absent = absent_fields(row, fields)
        never_there &= absent
        present = {ours: path for ours, path in fields.items() if ours not in absent}
        row = map_fields(row, present, PredictionRecord.option)
        record = validate(PredictionRecord, row)
        written = [row.data[key] for key in _ANSWER_KEYS if key in row.data]
        if written:
            record = record.model_copy(update={"as_written": written[0]})
        elif unanswered is None:
            unanswered = row
        key = record.id or (question_key(record.question) if record.question else "")
        if not key:
            fail(row, "id", missing(PredictionRecord, row, "id"))
        same = predictions.setdefault(key, [])
        if same and not (record.answerable is not None and len(same) == 1):
            raise DataError(f"{row.where}: {key!r} already has a prediction")
        same.append(record)
    if first_row is not None and never_there:
        map_fields(first_row, fields, PredictionRecord.option)  # raises, and names the fields
    is_answered = any(r.answer is not None for r in chain.from_iterable(predictions.values()))
    if not is_answered and unanswered is not None:
        fail(unanswered, "answer", missing(PredictionRecord, unanswered, "answer"))
    return predictions


def _rows(file: Path, encoding: str) -> Iterator[Row]:
    """Yield the records. An official file of HotpotQA or 2WikiMultiHopQA has them by id."""
    content = read_json(file, encoding) if file.suffix.lower() == ".json" else None
    if not isinstance(content, Mapping) or not isinstance(content.get("answer"), Mapping):
        yield from read_rows(file, encoding)
        return
    facts = content.get("sp") or {}
    evidence = content.get("evidence") or {}
    if not isinstance(facts, Mapping) or not isinstance(evidence, Mapping):
        raise DataError(f'{file}: "sp" and "evidence" must be objects by id, as "answer" is')
    for qid, answer in content["answer"].items():
        named = facts.get(qid, [])
        pairs = named if isinstance(named, list) else []  # the record checks their shape
        titles = dict.fromkeys(str(fact[0]) for fact in pairs if isinstance(fact, list) and fact)
        data = {
            "id": qid, "answer": answer, "passages": [*titles], "supporting_facts": named,
            "evidence": evidence.get(qid, []),
        }  # fmt: skip
        yield Row(f"{file}: {qid}", data)


def _paired(
    questions: Sequence[dspy.Example], examples: Sequence[dspy.Example], predictions: Predictions
) -> list[tuple[dspy.Example, PredictionRecord]]:
    """Return each example with its prediction, or with an empty one.

    Questions of MuSiQue's Full set that share an id are in the order of `questions`.
    """
    uses: Counter[str] = Counter()
    numbers: dict[str, int] = {}
    for example in questions:
        written = example.get("twin_of") or example.qid
        numbers[example.qid] = uses[written]
        uses[written] += 1
    pairs = []
    for example in examples:
        row = PredictionRecord()
        for key in (str(example.qid), example.get("twin_of"), question_key(example.question)):
            same = predictions.get(key or "", ())
            number = 0 if len(same) == 1 else numbers.get(example.qid, 0)
            if number < len(same):
                row = same[number]
                break
        pairs.append((example, row))
    return pairs


def _records(
    pairs: Sequence[tuple[dspy.Example, PredictionRecord]],
    every_row: Sequence[PredictionRecord],
    dataset: Dataset,
    model: str,
    file: Path,
) -> list[Record]:
    """Return the scored records.

    The evidence of a question is unknown if no prediction of the file names passages, if its own
    prediction does not, or if the data has none of the named passages.
    """
    mentions = [row.passages or _cited_pids(example, row) for example, row in pairs]
    matcher = PassageMatcher(dataset.corpus, chain.from_iterable(mentions))
    has_passages = any(row.passages or row.support_idxs for row in every_row)
    cites_sentences = any(row.supporting_facts for row in every_row)
    records = []
    unknown = 0
    for (example, row), own_mentions in zip(pairs, mentions, strict=True):
        passages = matcher.match(own_mentions, example)
        is_known = any(passage.pid in dataset.corpus.positions for passage in passages)
        is_empty = not own_mentions and (row.passages, row.support_idxs) != (None, None)
        if not has_passages or not (is_known or is_empty or row.answer is None):
            unknown += has_passages and bool(example.gold_pids)
            example = example.copy(gold_pids=[])
        record = _record(example, row, passages, dataset, model)
        records.append(replace(record, cites_sentences=cites_sentences))
    if matcher.unmatched:
        _log.warning(
            "%s: %s of %s passages match no id, title or text of the data, such as %r; "
            "evidence is unknown for %s questions",
            file, matcher.unmatched.total(), sum(map(len, mentions)),
            next(iter(matcher.unmatched))[:60], unknown,
        )  # fmt: skip
    return records


def _record(
    example: dspy.Example,
    row: PredictionRecord,
    passages: Sequence[Passage],
    dataset: Dataset,
    model: str,
) -> Record:
    prediction = None
    failure = None
    if row.answer is None:
        failure = Failure("import", "NoPrediction", "the file has no answer for this question")
    else:
        hits = tuple((passage.pid, 1 / rank) for rank, passage in enumerate(passages, start=1))
        cited = list(map(list, row.supporting_facts)) or _cited_pids(example, row) or None
        prediction = dspy.Prediction(
            answer=row.answer,
            stop_reason="imported",
            steps=[],
            # Evidence is counted in what searches returned: here all of it is one search.
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


def _cited_pids(example: dspy.Example, row: PredictionRecord) -> list[str]:
    """Return the ids of the paragraphs of MuSiQue that a prediction names by their numbers."""
    pids = example.get("paragraph_pids", ())
    return [pids[i] for i in row.support_idxs or () if 0 <= i < len(pids)]
