"""Loaders of the user's questions (layout `jsonl`), BEIR folders and chunked data sets.

docs/data.md describes the layouts. BEIR (Thakur et al. 2021, arXiv:2104.08663) is a folder of
queries, corpus and qrels. Chunked sets have chunks or whole documents instead of paragraphs.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import AliasChoices, BeforeValidator, Field

from ragbench.data.answers import (
    Answer,
    Answers,
    Id,
    Ids,
    NonBlank,
    OptionalWhole,
    Text,
    Whole,
    as_list,
    decoded,
)
from ragbench.data.base import Dataset, HubSource, Split, data_set, make_example, title_of
from ragbench.data.hub import hub_corpus
from ragbench.data.load import Item, assemble, detect_layout, question_files, rows_of
from ragbench.data.loaders.gold import Titles
from ragbench.data.mapping import Record, fail, map_fields, missing, validate
from ragbench.data.passages import (
    CorpusRecord,
    Pool,
    documents_card,
    from_text,
    need_corpus,
    read_chunks,
    read_corpus,
)
from ragbench.data.readers import Row, kind_of, read_rows
from ragbench.data.text_files import read_text
from ragbench.errors import ConfigError, DataError
from ragbench.passages import Corpus, Passage
from ragbench.settings import DataSettings

#: Maximum number of passages to search by text: those of one question.
_OWN_PASSAGES = 1000
_QRELS: Mapping[str, Split] = {"train": "train", "dev": "validation", "test": "test"}


class CustomRecord(Record):
    """One question. Only `question` and one of `answer` and `answers` are required.

    `golden_answers` and `metadata` are fields of FlashRAG. A passage of `context` may be a text. If
    a name of `gold_if_known` matches no passage, the gold passages are unknown, which is not an
    error.
    """

    option = "--field"

    id: Id | None = None
    question: NonBlank
    answer: Answers = ()
    answers: Answers = Field((), validation_alias=AliasChoices("answers", "golden_answers"))
    answer_aliases: Answers = ()
    type: Text = ""
    hops: OptionalWhole = None
    context: Annotated[tuple[Any, ...], BeforeValidator(as_list)] = ()
    support: tuple[tuple[NonBlank, Whole], ...] = ()
    gold: Ids = ()
    gold_if_known: Ids = ()
    decomposition: tuple[Mapping[str, Text], ...] = ()
    document: Ids = ()
    metadata: Mapping[str, Any] = {}

    @property
    def kind(self) -> str:
        """Type of the question. Blank if unknown."""
        kind = self.type or self.metadata.get("type")
        if isinstance(kind, str):
            return kind.encode("utf-8", "replace").decode()
        return ""


#: Field names that a record or an example uses itself.
_READ = frozenset(
    {*CustomRecord.model_fields, "golden_answers", "qid", "qtype", "gold_pids", "cluster"}
)


@data_set("documents", setting="pooled")
def load_documents(spec: DataSettings) -> Dataset:
    """Passages without questions, for `ragbench ask`: a corpus file or documents."""
    passages = read_corpus(spec)
    return Dataset("documents", {}, Corpus(passages), "pooled", documents_card(passages))


@data_set("jsonl", "answer", "answers", "golden_answers", keeps_ids=True, titled_by_file=True)
def load_jsonl(spec: DataSettings) -> Dataset:
    """Your questions, with passages or a corpus file. The data set has the file's name."""
    corpus = None
    if spec.corpus_file is not None:
        corpus = read_corpus(spec)
    items = list(_own_items(spec, corpus))
    searched = corpus is not None or any(item.passages for item in items)
    layouts = {*map(detect_layout, question_files(spec).values())}
    if not searched and spec.setting is None and layouts <= {"jsonl", None}:
        spec = spec.but(setting="pooled")  # An empty corpus, for programs that do not search.
    dataset = assemble(spec, items, corpus=corpus)
    return replace(dataset, name=title_of(spec), layout=spec.dataset)


def _own_items(spec: DataSettings, corpus: Sequence[Passage] | None) -> Iterator[Item]:
    lookup = _gold_in(corpus or ())
    field_paths = spec.corpus_field
    pool = Pool()
    for number, row in enumerate(rows_of(spec), start=1):
        record = validate(CustomRecord, row)
        passages, supporting = _context(row, record, field_paths)
        for passage in filter(pool.is_other, passages):
            fail(row, "context", f"id {passage.pid!r} is the id of another passage too")
        if not record.answer and not record.answers:
            if not {"answer", "answers", "golden_answers"} & row.data.keys():
                fail(row, "answer", missing(CustomRecord, row, "answer"))
            why = missing(CustomRecord, row, "answers")
            fail(row, "answers", why.replace("is missing", "is missing or empty", 1))
        if not all({"question", "answer"} <= step.keys() for step in record.decomposition):
            fail(row, "decomposition", "each part needs 'question' and 'answer'")
        if corpus is None:
            lookup = _gold_in(passages)
        further: dict[str, Any] = _further_fields(row)
        if record.document:
            further["document"] = list(record.document)
        example = make_example(
            qid=record.id or f"q{number:06d}",
            question=record.question,
            answers=[*record.answer, *record.answers, *record.answer_aliases],
            qtype=record.kind,
            hops=record.hops,
            support=record.support,
            gold_pids=_gold(row, record, lookup) or supporting,
            decomposition=record.decomposition,
            **further,
        )
        yield Item(row, example, passages)


def _further_fields(row: Row) -> dict[str, str | int | float | bool]:
    """Return the other plain fields of a record, which a module may take as inputs."""
    further = {}
    for name, value in row.data.items():
        if name not in _READ and name.isidentifier() and isinstance(value, str | int | float):
            further[name] = value
    return further


def _context(
    row: Row, record: CustomRecord, field_paths: Mapping[str, str]
) -> tuple[tuple[Passage, ...], list[str]]:
    """Return the passages of a question, and the ids of those marked as supporting."""
    passages: list[Passage] = []
    supporting: list[str] = []
    for number, entry in enumerate(record.context):
        data = {"text": entry} if isinstance(entry, str) else entry
        if not isinstance(data, dict):
            fail(row, f"context.{number}", f"must be a text or an object, not {kind_of(data)}")
        place = map_fields(
            Row(f"{row.where}: context.{number}", data), field_paths, "--corpus-field"
        )
        record_of_passage = validate(CorpusRecord, place)
        passage = record_of_passage.passage(place, keep_id=True)
        passages.append(passage)
        if record_of_passage.is_supporting:
            supporting.append(passage.pid)
    return tuple(passages), supporting


Lookup = Callable[[str], str | None]


def _gold(row: Row, record: CustomRecord, lookup: Lookup | None) -> list[str]:
    """Return the ids of the gold passages. Empty if there are no passages."""
    if lookup is None:
        return []
    pids: list[str] = []
    for name in record.gold:
        pid = lookup(name)
        if pid is None:
            fail(row, "gold", f"{name!r} is neither the id nor the title of a passage")
        pids.append(pid)
    present = [pid for pid in map(lookup, record.gold_if_known) if pid is not None]
    if len(present) == len(record.gold_if_known):
        pids += present
    return pids


def _gold_in(passages: Sequence[Passage]) -> Lookup | None:
    """Return a function from an id, a title or a text to a passage id. None without passages."""
    if not passages:
        return None
    positions = Corpus(passages).positions
    titles = Titles(passages)
    is_small = len(passages) <= _OWN_PASSAGES

    def pid(name: str) -> str | None:
        if name in positions:
            return name
        titled = titles.get(decoded(name))
        if titled is None and is_small:
            text = " ".join(decoded(name).split())
            titled = next((p for p in passages if " ".join(p.text.split()) == text), None)
        if titled is None:
            return None
        return titled.pid

    return pid


class _Answered(Record):
    answer: Answers = ()
    answers: Answers = ()


class QueryRecord(Record):
    """Line of `queries.jsonl`. HotpotQA's lines have their answer in `metadata`."""

    id: Id = Field(validation_alias="_id")
    text: NonBlank
    metadata: _Answered = _Answered()


class Judgement(Record):
    """Line of a qrels file. A passage with a score above 0 is relevant."""

    query: Id = Field(validation_alias="query-id")
    passage: Id = Field(validation_alias="corpus-id")
    score: float


@data_set("beir", setting="pooled", keeps_ids=True)
def load_beir(spec: DataSettings) -> Dataset:
    """BEIR folder, for `ragbench retrieve`. Few of its sets have answers for `eval`."""
    folder = spec.data_file
    if folder is None or not (folder / "queries.jsonl").is_file():
        raise DataError(
            "beir needs a folder with queries.jsonl, corpus.jsonl and qrels: "
            f"pass --data-file FOLDER, not {folder}"
        )
    spec = spec.but(corpus_file=spec.corpus_file or folder / "corpus.jsonl")
    corpus = Corpus(read_corpus(spec))
    return assemble(spec, _judged_items(folder, corpus.positions), corpus=corpus.passages)


def read_judgements(path: Path) -> Iterator[Judgement]:
    """Yield the judgments of a qrels file: BEIR's with a header, or TREC's without one.

    TREC's columns are query, iteration, passage and score.

    Raises:
        DataError: The file cannot be read, or a line is malformed.
    """
    lines = read_text(path).splitlines()
    if lines and "query-id" in lines[0]:
        for row in read_rows(path):
            yield validate(Judgement, row)
        return
    for number, line in enumerate(filter(str.strip, lines), start=1):
        columns = line.split()
        if len(columns) not in (3, 4):
            raise DataError(
                f"{path}: line {number}: has {len(columns)} columns; a qrels file has a header "
                "with query-id, corpus-id and score, or query, iteration, passage and score"
            )
        data = {"query-id": columns[0], "corpus-id": columns[-2], "score": columns[-1]}
        yield validate(Judgement, Row(f"{path}: line {number}", data))


def _judged_items(folder: Path, positions: Mapping[str, Any]) -> Iterator[Item]:
    """Yield the judged queries. Gold passages count only if the corpus has all of them."""
    gold: dict[str, list[str]] = defaultdict(list)
    splits: dict[str, Split] = {}
    for name, split in _QRELS.items():
        path = folder / "qrels" / f"{name}.tsv"
        for judged in read_judgements(path) if path.exists() else ():
            if judged.score > 0:
                gold[judged.query].append(judged.passage)
                splits[judged.query] = split
    if not gold:
        raise DataError(f"{folder}: has no relevance judgments (qrels/train, dev or test.tsv)")
    for row in read_rows(folder / "queries.jsonl"):
        record = validate(QueryRecord, row)
        if record.id not in gold:
            continue
        pids = gold[record.id]
        example = make_example(
            qid=record.id,
            question=record.text,
            answers=[*record.metadata.answer, *record.metadata.answers],
            gold_pids=pids if all(pid in positions for pid in pids) else (),
        )
        yield Item(row._replace(split=splits[record.id]), example)


class QuestionRecord(Record):
    """Question without passages."""

    option = "--field"

    id: Id = Field(validation_alias=AliasChoices("id", "qid", "_id"))
    question: NonBlank
    answer: Answers = Field(min_length=1)
    answer_aliases: tuple[Answer, ...] = ()
    question_type: Text = Field("", validation_alias=AliasChoices("question_type", "type"))
    source: Text = ""


class DocumentRecord(Record):
    """Whole document of GraphRAG-Bench."""

    corpus_name: NonBlank
    context: NonBlank


_GRAPHRAG = "https://huggingface.co/datasets/GraphRAG-Bench/GraphRAG-Bench/resolve/main/Datasets"


@data_set(
    "graphrag_bench",
    "question_type source",
    nicknames=("graphrag-bench",),
    view="chunk",
    hub=HubSource(
        "GraphRAG-Bench/GraphRAG-Bench",
        ("medical", "novel"),
        corpus="Datasets/Corpus/{config}.json",
        by_hand=f"{_GRAPHRAG}/Questions/medical_questions.json as train.json and "
        f"{_GRAPHRAG}/Corpus/medical.json as corpus.json",
    ),
)
def load_graphrag_bench(spec: DataSettings) -> Dataset:
    """GraphRAG-Bench: medical and novel questions of four types with long answers.

    Source: Xiang et al. 2025, arXiv:2506.05690. ragbench cuts its documents into chunks. No
    question names its gold passages.
    """
    spec = _as_chunks(spec)
    records = (validate(DocumentRecord, row) for row in read_rows(need_corpus(spec)))
    documents = []
    for record in records:
        name = record.corpus_name
        documents.append(from_text(name, record.context, document=name))
    return assemble(spec, _chunked_items(spec), corpus=documents)


@data_set(
    "arag",
    view="chunk",
    hub=HubSource(
        "Zly0523/linear-rag",
        ("musique", "hotpotqa", "2wikimultihop", "medical"),
        questions="{config}/questions.json",
        corpus="{config}/chunks.json",
    ),
)
def load_arag(spec: DataSettings) -> Dataset:
    """A-RAG and LinearRAG layout: questions.json and the fixed-length chunks.json.

    Chunks have neither titles nor sentence ids, so no support metric can be computed on them.
    """
    spec = _as_chunks(spec)
    chunks = read_chunks(need_corpus(spec))
    # assemble() takes paragraphs; these are chunks already, so the view is set afterwards.
    data = assemble(spec.but(view=None, setting="pooled"), _chunked_items(spec), corpus=chunks)
    return replace(data, corpus=Corpus(data.corpus.passages, view="chunk"))


def _chunked_items(spec: DataSettings) -> Iterator[Item]:
    """Yield the questions. An id that several sources use is prefixed with the source."""
    rows = [(row, validate(QuestionRecord, row)) for row in rows_of(spec)]
    uses = Counter(record.id for _, record in rows)
    for row, record in rows:
        is_shared = uses[record.id] > 1 and record.source
        example = make_example(
            qid=f"{record.source}::{record.id}" if is_shared else record.id,
            question=record.question,
            answers=[*record.answer, *record.answer_aliases],
            qtype=record.question_type,
            source=record.source,
            document=[record.source] if record.source else [],
        )
        yield Item(row, example)


def _as_chunks(spec: DataSettings) -> DataSettings:
    if spec.view == "paragraph":
        raise ConfigError(f"{spec.dataset} has no paragraphs; use --view chunk")
    if spec.setting == "distractor":
        raise ConfigError(
            f"{spec.dataset} has no passages per question; remove --setting or use pooled"
        )
    corpus = spec.corpus_file or (hub_corpus(spec) if spec.hub else None)
    return spec.but(view="chunk", corpus_file=corpus)
