"""Loaders of HotpotQA, 2WikiMultiHopQA and MuSiQue.

Sources: Yang et al. 2018 (arXiv:1809.09600), Ho et al. 2020 (arXiv:2011.01060), Trivedi et al. 2022
(arXiv:2108.00573). The first two share a JSON layout: questions with their own paragraphs, as lists
of sentences, and supporting facts. In HippoRAG's layout the passages are in a corpus file. The
alias file of 2WikiMultiHopQA (one object per line: `Q_id, aliases, demonyms`) has other names of
the entities.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import AliasChoices, BeforeValidator, Field, StrictBool

from ragbench.data.answers import Id, NonBlank, Text
from ragbench.data.base import Dataset, HubSource, data_set
from ragbench.data.load import Item, assemble
from ragbench.data.mapping import Record, fail, validate
from ragbench.data.questions import QuestionRecord, make_item, read_questions, tuples_of
from ragbench.data.readers import Row, read_rows
from ragbench.data.titles import Titles, corpus_and_titles
from ragbench.data.values import unpacked
from ragbench.errors import ConfigError, DataError
from ragbench.passages import Passage
from ragbench.settings import DataSettings
from ragbench.text_normalization import fold

Triples = tuple[tuple[Text, Text, Text], ...]
Ids = tuple[tuple[Text | None, Text | None, Text | None], ...]
#: Entity id -> its other names.
Aliases = Mapping[str, Sequence[str]]


class MultiHopRecord(QuestionRecord):
    """Question of HotpotQA or 2WikiMultiHopQA."""

    level: Text = ""
    answer_id: Text | None = None
    evidences: Annotated[Triples, tuples_of("fact", "relation", "entity")] = Field(
        (), validation_alias=AliasChoices("evidences", "evidence")
    )
    evidences_id: Annotated[Ids, BeforeValidator(unpacked)] = ()


class AliasRecord(Record):
    """Other names of one entity."""

    Q_id: Id
    aliases: tuple[NonBlank, ...] = ()
    demonyms: tuple[NonBlank, ...] = ()


@data_set(
    "hotpotqa",
    "supporting_facts context",
    hub=HubSource("hotpotqa/hotpot_qa", ("distractor", "fullwiki")),
)
def load_hotpotqa(spec: DataSettings) -> Dataset:
    """HotpotQA: bridge and comparison questions over two Wikipedia paragraphs."""
    return _load(spec)


@data_set(
    "2wikimultihopqa",
    "supporting_facts context evidences",
    "answer_id",
    aliased=True,
    hub=HubSource("framolfese/2WikiMultihopQA"),
)
def load_2wikimultihopqa(spec: DataSettings) -> Dataset:
    """2WikiMultiHopQA: questions of 2 to 4 hops with evidence triples."""
    aliases = None
    if spec.alias_file is not None:
        records = (validate(AliasRecord, row) for row in read_rows(spec.alias_file))
        aliases = {record.Q_id: (*record.aliases, *record.demonyms) for record in records}
    return _load(spec, aliases)


def _load(spec: DataSettings, aliases: Aliases | None = None) -> Dataset:
    rows = list(read_questions(spec, MultiHopRecord))
    if aliases is not None and not any(record.answer_id for _, record in rows):
        raise ConfigError(
            f"{spec.dataset}: no question has an answer_id, which {spec.alias_file} "
            "needs; remove --alias-file"
        )
    matched = Counter[str]()
    split_passages = (passage for _, record in rows for passage in record.passages)
    corpus, titles = corpus_and_titles(spec, split_passages=split_passages)
    if corpus is None and not any(record.context for _, record in rows):
        raise DataError(
            f"{spec.dataset}: the questions have no passages; pass the corpus with --corpus-file"
        )
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
    titles: Titles | None,
    matched: Counter[str],
) -> Item:
    triples = record.evidences
    subjects = {subject for subject, _, _ in triples}
    fields: dict[str, Any] = {"hops": len(record.gold_titles or subjects) or None}
    if record.level:
        fields["level"] = record.level
    if triples:
        fields["evidences"] = list(map(list, triples))
    if titles is not None and not record.support:
        gold = _by_evidence(record, titles, matched)
        pids = [passage.pid for passage in gold if passage is not None]
        fields["gold_pids"] = pids if all(gold) else []
    if aliases is not None:
        forms = _forms(aliases, record.answer[0], record.answer_id)
        fields["answers"] = [*record.answer, *record.answer_aliases, *forms]
        if triples:
            fields["evidence_forms"] = _triple_forms(row, record, aliases)
    return make_item(row, record, titles, **fields)


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


class MusiqueRecord(QuestionRecord):
    """Line of the official file."""

    answerable: StrictBool = True


@data_set(
    "musique",
    "paragraphs answer answerable",
    "paragraphs answer question_decomposition",
    hub=HubSource("dgslibisey/MuSiQue"),
)
def load_musique(spec: DataSettings) -> Dataset:
    """MuSiQue: 2 to 4 hops, 20 paragraphs per question, aliases, decomposition.

    In the Full set two questions share an id: one is answerable, the other lacks a supporting
    paragraph. The id of the second one gets the suffix `::answerable` or `::unanswerable`.
    """
    corpus, titles = corpus_and_titles(spec)
    answerable: dict[str, bool] = {}
    items = []
    for row, record in read_questions(spec, MusiqueRecord):
        fields: dict[str, Any] = {}
        if answerable.setdefault(record.id, record.answerable) != record.answerable:
            suffix = "answerable" if record.answerable else "unanswerable"
            fields = {"twin_of": record.id, "qid": f"{record.id}::{suffix}"}
        if not record.answerable:
            fields["gold_pids"] = []
        kind = record.id.partition("__")[0]
        item = make_item(
            row,
            record,
            titles,
            qtype=kind if "hop" in kind else "",
            hops=len(record.decomposition) or None,
            answerable=record.answerable,
            paragraph_pids=[passage.pid for passage in record.passages],
            f1="musique",  # Selects its official F1, see `metrics.answer.official_f1`.
            **fields,
        )
        items.append(item)
    return assemble(spec, items, corpus=corpus)
