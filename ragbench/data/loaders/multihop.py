"""Loaders of HotpotQA, 2WikiMultiHopQA and MuSiQue.

Sources: Yang et al. 2018 (arXiv:1809.09600), Ho et al. 2020 (arXiv:2011.01060), Trivedi et al. 2022
(arXiv:2108.00573). The first two share a JSON layout: questions with their own paragraphs, as lists
of sentences, and supporting facts. In HippoRAG's layout the passages are in a corpus file. The
alias file of 2WikiMultiHopQA (one object per line: `Q_id, aliases, demonyms`) has other names of
the entities.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import AliasChoices, BeforeValidator, Field, StrictBool, StrictInt

from ragbench.data.answers import Answers, Id, NonBlank, Text, Whole
from ragbench.data.base import Dataset, HubSource, data_set, make_example
from ragbench.data.load import Item, assemble, rows_of
from ragbench.data.loaders.gold import Titles
from ragbench.data.mapping import Record, fail, validate
from ragbench.data.passages import from_sentences, from_text, read_corpus
from ragbench.data.readers import Row, read_rows
from ragbench.errors import ConfigError, DataError
from ragbench.passages import Corpus, Passage
from ragbench.settings import DataSettings
from ragbench.words import fold


def _rows(value: Any) -> Any:
    """Convert columns, in which the hub may store a list of objects, back into objects."""
    if isinstance(value, dict) and all(isinstance(column, list) for column in value.values()):
        rows = zip(*value.values(), strict=True)
        return [dict(zip(value, row, strict=True)) for row in rows]
    return value


def _pairs(*columns: str) -> BeforeValidator:
    """Return a validator that converts the hub's columns or objects to the official pairs."""

    def zipped(value: Any) -> Any:
        rows = _rows(value)
        if isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows):
            rows = [list(map(row.get, columns)) for row in rows]
        return rows

    return BeforeValidator(zipped)


Facts = tuple[tuple[NonBlank, Whole], ...]
Context = tuple[tuple[Text, tuple[Text, ...]], ...]
Triples = tuple[tuple[Text, Text, Text], ...]
Ids = tuple[tuple[Text | None, Text | None, Text | None], ...]
#: Entity id -> its other names.
Aliases = Mapping[str, Sequence[str]]


class MultiHopRecord(Record):
    """Question of HotpotQA or 2WikiMultiHopQA."""

    option = "--field"

    id: Id = Field(validation_alias=AliasChoices("_id", "id"))
    question: NonBlank
    answer: Answers = Field(min_length=1)
    answer_aliases: Answers = ()
    answer_id: Text | None = None
    type: Text = Field("", validation_alias=AliasChoices("type", "question_type"))
    level: Text = ""
    supporting_facts: Annotated[Facts, _pairs("title", "sent_id")] = ()
    context: Annotated[Context, _pairs("title", "sentences")] = ()
    evidences: Annotated[Triples, _pairs("fact", "relation", "entity")] = Field(
        (), validation_alias=AliasChoices("evidences", "evidence")
    )
    evidences_id: Ids = ()

    @property
    def passages(self) -> tuple[Passage, ...]:
        return tuple(from_sentences(title, sentences) for title, sentences in self.context)


class AliasRecord(Record):
    """Other names of one entity."""

    Q_id: Id
    aliases: tuple[NonBlank, ...] = ()
    demonyms: tuple[NonBlank, ...] = ()


_HOTPOT = "http://curtis.ml.cmu.edu/datasets/hotpot"


@data_set(
    "hotpotqa",
    "supporting_facts context",
    hub=HubSource(
        "hotpotqa/hotpot_qa",
        ("distractor", "fullwiki"),
        by_hand=f"{_HOTPOT}/hotpot_train_v1.1.json as train.json and "
        f"{_HOTPOT}/hotpot_dev_distractor_v1.json as validation.json",
    ),
)
def load_hotpotqa(spec: DataSettings) -> Dataset:
    """HotpotQA: bridge and comparison questions over two Wikipedia paragraphs."""
    return _load(spec)


@data_set(
    "2wikimultihopqa",
    "supporting_facts context evidences",
    "answer_id",
    aliased=True,
    nicknames=("2wiki",),
    hub=HubSource(
        "framolfese/2WikiMultihopQA",
        by_hand="https://www.dropbox.com/s/ms2m13252h6xubs/data_ids_april7.zip, of it train.json "
        "and dev.json",
    ),
)
def load_2wikimultihopqa(spec: DataSettings) -> Dataset:
    """2WikiMultiHopQA: questions of 2 to 4 hops with evidence triples."""
    return _load(spec, None if spec.alias_file is None else _read_aliases(spec.alias_file))


def _read_aliases(path: Path) -> Aliases:
    records = (validate(AliasRecord, row) for row in read_rows(path))
    return {record.Q_id: (*record.aliases, *record.demonyms) for record in records}


def _load(spec: DataSettings, aliases: Aliases | None = None) -> Dataset:
    rows = [(row, validate(MultiHopRecord, row)) for row in rows_of(spec)]
    if aliases is not None and not any(record.answer_id for _, record in rows):
        raise ConfigError(
            f"{spec.dataset}: no question has an answer_id, which {spec.alias_file} "
            "needs; remove --alias-file"
        )
    if spec.corpus_file is None:
        if not any(record.context for _, record in rows):
            raise DataError(
                f"{spec.dataset}: the questions have no passages; "
                "pass the corpus with --corpus-file"
            )
        return assemble(spec, (_item(row, record, aliases) for row, record in rows))
    corpus = read_corpus(spec, split_passages=(p for _, record in rows for p in record.passages))
    titles = Titles(corpus)
    matched = Counter[str]()
    items = (_item(row, record, aliases, titles, matched) for row, record in rows)
    data = assemble(spec, items, corpus=corpus)
    if not matched:
        return data
    counts = {f"gold_{how}": matched[how] for how in ("exact", "matched_with_care")}
    return replace(data, card={**data.card, **counts})


def _item(
    row: Row,
    record: MultiHopRecord,
    aliases: Aliases | None,
    titles: Titles | None = None,
    matched: Counter[str] | None = None,
) -> Item:
    """Return the record as an item. Gold passages are its own or those of a corpus file."""
    passages = record.passages
    triples = record.evidences
    gold_titles = list(dict.fromkeys(title for title, _ in record.supporting_facts))
    if gold_titles or titles is None or matched is None:
        gold = list(map((titles or Titles(passages)).get, gold_titles))
    else:
        gold = _by_evidence(record, titles, matched)
    answers = [*record.answer, *record.answer_aliases]
    extra: dict[str, Any] = {"level": record.level} if record.level else {}
    if triples:
        extra["evidences"] = list(map(list, triples))
    if aliases is not None:
        answers += _forms(aliases, record.answer[0], record.answer_id)
        if triples:
            extra["evidence_forms"] = _triple_forms(row, record, aliases)
    example = make_example(
        qid=record.id,
        question=record.question,
        answers=answers,
        qtype=record.type,
        hops=len(gold_titles or {subject for subject, _, _ in triples}) or None,
        support=record.supporting_facts,
        gold_pids=[passage.pid for passage in gold if passage is not None] if all(gold) else (),
        **extra,
    )
    return Item(row, example, passages)


def _by_evidence(
    record: MultiHopRecord, titles: Titles, matched: Counter[str]
) -> list[Passage | None]:
    """Return the passage of each evidence triple. Counts questions by kind of match."""
    triples = record.evidences
    exact = [titles.get(subject) for subject, _, _ in triples]
    taken = {passage.pid for passage in exact if passage is not None}
    passages = []
    for subject, _, obj in triples:
        passages.append(titles.match(subject, obj, record.question, taken=taken))
    subjects = {fold(subject) for subject, _, _ in triples}
    if len({passage.pid for passage in passages if passage is not None}) < len(subjects):
        passages = exact  # Two subjects must not share a passage.
    if triples:
        matching = "none"
        if all(exact):
            matching = "exact"
        elif all(passages):
            matching = "matched_with_care"
        matched[matching] += 1
    return passages


def _forms(aliases: Aliases, name: str, entity: str | None) -> list[str]:
    """Return `name` and the other names of the entity with this id, without duplicates."""
    return list(dict.fromkeys([name, *aliases.get(entity or "", ())]))


def _triple_forms(row: Row, record: MultiHopRecord, aliases: Aliases) -> list[list[list[str]]]:
    """Return for each triple the names of its subject, its relation, and those of its object."""
    triples = record.evidences
    ids = record.evidences_id or [(None,) * 3] * len(record.evidences)
    if len(ids) != len(triples):
        fail(row, "evidences_id", f"has not the length of evidences, {len(triples)}")
    forms = []
    for (subject, relation, obj), entities in zip(triples, ids, strict=True):
        of_subject = _forms(aliases, subject, entities[0])
        of_object = _forms(aliases, obj, entities[2])
        forms.append([of_subject, [relation], of_object])
    return forms


class Paragraph(Record):
    """Paragraph of a question. Titles repeat, so `idx` and the text identify it."""

    title: Text
    paragraph_text: Text = Field(validation_alias=AliasChoices("paragraph_text", "text"))
    is_supporting: StrictBool = False


class Part(Record):
    """Single-hop part of a question. "#1" refers to the answer of the first part."""

    id: Id | None = None
    question: Text
    answer: Text
    paragraph_support_idx: StrictInt | None = None


class MusiqueRecord(Record):
    """Line of the official file."""

    option = "--field"

    id: Id
    question: NonBlank
    answer: Answers = Field(min_length=1)
    answer_aliases: Answers = ()
    answerable: StrictBool = True
    paragraphs: Annotated[list[Paragraph], BeforeValidator(_rows)]
    question_decomposition: Annotated[tuple[Part, ...], BeforeValidator(_rows)] = ()


@data_set(
    "musique",
    "paragraphs answer",
    hub=HubSource(
        "dgslibisey/MuSiQue",
        by_hand="https://drive.google.com/file/d/1tGdADlNjWFaHLeZZGShh2IRcpO6Lv24h/view, of it "
        "musique_ans_v1.0_train.jsonl as train.jsonl and musique_ans_v1.0_dev.jsonl as "
        "validation.jsonl",
    ),
)
def load_musique(spec: DataSettings) -> Dataset:
    """MuSiQue: 2 to 4 hops, 20 paragraphs per question, aliases, decomposition."""
    if spec.corpus_file is None:
        return assemble(spec, _musique_items(spec, None))
    corpus = Corpus(read_corpus(spec))
    return assemble(spec, _musique_items(spec, corpus.positions), corpus=corpus.passages)


def _musique_items(spec: DataSettings, positions: Mapping[str, int] | None) -> Iterator[Item]:
    """Yield the questions. With a corpus file, gold passages count only if it has all of them.

    In the Full set two questions share an id: one is answerable, the other lacks a supporting
    paragraph. The id of the second one gets the suffix `::answerable` or `::unanswerable`.
    """
    answerable: dict[str, bool] = {}
    for row in rows_of(spec):
        record = validate(MusiqueRecord, row)
        twin: dict[str, Any] = {}
        qid = record.id
        if answerable.setdefault(qid, record.answerable) != record.answerable:
            twin["twin_of"] = qid
            qid += "::answerable" if record.answerable else "::unanswerable"
        passages = tuple(from_text(p.title, p.paragraph_text) for p in record.paragraphs)
        pairs = zip(passages, record.paragraphs, strict=True)
        gold = [passage.pid for passage, paragraph in pairs if paragraph.is_supporting]
        is_covered = positions is None or all(pid in positions for pid in gold)
        if not record.answerable or not is_covered:
            gold = []
        kind = record.id.partition("__")[0]
        example = make_example(
            qid=qid,
            question=record.question,
            answers=[*record.answer, *record.answer_aliases],
            qtype=kind if "hop" in kind else "",
            hops=len(record.question_decomposition) or None,
            gold_pids=gold,
            decomposition=[
                {"question": step.question, "answer": step.answer}
                for step in record.question_decomposition
            ],
            answerable=record.answerable,
            paragraph_pids=[passage.pid for passage in passages],
            f1="musique",  # Selects its official F1, see `metrics.answer.official_f1`.
            **twin,
        )
        yield Item(row, example, passages)
