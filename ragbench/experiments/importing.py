"""Import the predictions of another system as a run, to score and compare it.

`prediction_files` reads the file. A question without a prediction counts as failed, as in the
official scripts.
"""

import re
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

import dspy

import ragbench
from ragbench.data import Dataset, find_clusters, load_dataset
from ragbench.errors import DataError, RunError
from ragbench.experiments.config import RunConfig
from ragbench.experiments.prediction_files import TWIN, PredictionRecord, read_predictions
from ragbench.experiments.runs.asking import make_record
from ragbench.experiments.runs.matching import PassageMatcher
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

#: Amounts that a file may have. One that it lacks is unknown.
_AMOUNTS = ("calls", "tokens", "cost_usd", "latency_s")
#: Amounts that no file of predictions has.
_NEVER_KNOWN = ("embedding_and_reranking_calls", "embedding_and_reranking_tokens", "retrievals",
                "critical_path_calls", "critical_path_s")  # fmt: skip
#: Column of a table of runs -> the amount that it needs.
_COLUMNS = {"calls": "calls", "tokens": "tokens", "cost_usd": "cost_usd", "p50_s": "latency_s",
            "p95_s": "latency_s", "sequential_calls": "critical_path_calls",
            "searches": "retrievals"}  # fmt: skip


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
    pairs = []
    for example, first in zip(examples, clusters, strict=True):
        # In MuSiQue's Full set two questions share an id.
        twin = f"{example.get('twin_of')}{TWIN}"
        keys = (str(example.qid), twin, question_key(example.question))
        row = next((predictions[key] for key in keys if key in predictions), PredictionRecord())
        pairs.append((example.copy(cluster=examples[first].qid), row))
    if all(row.answer is None for _, row in pairs):
        raise DataError(
            f"{file}: none of its {len(predictions)} predictions is of the {len(examples)} "
            f"questions: their ids, such as {next(iter(predictions))[:60]!r}, must "
            f"be ids of the data, such as {examples[0].qid!r}, or their questions the same"
        )
    records = _records(pairs, dataset, model, file)
    ignored = RunConfig.model_fields.keys() - QuestionSettings.model_fields.keys()
    of_data = {key: value for key, value in config.identity().items() if key not in ignored}
    unknown = []
    for column, amount in _COLUMNS.items():
        if all(amount in record.unknown for record in records):
            unknown.append(column)
    card = RunCard(
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
    try:
        _write(folder, card, records)
    except (OSError, sqlite3.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise RunError(f"cannot write the run folder {folder}: {reason}") from None
    return reopen(folder)


def _write(folder: Path, card: RunCard, records: Sequence[Record]) -> None:
    """Write a run to a temporary folder and rename it, so that `folder` is never incomplete."""
    make_folder(folder.parent)
    with TemporaryDirectory(
        prefix=".import-", dir=folder.parent, ignore_cleanup_errors=True
    ) as made:
        unfinished = Path(made)
        with Store(unfinished, card) as store:
            for record in records:
                store.write(record)
        write_json(unfinished / SUMMARY, reopen(unfinished).stored())  # Lists of runs read it.
        unfinished.chmod(0o755)
        unfinished.rename(folder)


def _records(
    pairs: Sequence[tuple[dspy.Example, PredictionRecord]],
    dataset: Dataset,
    model: str,
    file: Path,
) -> list[Record]:
    """Return the scored records.

    The evidence of a question is unknown if no prediction of the file names passages, if its own
    prediction does not, or if the data has none of the named passages.
    """
    mentions = []
    for example, row in pairs:
        named = row.passages
        if not named and row.support_idxs is not None:
            named = _cited_pids(example, row.support_idxs)
        mentions.append(named)
    matcher = PassageMatcher(dataset.corpus, chain.from_iterable(filter(None, mentions)))
    has_passages = any(mentions)
    cites_sentences = any(row.supporting_facts for _, row in pairs)
    records = []
    unknown = 0
    for (example, row), own_mentions in zip(pairs, mentions, strict=True):
        passages = matcher.match(own_mentions or (), example)
        is_known = any(passage.pid in dataset.corpus.positions for passage in passages)
        is_known = is_known or row.answer is None or own_mentions == ()
        if not (has_passages and is_known):
            unknown += has_passages and bool(example.gold_pids)
            example = example.copy(gold_pids=[])
        record = _record(example, row, passages, dataset, model)
        records.append(replace(record, cites_sentences=cites_sentences))
    if matcher.unmatched:
        _log.warning(
            "%s: %s of %s passages match no id, title or text of the data, such as %r; "
            "evidence is unknown for %s questions",
            file, matcher.unmatched.total(), sum(map(len, filter(None, mentions))),
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
        cited: Sequence[Any] = list(map(list, row.supporting_facts))
        if not cited:
            cited = list(_cited_pids(example, row.support_idxs or ()))
        prediction = dspy.Prediction(
            answer=row.answer,
            stop_reason="imported",
            steps=[],
            # Evidence is counted in what searches returned: here all of it is one search.
            searches=[Search(example.question, len(hits), hits, 0.0)] if hits else [],
            counts={},
            passages=passages,
            citations=cited or None,
            facts=list(map(list, row.evidence)) or None,
        )
    calls = []
    if (row.tokens, row.calls, row.cost_usd) != (None, None, None):  # One call has the totals.
        call = Call(
            model=model,
            prompt_tokens=row.tokens or 0,
            cost_usd=row.cost_usd,
            latency_s=row.latency_s or 0.0,
            count=1 if row.calls is None else row.calls,
        )
        calls.append(call)
    record = make_record(
        example, prediction, Ledger(calls, CriticalPath()), latency_s=row.latency_s or 0.0,
        failure=failure, alignment=dataset.corpus.alignment,
    )  # fmt: skip
    unknown = [name for name in _AMOUNTS if getattr(row, name) is None]
    return replace(record, unknown=[*unknown, *_NEVER_KNOWN])


def _cited_pids(example: dspy.Example, numbers: Sequence[int]) -> tuple[str, ...]:
    """Return the ids of the paragraphs of MuSiQue with these numbers."""
    pids = example.get("paragraph_pids", ())
    return tuple(pids[i] for i in numbers if 0 <= i < len(pids))
