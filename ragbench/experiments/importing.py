"""Import the predictions of another system as a run, to score and compare it.

`prediction_files` reads the file. A question without a prediction counts as failed, as in the
official scripts.
"""

import re
import shutil
import sqlite3
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import MappingProxyType

import dspy

import ragbench
from ragbench.data import Dataset, find_clusters, load_dataset
from ragbench.errors import DataError, RunError
from ragbench.experiments.config import RunConfig
from ragbench.experiments.prediction_files import PredictionRecord, Predictions, read_predictions
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
    pairs = _paired(examples, predictions)
    if all(row.answer is None for _, row in pairs):
        raise DataError(
            f"{file}: none of its {sum(map(len, predictions.values()))} predictions is of the "
            f"{len(examples)} questions: their ids, such as {next(iter(predictions))[:60]!r}, must "
            f"be ids of the data, such as {examples[0].qid!r}, or their questions the same"
        )
    records = _records(pairs, dataset, model, file)
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


def _paired(
    examples: Sequence[dspy.Example], predictions: Predictions
) -> list[tuple[dspy.Example, PredictionRecord]]:
    """Return each example with its prediction, or with an empty one.

    In MuSiQue's Full set two questions share an id. The second prediction is that of the twin.
    """
    pairs = []
    for example in examples:
        twin_of = example.get("twin_of")
        row = PredictionRecord()
        for key in (str(example.qid), twin_of, question_key(example.question)):
            if same := predictions.get(key or ""):
                row = same[-1] if twin_of else same[0]
                break
        pairs.append((example, row))
    return pairs


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
    mentions = [row.passages or _cited_pids(example, row) for example, row in pairs]
    matcher = PassageMatcher(dataset.corpus, chain.from_iterable(mentions))
    has_passages = any(row.passages or row.support_idxs for _, row in pairs)
    cites_sentences = any(row.supporting_facts for _, row in pairs)
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
    unknown = [name for name in _COLUMNS_OF if getattr(row, name) is None]
    return replace(record, unknown=[*unknown, *_NEVER_KNOWN])


def _cited_pids(example: dspy.Example, row: PredictionRecord) -> list[str]:
    """Return the ids of the paragraphs of MuSiQue that a prediction names by their numbers."""
    pids = example.get("paragraph_pids", ())
    return [pids[i] for i in row.support_idxs or () if 0 <= i < len(pids)]
