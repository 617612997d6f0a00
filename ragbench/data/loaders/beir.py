"""BEIR's layout (Thakur et al. 2021, arXiv:2104.08663): a folder of queries, corpus and qrels."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import Field

from ragbench.data.base import DATASETS, Dataset, DataSpec, Split, make_example
from ragbench.data.load import Item, assemble
from ragbench.data.passages import read_corpus
from ragbench.data.readers import Answers, Id, NonBlank, Record, read_rows, validate
from ragbench.errors import DataError
from ragbench.retrievers import Corpus

_QRELS: Mapping[str, Split] = {"train": "train", "dev": "validation", "test": "test"}


class _Answered(Record):
    answer: Answers = ()
    answers: Answers = ()


class QueryRecord(Record):
    """A line of `queries.jsonl`; HotpotQA's keep their answer in `metadata`."""

    id: Id = Field(validation_alias="_id")
    text: NonBlank
    metadata: _Answered = _Answered()


class Judgement(Record):
    """A line of a qrels file; a passage with a score above 0 is relevant."""

    query: Id = Field(validation_alias="query-id")
    passage: Id = Field(validation_alias="corpus-id")
    score: float


@DATASETS.register("beir")
def load_beir(spec: DataSpec) -> Dataset:
    """BEIR's layout, for `ragbench retrieve`; `eval` needs answers, which few of its sets have."""
    folder = spec.data_file
    if folder is None or not (folder / "queries.jsonl").is_file():
        raise DataError(
            "beir needs a folder with queries.jsonl, corpus.jsonl and qrels: "
            f"pass --data-file FOLDER, not {folder}"
        )
    spec = replace(spec, corpus_file=spec.corpus_file or folder / "corpus.jsonl")
    corpus = Corpus(read_corpus(spec))
    return assemble(spec, _items(folder, corpus.positions), corpus=corpus.passages)


def _items(folder: Path, known: Mapping[str, Any]) -> Iterator[Item]:
    """The judged queries; gold passages count only where the corpus has all of them."""
    gold: dict[str, list[str]] = defaultdict(list)
    splits: dict[str, Split] = {}
    for name, split in _QRELS.items():
        path = folder / "qrels" / f"{name}.tsv"
        for row in read_rows(path) if path.exists() else ():
            judged = validate(Judgement, row)
            if judged.score > 0:
                gold[judged.query].append(judged.passage)
                splits[judged.query] = split
    if not gold:
        raise DataError(f"{folder}: holds no relevance judgements (qrels/train, dev or test.tsv)")
    for row in read_rows(folder / "queries.jsonl"):
        record = validate(QueryRecord, row)
        if record.id not in gold:
            continue
        pids = gold[record.id]
        example = make_example(
            qid=record.id,
            question=record.text,
            answers=[*record.metadata.answer, *record.metadata.answers],
            gold_pids=pids if all(pid in known for pid in pids) else (),
        )
        yield Item(row._replace(split=splits[record.id]), example)
