"""Your own questions: the `jsonl` layout, described in docs/data.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import StrictInt

from ragbench.data.assemble import Item, assemble
from ragbench.data.base import DATASETS, Dataset, DataSpec, make_example
from ragbench.data.corpora import CorpusRecord, read_corpus
from ragbench.data.files import Id, Record, Row, Said, Text, fail, validate
from ragbench.data.gold import Titles
from ragbench.data.hub import rows_of
from ragbench.data.passages import Pool
from ragbench.retrievers.base import Passage


class CustomRecord(Record):
    """One question; only `question` and one of `answer` and `answers` must be there."""

    id: Id | None = None
    question: Said
    answer: Said | None = None
    answers: tuple[Said, ...] = ()
    type: Text = ""
    hops: StrictInt | None = None
    context: tuple[CorpusRecord, ...] = ()
    support: tuple[tuple[Said, StrictInt], ...] = ()
    gold: tuple[Id, ...] = ()
    decomposition: tuple[Mapping[str, Text], ...] = ()


class _Lookup:
    """Gold names: an id or a title."""

    def __init__(self, passages: list[Passage]) -> None:
        self._pids = {passage.pid: passage for passage in passages}
        self._titles = Titles(passages)

    def pid(self, row: Row, name: str) -> str:
        found = self._pids.get(name) or self._titles.get(name)
        if found is None:
            fail(row, "gold", f"{name!r} is neither the id nor the title of a passage")
        return found.pid


@DATASETS.register("jsonl")
def load_jsonl(spec: DataSpec) -> Dataset:
    """Your own questions, with passages of their own or a corpus file."""
    corpus = None if spec.corpus_file is None else read_corpus(spec.corpus_file, keep_ids=True)
    return assemble(spec, _items(spec, corpus), corpus=corpus)


def _items(spec: DataSpec, corpus: list[Passage] | None) -> Iterator[Item]:
    shared = None if corpus is None else _Lookup(corpus)
    pool = Pool()
    for number, row in enumerate(rows_of(spec), start=1):
        record = validate(CustomRecord, row)
        passages = [entry.passage(row, keep_id=True) for entry in record.context]
        for passage in passages:
            if pool.passages[pool.add(passage)].text != passage.text:
                fail(row, "context", f"id {passage.pid!r} is the id of another passage too")
        answers = [*([record.answer] if record.answer else []), *record.answers]
        if not answers:
            fail(row, "answers", "is missing or empty")
        lookup = shared or _Lookup(passages)
        example = make_example(
            qid=record.id or f"q{number:06d}",
            question=record.question,
            answers=list(dict.fromkeys(answers)),
            qtype=record.type,
            hops=record.hops,
            support=record.support,
            gold_pids=[lookup.pid(row, name) for name in record.gold],
            decomposition=_parts(row, record),
        )
        yield Item(row, example, tuple(passages))


def _parts(row: Row, record: CustomRecord) -> list[Mapping[str, str]]:
    for part in record.decomposition:
        if not {"question", "answer"} <= part.keys():
            fail(row, "decomposition", "each part needs 'question' and 'answer'")
    return list(record.decomposition)
