"""Predictions of another system as a run: scored, compared and shown beside our own.

A file has one record per question: `id` (or the `question` itself), `answer`, and where they are
known `passages` (texts, titles or ids, best first), `supporting_facts`, `tokens`, `calls`,
`cost_usd` and `latency_s`. HotpotQA's official prediction file (`{"answer": {id: text}, "sp": {id:
[[title, index]]}}`) is read too. A question without a prediction counts as failed, as in the
official scripts.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import dspy
from pydantic import BeforeValidator, Field

import ragbench
from ragbench.data import Dataset, load_dataset, readers
from ragbench.errors import DataError, RunError
from ragbench.experiments.config import DataConfig, RunConfig
from ragbench.experiments.runs.runner import make_record
from ragbench.experiments.runs.summary import SUMMARY, Evaluation, reopen
from ragbench.experiments.store import DataId, RunCard, Store, is_run, locked, write_json
from ragbench.folder_store import sha256_of
from ragbench.passages import Corpus, Passage
from ragbench.record import Call, CriticalPath, Failure, Ledger, Record, Search
from ragbench.words import question_key

#: Amount -> the columns of a table of runs that are of it. What a file does not tell is unknown.
_COLUMNS_OF = {
    "calls": ("calls",),
    "tokens": ("tokens",),
    "cost_usd": ("cost_usd",),
    "latency_s": ("p50_s", "p95_s"),
}
#: Amounts that no file of predictions tells, and their columns.
_NEVER_KNOWN = ("embedding_and_reranking_calls", "retrievals", "critical_path_calls",
                "critical_path_s")  # fmt: skip
_NEVER_SHOWN = ("path", "searches")


def _blank_is_none(value: Any) -> Any:
    return None if isinstance(value, str) and not value.strip() else value


def _no_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("is true or false, not a number")
    return value


#: What a system says that it took; more calls or tokens than a person can mean are a mistake.
Count = Annotated[int, Field(ge=0, le=100_000_000), BeforeValidator(_no_bool)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False), BeforeValidator(_no_bool)]


class PredictionRecord(readers.Record):
    """One record of a file of predictions; a blank answer is none."""

    id: readers.Id | None = None
    question: readers.Text | None = None
    answer: Annotated[readers.Answer | None, BeforeValidator(_blank_is_none)] = None
    passages: Annotated[tuple[readers.Text, ...], BeforeValidator(readers.as_answers)] = ()
    supporting_facts: tuple[tuple[readers.Text, int], ...] = ()
    tokens: Count | None = None
    calls: Count | None = None
    cost_usd: Amount | None = None
    latency_s: Amount | None = None

    def ledger(self, model: str) -> Ledger:
        """Calls that come to the totals given; none where nothing is known."""
        if self.tokens is None and self.calls is None and self.cost_usd is None:
            return Ledger([], CriticalPath())
        call = Call(
            model=model,
            prompt_tokens=self.tokens or 0,
            cost_usd=self.cost_usd,
            latency_s=self.latency_s or 0.0,
            count=1 if self.calls is None else self.calls,
        )
        return Ledger([call], CriticalPath())

    def unknown(self) -> list[str]:
        """The amounts that it does not tell."""
        names = [name for name in _COLUMNS_OF if getattr(self, name) is None]
        return [*names, *_NEVER_KNOWN]


def import_run(config: RunConfig, file: Path, name: str, model: str, folder: Path) -> Evaluation:
    """The run of the predictions in `file`, made by the system `name`, written to `folder`."""
    dataset = load_dataset(config.data_spec())
    examples = dataset.select(config.split, config.limit)
    predictions = read_predictions(file)
    given = list(predictions.values())
    records = [_record(example, predictions, dataset, model) for example in examples]
    if not any(prediction.passages for prediction in given):  # then what was found is not known
        records = [replace(record, gold_pids=[]) for record in records]
    if all(record.failure for record in records):
        raise DataError(
            f"{file}: none of its {len(predictions)} predictions is of the {len(examples)} "
            f"questions asked, such as {examples[0].qid!r}; their ids or questions must agree"
        )
    own = RunConfig.model_fields.keys() - DataConfig.model_fields.keys()
    of_data = {field: value for field, value in config.identity().items() if field not in own}
    card = RunCard(
        identity={**of_data, "program": name, "imported": f"sha256:{sha256_of(file)}"},
        label=name,
        questions=len(examples),
        knobs={},
        model=model,
        data=DataId(name=dataset.name, setting=dataset.setting, digest=dataset.digest),
        data_card=dict(dataset.card),
        versions={"ragbench": ragbench.__version__},
        unknown=_unknown_columns(records),
    )
    with locked(folder):
        if is_run(folder):
            raise RunError(f"{folder} holds a run already; give another --out")
        with Store(folder, card) as store:
            for record in records:
                store.write(record)
    made = reopen(folder)
    write_json(folder / SUMMARY, made.stored())  # which `ragbench runs` lists
    return made


def _unknown_columns(records: Sequence[Record]) -> list[str]:
    """The columns of a table of runs that are not known of every question."""
    columns = list(_NEVER_SHOWN)
    for amount, names in _COLUMNS_OF.items():
        if any(amount in record.unknown for record in records):
            columns += names
    return columns


def read_predictions(file: Path) -> dict[str, PredictionRecord]:
    """Predictions by id, or by normalised question."""
    predictions: dict[str, PredictionRecord] = {}
    for row in _rows(file):
        record = readers.validate(PredictionRecord, row)
        key = record.id or (question_key(record.question) if record.question else "")
        if not key:
            raise DataError(f"{row.where}: has neither an id nor a question")
        if predictions.setdefault(key, record) is not record:
            raise DataError(f"{row.where}: {key!r} has a prediction already")
    return predictions


def _rows(file: Path) -> Iterator[readers.Row]:
    content = readers.read_json(file) if file.suffix.lower() == ".json" else None
    if not isinstance(content, Mapping):
        yield from readers.read_rows(file)
        return
    answers, facts = content.get("answer"), content.get("sp") or {}
    if not isinstance(answers, Mapping) or not isinstance(facts, Mapping):
        raise DataError(
            f"{file}: is neither a list of records nor HotpotQA's prediction file, an object of "
            '"answer" and "sp" by id'
        )
    for qid, answer in answers.items():
        named = facts.get(qid, [])
        pairs = named if isinstance(named, list) else []  # whose shape the record checks
        titles = dict.fromkeys(str(fact[0]) for fact in pairs if isinstance(fact, list) and fact)
        data = {"id": qid, "answer": answer, "passages": [*titles], "supporting_facts": named}
        yield readers.Row(f"{file}: {qid}", data)


def _record(
    example: dspy.Example, predictions: Mapping[str, PredictionRecord], dataset: Dataset, model: str
) -> Record:
    found = predictions.get(str(example.qid)) or predictions.get(question_key(example.question))
    found = found or PredictionRecord()
    prediction, failure = None, None
    if found.answer is None:
        failure = Failure("import", "NoPrediction", "the file has no answer to this question")
    else:
        passages = _passages(found.passages, dataset.corpus)
        hits = tuple((passage.pid, 1 / rank) for rank, passage in enumerate(passages, start=1))
        prediction = dspy.Prediction(
            answer=found.answer,
            stop_reason="imported",
            steps=[],
            # Evidence is counted in what searches found: here all of it is one search.
            searches=[Search(example.question, len(hits), hits, 0.0)] if hits else [],
            counts={},
            passages=passages,
            citations=[list(fact) for fact in found.supporting_facts] or None,
        )
    record = make_record(
        example, prediction, found.ledger(model), latency_s=found.latency_s or 0.0,
        failure=failure, alignment=dataset.corpus.alignment,
    )  # fmt: skip
    return replace(record, unknown=found.unknown())


def _passages(given: Sequence[str], corpus: Corpus) -> list[Passage]:
    """The passages named by id, title or text; one that the corpus has not stands for itself."""
    passages = {}
    for number, name in enumerate(given):
        place = corpus.positions.get(name)
        place = corpus.titled(name) if place is None else place
        missing = Passage(f"imported-{number}", "", name)
        passage = missing if place is None else corpus[place]
        passages[passage.pid] = passage
    return list(passages.values())
