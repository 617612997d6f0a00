"""HotpotQA (Yang et al. 2018, arXiv:1809.09600) and 2WikiMultiHopQA (Ho et al. 2020, 2011.01060).

Both share one JSON layout: questions with their own paragraphs as lists of sentences and supporting
facts. HippoRAG's layout keeps the passages in a corpus file instead. 2WikiMultiHopQA's alias file
(`id_aliases.json`: one object a line, `Q_id, aliases, demonyms`) has other names of the entities.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import AliasChoices, BeforeValidator, Field, StrictInt

from ragbench.data.assemble import Item, assemble
from ragbench.data.base import DATASETS, Dataset, DataSpec, make_example
from ragbench.data.corpora import read_corpus
from ragbench.data.load import rows_of
from ragbench.data.loaders.gold import StoredTitles, Titles, index_titles
from ragbench.data.passages import from_sentences
from ragbench.data.readers import (
    Id,
    NonBlank,
    Record,
    Row,
    Text,
    fail,
    read_rows,
    same_length,
    validate,
)
from ragbench.errors import ConfigError, DataError
from ragbench.retrievers import Passage


def _pairs(*names: str) -> BeforeValidator:
    """Hub rows hold columns where the official files hold pairs."""

    def zipped(value: Any) -> Any:
        if isinstance(value, dict):
            columns = [value[name] for name in names if isinstance(value.get(name), list)]
            if len(columns) == len(names):
                return list(zip(*same_length(columns, names), strict=True))
        if isinstance(value, list) and value and all(isinstance(v, dict) for v in value):
            return [[v.get(name) for name in names] for v in value]
        return value

    return BeforeValidator(zipped)


Facts = tuple[tuple[NonBlank, StrictInt], ...]
Context = tuple[tuple[Text, tuple[Text, ...]], ...]
Triples = tuple[tuple[Text, Text, Text], ...]
AnyTitles = Titles | StoredTitles
Ids = tuple[tuple[Text | None, Text | None, Text | None], ...]


class MultiHopRecord(Record):
    """One question of HotpotQA or 2WikiMultiHopQA."""

    renamed = True

    id: Id = Field(validation_alias=AliasChoices("_id", "id"))
    question: NonBlank
    answer: NonBlank
    answer_aliases: tuple[NonBlank, ...] = ()
    answer_id: Text | None = None
    type: Text = Field("", validation_alias=AliasChoices("type", "question_type"))
    level: Text = ""
    supporting_facts: Annotated[Facts, _pairs("title", "sent_id")] = ()
    context: Annotated[Context, _pairs("title", "sentences")] = ()
    evidences: Annotated[Triples, _pairs("fact", "relation", "entity")] = Field(
        (), validation_alias=AliasChoices("evidences", "evidence")
    )
    evidences_id: Ids = ()
    #: Not of the file: see `Aliases.triple_forms`.
    evidence_forms: Sequence[Sequence[Sequence[str]]] = ()


@dataclass
class _Matched:
    """Counts of questions by how their gold passages were found from evidence triples."""

    exact: int = 0
    with_care: int = 0
    asked: int = 0


@DATASETS.register("hotpotqa")
def load_hotpotqa(spec: DataSpec) -> Dataset:
    """HotpotQA: bridge and comparison questions over two Wikipedia paragraphs."""
    return _load(spec)


@DATASETS.register("2wikimultihopqa")
def load_2wikimultihopqa(spec: DataSpec) -> Dataset:
    """2WikiMultiHopQA: questions of 2 to 4 hops with evidence triples."""
    return _load(spec, None if spec.alias_file is None else Aliases.read(spec.alias_file))


def _load(spec: DataSpec, aliases: Aliases | None = None) -> Dataset:
    rows = [(row, validate(MultiHopRecord, row)) for row in rows_of(spec)]
    if aliases is not None:
        rows = [(row, _named(row, record, aliases)) for row, record in rows]
        if not any(record.answer_id for _, record in rows):
            raise ConfigError(
                f"{spec.dataset}: no question has an answer_id, by which {spec.alias_file} names "
                "aliases; leave --alias-file out"
            )
    if spec.corpus_file is None:
        if not any(record.context for _, record in rows):
            raise DataError(
                f"{spec.dataset}: the questions have no passages of their own; "
                "pass the corpus with --corpus-file"
            )
        return assemble(spec, (_item(row, record, None, None) for row, record in rows))
    known = (passage for _, record in rows for passage in _context(record))
    corpus = read_corpus(spec, known=known)
    matched = _Matched()
    items = _items_over(rows, index_titles(corpus), matched)
    data = assemble(spec, items, corpus=corpus)
    if not matched.asked:
        return data
    card = {**data.card, "gold_exact": matched.exact, "gold_matched_with_care": matched.with_care}
    return replace(data, card=card)


def _named(row: Row, record: MultiHopRecord, aliases: Aliases) -> MultiHopRecord:
    """The record with the aliases of its answer and of the entities in its triples."""
    if record.evidences_id and len(record.evidences_id) != len(record.evidences):
        fail(row, "evidences_id", f"has not the length of evidences, {len(record.evidences)}")
    forms = aliases.triple_forms(record.evidences, record.evidences_id)
    answers = (*record.answer_aliases, *aliases.forms(record.answer, record.answer_id))
    return record.model_copy(update={"answer_aliases": answers, "evidence_forms": forms})


def _items_over(
    rows: Sequence[tuple[Row, MultiHopRecord]], titles: AnyTitles, matched: _Matched
) -> Iterator[Item]:
    for row, record in rows:
        yield _item(row, record, titles, matched)


def _item(
    row: Row, record: MultiHopRecord, titles: AnyTitles | None, matched: _Matched | None
) -> Item:
    """The record as an item; gold passages are looked up in its own, or in those of a file."""
    passages = _context(record)
    names = list(dict.fromkeys(title for title, _ in record.supporting_facts))
    subjects = list(dict.fromkeys(subject for subject, _, _ in record.evidences))
    supporting: list[Passage | None]
    if names or titles is None or matched is None:
        index = titles or Titles(passages)
        supporting = [index.get(title) for title in names]
    else:
        supporting = _by_evidence(record, titles, matched)
    gold = [passage.pid for passage in supporting if passage is not None]
    extra: dict[str, Any] = {"level": record.level} if record.level else {}
    if record.evidences:
        extra["evidences"] = [list(triple) for triple in record.evidences]
    if record.evidence_forms:
        extra["evidence_forms"] = record.evidence_forms
    example = make_example(
        qid=record.id,
        question=record.question,
        answers=list(dict.fromkeys([record.answer, *record.answer_aliases])),
        qtype=record.type,
        hops=len(names or subjects) or None,
        support=record.supporting_facts,
        gold_pids=gold if len(gold) == len(supporting) else (),
        **extra,
    )
    return Item(row, example, passages)


def _by_evidence(
    record: MultiHopRecord, titles: AnyTitles, matched: _Matched
) -> list[Passage | None]:
    """The passage of each evidence triple; counts the questions where all are found."""
    triples = record.evidences
    exact = [titles.get(subject) for subject, _, _ in triples]
    taken = {passage.pid for passage in exact if passage is not None}
    passages = [
        titles.match(subject, obj, record.question, taken=taken) for subject, _, obj in triples
    ]
    subjects = {subject.casefold() for subject, _, _ in triples}
    if len({passage.pid for passage in passages if passage is not None}) < len(subjects):
        passages = exact  # one passage for two subjects is a wrong one for one of them
    if triples:
        matched.asked += 1
        matched.exact += all(exact)
        matched.with_care += all(passages) and not all(exact)
    return passages


def _context(record: MultiHopRecord) -> tuple[Passage, ...]:
    return tuple(from_sentences(title, sentences) for title, sentences in record.context)


class AliasRecord(Record):
    """The other names of one entity."""

    Q_id: Id
    aliases: tuple[NonBlank, ...] = ()
    demonyms: tuple[NonBlank, ...] = ()


class Aliases:
    """Other names by the id of an entity."""

    def __init__(self, names: dict[str, tuple[str, ...]]) -> None:
        self._names = names

    @classmethod
    def read(cls, path: Path) -> Aliases:
        """The aliases in a file.

        Raises:
            DataError: the file cannot be read, or a line is not of the format.
        """
        records = (validate(AliasRecord, row) for row in read_rows(path))
        return cls({record.Q_id: (*record.aliases, *record.demonyms) for record in records})

    def forms(self, name: str, entity: str | None) -> list[str]:
        """`name`, then the other names of the entity with this id, each once."""
        return list(dict.fromkeys([name, *self._names.get(entity or "", ())]))

    def triple_forms(
        self, triples: Sequence[tuple[str, str, str]], ids: Sequence[Sequence[str | None]]
    ) -> list[list[list[str]]]:
        """For each triple the forms of its subject, its relation alone, and those of its object.

        `ids` has the ids of each triple's parts; where it is empty, there are no other forms.
        """
        known = ids or [(None, None, None)] * len(triples)
        return [
            [self.forms(subject, entities[0]), [relation], self.forms(obj, entities[2])]
            for (subject, relation, obj), entities in zip(triples, known, strict=True)
        ]
