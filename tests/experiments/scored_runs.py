"""Small run folders for tests of scoring, written as a run writes them."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ragbench.experiments.store import RunCard, Store
from ragbench.record import Record
from tests.metrics.records import call, failure, record

CARD: dict[str, Any] = {
    "identity": {
        "program": "vanilla", "split": "test", "view": None, "temperature": 0.0,
        "retriever": "bm25",
    },
    "adapter": "LenientJSON",
    "knobs": {"k": 5, "variant": "default", "answer_style": "free"},
    "model": "scripted/answerer",
    "data": {"name": "hotpotqa", "setting": "distractor", "digest": "0"},
    "compiled": "",
}  # fmt: skip


def answered(qid: str, answer: str, **fields: Any) -> Record:
    """A record of a question answered with `answer`; the gold answer is Norway."""
    ledger = {"calls": [call(model="scripted/answerer")], "path": {"calls": 1, "latency_s": 0.5}}
    return record(answer, **{"qid": qid, "ledger": ledger, **fields})


def four() -> list[Record]:
    """A right answer, the right one in more words, a wrong one, and a failed question."""
    return [
        answered("q1", "Norway"),
        answered("q2", "The country of Norway, in Europe, where she was born"),
        answered("q3", "Sweden"),
        replace(failure(), qid="q4"),
    ]


def make_run(folder: Path, records: Iterable[Record], **card: Any) -> Path:
    """A run folder of `records`; `card` replaces parts of its card."""
    with Store(folder, RunCard.model_validate({**CARD, **card})) as store:
        for each in records:
            store.write(each)
    return folder
