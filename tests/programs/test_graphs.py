"""GraphRAG and HippoRAG 2: parts by hand, and the programs by scripted conversations."""

import json
from typing import Any

import dspy
import pytest

from ragbench.lms.adapters import make_adapter
from ragbench.passages import Corpus
from ragbench.programs.graph_rag import GraphRAG
from ragbench.programs.hippo_rag import HippoRAG
from ragbench.retrievers.lm_index import KnowledgeGraph, by_pattern
from ragbench.retrievers.lm_index.hippo import cleaned, facts_of
from ragbench.retrievers.lm_index.knowledge import Report, chosen_reports, communities_of
from tests.fakes import Asked, Reply, ScriptedLM
from tests.programs.shelf import COUNTY, TEXTS, ask, ended, shelf


def reads(asked: Asked) -> Reply:
    """The titles that a passage names are its entities, each related to the passage's own."""
    if asked.signature == "ExtractGraph":
        text = asked.inputs["text"]
        own = text.partition(" | ")[0]
        names = [name for name in TEXTS if name in text and name not in asked.inputs["known"]]
        named = [{"name": n, "type": "event", "description": f"{n} by {own}"} for n in names]
        links = [{"target": name, "description": f"{own} to {name}"} for name in names]
        return {
            "entities": named, "relations": [{"source": own, "strength": 2, **one} for one in links]
        }  # fmt: skip
    if asked.signature == "Summarize":
        return {"summary": " and ".join(json.loads(asked.inputs["texts"]))}
    if asked.signature == "ReportCommunity":
        entities = json.loads(asked.inputs["entities"])
        named = ", ".join(line.partition(" (")[0] for line in entities)
        return {"title": "Report", "summary": named, "rating": 5.0, "findings": ["One."]}
    return {"answer": "Orla Venn"}


def indexed(corpus: Corpus, reply: Any = reads, **settings: Any) -> tuple[KnowledgeGraph, Any]:
    lm = ScriptedLM(reply)
    with dspy.context(lm=lm, adapter=make_adapter("json", lm), num_threads=4):
        return KnowledgeGraph.of(corpus, lm="lm", **settings), lm


# -- merging and communities


def test_communities_are_the_groups_of_the_largest_part_the_same_each_time() -> None:
    sides = (range(5), range(5, 10))  # two cliques with an edge between; 10 and 11 stand apart
    edges = [(a, b) for side in sides for a in side for b in side if a < b] + [(0, 5), (10, 11)]
    found = communities_of(12, edges, [1.0] * len(edges))
    assert {community.members for community in found} == {tuple(range(5)), tuple(range(5, 10))}
    assert {(c.level, c.parent) for c in found} == {(0, -1)}
    again = [(b, a) for a, b in reversed(edges)]
    assert set(found) == set(communities_of(12, again, [1.0] * len(edges)))


REPORTS = [
    Report(0, (0, 1, 2), "top", "t", 9), Report(0, (3, 4), "other", "o", 1),
    Report(1, (0, 1), "low", "l", 2), Report(1, (2,), "rest", "r", 8),
    Report(2, (0,), "deep", "d", 5),
]  # fmt: skip


@pytest.mark.parametrize(
    ("entities", "level", "tokens", "chosen"),
    [
        # Down to level 1, no entity has "top" as its lowest. Two of the selected are in "low".
        ([0, 1, 2, 3], 1, 100, [2, 3, 1]),
        ([0, 1, 2, 3], 1, 5, [2, 3]),  # 2 and 3 tokens
        ([0, 1], 2, 100, [2, 4]),
    ],
)
def test_reports_of_the_lowest_communities_by_matches_then_rating(
    entities: list[int], level: int, tokens: int, chosen: list[int]
) -> None:
    assert chosen_reports(entities, REPORTS, level=level, tokens=tokens) == chosen


def test_what_an_index_asks_for_and_keeps() -> None:
    index, lm = indexed(shelf().corpus, description_words=5)
    assert {entity.name for entity in index.entities} == set(TEXTS)
    counts = {name: lm.signatures.count(name) for name in set(lm.signatures)}
    assert counts["ExtractGraph"] == 5
    long = [e for e in index.entities if " and " in e.description]
    assert counts["Summarize"] == len(long) > 0  # the others' descriptions fit together
    assert counts["ReportCommunity"] == len(index.reports) > 0
    assert index.facts()["index_calls"] == len(lm.asked)
    salt = next(entity for entity in index.entities if entity.name == "Salt Road")
    assert salt.passages == (0, 1)
    assert index.nearest("Salt Road", 1) == [index.entities.index(salt)]
    _, lm = indexed(shelf().corpus, entity_types="film, book,")
    assert "Summarize" not in lm.signatures
    kinds = [one.inputs["entity_types"] for one in lm.asked if one.signature == "ExtractGraph"]
    assert kinds == ['["film", "book"]'] * 5


def test_a_gleaning_is_told_what_was_found_before() -> None:
    _, lm = indexed(shelf().corpus, gleanings=1)
    first, again = (
        asked.inputs["known"]
        for asked in lm.asked
        if asked.signature == "ExtractGraph" and asked.inputs["text"].startswith("Orla Venn |")
    )
    found = ["Orla Venn", "Salt Road", "Harwick", "Orla Venn - Salt Road", "Orla Venn - Harwick"]
    assert not any(f'"{known}"' in first for known in found)
    assert all(f'"{known}"' in again for known in found)


def test_one_search_one_answer_from_reports_tables_and_texts() -> None:
    prediction, lm, _ = ask(GraphRAG(shelf(padding=3)), reads)
    assert (prediction.answer, lm.signatures[-1]) == ("Orla Venn", "AnswerFromContext")
    assert [step.action for step in prediction.steps] == ["index", "search", "answer"]
    context = json.loads(lm.asked[-1].inputs["context"].partition("\n\n[[")[0])
    kinds = [line.partition("] ")[2].partition(" | ")[0] for line in context]
    assert kinds[0] == "Report"
    assert kinds.index("Entities") < kinds.index("Relations") < kinds.index("Salt Road")
    pids = [passage.pid for passage in prediction.passages]
    assert pids[-2:] == ["entities", "relations"]  # after the texts, which recall counts
    assert set(prediction.steps[-1].pids) == set(pids)
    # Reports and tables are retrieved text too.
    assert len(prediction.steps[1].notes["retrieved"]) == len(pids)
    for ablation, gone in (("reports", "report-0"), ("tables", "entities"), ("texts", "Salt Road")):
        less, _, _ = ask(GraphRAG(shelf(), ablation=ablation), reads)
        assert gone in pids
        assert gone not in [passage.pid for passage in less.passages] != []


# -- hippo_rag

FACTS = {
    "Orla Venn": [("Orla Venn", "wrote", "Salt Road"), ("Orla Venn", "was born in", "Harwick")],
    "Salt Road": [("Salt Road", "is a novel by", "Orla Venn"), ("Salt Road", "is by", "Tam Quill")],
    "Tam Quill": [("Tam Quill", "was born in", "Eastmere")],
    "Harwick": [("Harwick", "is a town in", "Dunmoor")],
    "Eastmere": [("Eastmere", "is a town in", "Tollen")],
}


def triples(*rows: tuple[str, str, str]) -> dict[str, Any]:
    return {"triples": [{"subject": s, "relation": r, "object": o} for s, r, o in rows]}


def facts_read(asked: Asked) -> Reply:
    """Reads the facts above; keeps who wrote Salt Road."""
    text = asked.inputs.get("text", "").partition("\n\n")[0]
    if asked.signature == "ExtractEntities":
        return {"entities": by_pattern(text)}
    if asked.signature == "ExtractTriples":
        return triples(*FACTS.get(text.split(" | ")[0], []))
    if asked.signature == "SelectFacts":
        lines = json.loads(asked.inputs["facts"].partition("\n\n")[0])
        return {"keep": [n for n, line in enumerate(lines, start=1) if "orla venn wrote" in line]}
    return {"answer": "Dunmoor"}


def test_triples_are_cleaned() -> None:
    assert cleaned(" Émile's (first) Book_2! ") == "émile s  first  book 2"
    rows = triples(("A", "knows", "B"), ("a", "Knows", "b"), ("?", "is", "B"))["triples"]
    # The same only once they are cleaned: two, as the published code counts. Said twice: one.
    assert facts_of([*rows, {"subject": "A"}, rows[0]]) == [("a", "knows", "b")] * 2


def test_facts_are_chosen_and_walks_find_the_second_hop() -> None:
    prediction, lm, _ = ask(HippoRAG(shelf(padding=5), k=3), facts_read, COUNTY)
    assert lm.signatures[20:] == ["SelectFacts", "AnswerFromContext"]
    assert [step.action for step in prediction.steps] == ["index", "link", "walk", "answer"]
    _, link, walk, _ = prediction.steps
    assert len(link.notes["facts"]) == 5
    assert "salt road" in link.observation
    assert set(walk.notes["seeds"]) == {"salt road", "orla venn"}
    # Salt Road and its author share the seeds; her birthplace is one fact further.
    assert {p.pid for p in prediction.passages} >= {"Salt Road", "Orla Venn"}
    assert ended(prediction) == ("Dunmoor", "answered")


@pytest.mark.parametrize(
    ("replies", "filters", "seeds"),
    [
        ({"SelectFacts": {"keep": [9]}}, True, False),
        ({"SelectFacts": "I would rather not."}, True, False),
        ({"ExtractTriples": {"triples": []}}, False, False),  # no facts ask no filter
        ({"SelectFacts": {"keep": [2, 2, 1]}}, True, True),  # a fact named twice is kept once
    ],
)
def test_without_a_kept_fact_vectors_rank(replies: Any, filters: bool, seeds: bool) -> None:
    prediction, lm, _ = ask(
        HippoRAG(shelf()), lambda asked: replies.get(asked.signature) or facts_read(asked), COUNTY
    )
    assert ("SelectFacts" in lm.signatures) is filters
    assert (prediction.counts["no_seed"], len(prediction.passages)) == (not seeds, 5)
    assert prediction.answer == "Dunmoor"
    assert prediction.steps[1].observation.count(";") == seeds


@pytest.mark.parametrize(
    ("knobs", "signatures"),
    [
        ({"use_filter": False}, ["AnswerFromContext"]),
        ({"linking": "entities"}, ["ExtractEntities", "AnswerFromContext"]),
        ({"passage_node_weight": 0.0}, ["SelectFacts", "AnswerFromContext"]),
    ],
)
def test_ablations(knobs: dict[str, Any], signatures: list[str]) -> None:
    prediction, lm, _ = ask(HippoRAG(shelf(), **knobs), facts_read, COUNTY)
    assert lm.signatures[10:] == signatures
    assert "walk" in [step.action for step in prediction.steps]
