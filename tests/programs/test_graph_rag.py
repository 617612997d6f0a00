"""GraphRAG: its graph and its context by hand, and the program by scripted conversations."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import dspy
import pytest

from ragbench.errors import MissingExtraError
from ragbench.experiments.estimates.rehearsal import rehearse
from ragbench.ledger import open_ledger
from ragbench.lms.adapters.lenient import make_adapter
from ragbench.programs.graph_rag import GraphRAG
from ragbench.retrievers.base import Corpus
from ragbench.retrievers.graph.communities import Leiden, communities_of, degrees
from ragbench.retrievers.graph.knowledge import KnowledgeGraph
from ragbench.retrievers.graph.local_search import (
    Link,
    Node,
    Report,
    Shares,
    chosen_reports,
    chosen_units,
    relations,
    tables,
)
from ragbench.retrievers.graph.merging import Draft, merged
from tests.fakes import Asked, Reply, ScriptedLM, rate_limited
from tests.programs.shelf import TEXTS, ask, shelf
from tests.retrievers.conftest import make_corpus

QUESTION = "Who wrote Salt Road?"


def script(asked: Asked) -> Reply:
    """The titles that a passage names are its entities, each related to the passage's own."""
    if asked.signature == "ExtractGraph":
        text = asked.inputs["text"]
        own = text.partition(" | ")[0]
        names = [name for name in TEXTS if name in text and name not in asked.inputs["known"]]
        return {
            "entities": [
                {"name": name, "type": "event", "description": f"{name} by {own}"} for name in names
            ],
            "relations": [
                {"source": own, "target": name, "description": f"{own} to {name}", "strength": 2}
                for name in names
            ],
        }
    if asked.signature == "Summarize":
        return {"summary": " and ".join(json.loads(asked.inputs["texts"]))}
    if asked.signature == "ReportCommunity":
        entities = json.loads(asked.inputs["entities"])
        named = ", ".join(line.partition(" (")[0] for line in entities)
        return {"title": "Report", "summary": named, "rating": 5.0, "findings": ["One."]}
    return {"answer": "Orla Venn"}


def indexed(corpus: Corpus, reply: Any = script, **settings: Any) -> tuple[KnowledgeGraph, Any]:
    lm = ScriptedLM(reply)
    with dspy.context(lm=lm, adapter=make_adapter("json", lm), num_threads=4):
        return KnowledgeGraph.of(corpus, lm="lm", **settings), lm


# -- merging


def test_entities_of_a_name_and_type_are_one_and_weights_add_up() -> None:
    first, second = Draft(), Draft()
    first.add(
        {
            "entities": [
                {"name": "Orla ", "type": "person", "description": "a writer"},
                {"name": "tam", "type": "Person", "description": "x"},
            ],
            "relations": [
                {"source": "Orla", "target": "Tam", "description": "knows", "strength": 2},
                {"source": "Orla", "target": "Nobody", "description": "orphan", "strength": 9},
                {"source": "Orla", "target": "Orla", "description": "herself"},
            ],
        }
    )
    second.add(
        {
            "entities": [
                {"name": "ORLA", "type": "PERSON", "description": "of Harwick"},
                {"name": "Tam", "type": "place", "description": "a hill"},
            ],
            "relations": [{"source": "ORLA", "target": "TAM", "description": "knows"}],
        }
    )
    graph = merged([first, second])
    assert [(n.name, n.type, n.units) for n in graph.nodes] == [
        ("ORLA", "PERSON", (0, 1)),
        ("TAM", "PERSON", (0,)),
        ("TAM", "PLACE", (1,)),
    ]
    assert graph.links == [Link(0, 1, "", 3.0, (0, 1))]
    assert graph.described[0] == ("ORLA", ["a writer", "of Harwick"])
    assert graph.described[-1] == ("ORLA - TAM", ["knows"])


# -- communities


def two_cliques(size: int) -> list[tuple[int, int]]:
    """Two groups in which all are joined, with one edge between them."""
    sides = (range(size), range(size, 2 * size))
    inside = [(a, b) for side in sides for a in side for b in side if a < b]
    return [*inside, (0, size)]


@pytest.fixture(params=["igraph", "graspologic"])
def leiden(request: pytest.FixtureRequest) -> Leiden:
    """Each implementation that is installed."""
    if request.param == "graspologic":
        pytest.importorskip("graspologic_native")
    implementation: Leiden = request.param
    return implementation


def test_communities_are_the_groups_of_the_largest_part_the_same_each_time(leiden: Leiden) -> None:
    edges = [*two_cliques(5), (10, 11)]  # 10 and 11 stand apart
    found = communities_of(12, edges, [1.0] * len(edges), leiden=leiden)
    assert {community.members for community in found} == {tuple(range(5)), tuple(range(5, 10))}
    assert {(c.level, c.parent) for c in found} == {(0, -1)}
    again = [(b, a) for a, b in reversed(edges)]
    assert found == communities_of(12, edges, [1.0] * len(edges), leiden=leiden)
    assert set(found) == set(communities_of(12, again, [1.0] * len(edges), leiden=leiden))
    assert communities_of(3, [], [], leiden=leiden) == []


def test_a_large_community_is_divided_below(leiden: Leiden) -> None:
    # Four groups of three in two pairs: the pairs or the groups above, never more than six nodes.
    groups = [range(3 * i, 3 * i + 3) for i in range(4)]
    edges = [(a, b) for group in groups for a in group for b in group if a < b]
    weights = [5.0] * len(edges)
    edges += [(0, 3), (1, 4), (2, 5), (6, 9), (7, 10), (8, 11), (0, 6)]
    weights += [4.0] * 6 + [0.1]
    found = communities_of(12, edges, weights, max_size=3, leiden=leiden)
    below = [community for community in found if community.level]
    for community in below:
        assert set(community.members) < set(found[community.parent].members)
        assert found[community.parent].level == community.level - 1
    lowest = {node: c.members for c in found for node in c.members}
    assert all(len(members) <= 6 for members in lowest.values())
    assert {node for c in found if c.level == 0 for node in c.members} == set(range(12))


# -- the context, by hand: 0 - 1, 0 - 2, 1 - 2, 2 - 3, 1 - 3, 0 - 4

LINKS = [
    Link(0, 1, "a", 1, (0,)),
    Link(0, 2, "b", 1, (1, 2)),
    Link(1, 2, "c", 1, (1,)),
    Link(2, 3, "d", 1, (3,)),
    Link(1, 3, "e", 1, (3,)),
    Link(0, 4, "f", 1, (0,)),
]
DEGREES = degrees(5, [(link.source, link.target) for link in LINKS])
NODES = [
    Node(name, "T", "what it is", units, degree)
    for name, units, degree in zip(
        "ABCDE", [(0, 1, 2), (0, 1, 3), (1, 2, 3), (3,), (0,)], DEGREES, strict=True
    )
]


def test_relations_inside_come_first_then_the_most_shared() -> None:
    assert DEGREES == [3, 3, 3, 2, 1]
    # Of 0 and 1, link 0 is inside. Both lead to 2; 3 and 4 are led to by one each, 3 has the rank.
    assert relations([0, 1], NODES, LINKS, Shares(relations=10)) == [0, 1, 2, 4, 5]
    assert relations([0, 1], NODES, LINKS, Shares(relations=1)) == [0, 1, 2]
    assert relations([0, 1, 2], NODES, LINKS, Shares(relations=0)) == [0, 1, 2]


def test_a_relation_both_ways_shares_its_far_end_once() -> None:
    nodes = [Node(name, "place", "", (), 9 if name == "C" else 2) for name in "ABCD"]
    ends = [(0, 2), (2, 0), (0, 3), (1, 3)]  # C is led to by A alone, D by A and B
    links = [Link(*pair, "", 1.0, ()) for pair in ends]
    assert relations([0, 1], nodes, links, Shares(relations=1)) == [2, 3]


def test_entities_are_added_until_the_tables_are_full() -> None:
    lines, around = tables([0, 1, 2], NODES, LINKS, Shares(tokens=10_000))
    assert lines == ["A (T): what it is", "B (T): what it is", "C (T): what it is"]
    assert around[0] == "A - B: a"
    assert len(around) == 6
    # A line of entities has 5 tokens, one of relations 2. With 21 tokens of tables 6 are left for
    # relations: the three of 0 alone, but not the five of 0 and 1.
    small = Shares(tokens=60, reports=0.15, texts=0.5)
    assert small.tables == 21
    lines, around = tables([0, 1, 2], NODES, LINKS, small)
    assert len(lines) == 3
    assert around == ["A - B: a", "A - C: b", "A - E: f"]
    assert tables([0, 1, 2], NODES, LINKS, Shares(tokens=15))[0] == ["A (T): what it is"]


def test_texts_by_entity_then_by_the_relations_that_they_state() -> None:
    # Of 0: text 0 states links 0 and 5, 1 and 2 state link 1. Of 3: text 3.
    assert chosen_units([0, 3], NODES, LINKS, [10] * 4, tokens=100) == [0, 1, 2, 3]
    # Of 2: text 1 states links 1 and 2, 2 states 1, 3 states 3; text 0 comes with 0.
    assert chosen_units([2, 0], NODES, LINKS, [10] * 4, tokens=100) == [1, 2, 3, 0]
    assert chosen_units([2, 0], NODES, LINKS, [10] * 4, tokens=29) == [1, 2]


def test_reports_of_the_lowest_communities_by_matches_then_rating() -> None:
    reports = [
        Report(0, (0, 1, 2), "top", "t", 9),
        Report(0, (3, 4), "other", "o", 1),
        Report(1, (0, 1), "low", "l", 2),
        Report(1, (2,), "rest", "r", 8),
        Report(2, (0,), "deep", "d", 5),
    ]
    # Down to level 1, no entity has "top" as its lowest. Two of the selected are in "low".
    assert chosen_reports([0, 1, 2, 3], reports, level=1, tokens=100) == [2, 3, 1]
    assert chosen_reports([0, 1, 2], reports, level=0, tokens=100) == [0]
    assert chosen_reports([0, 1, 2, 3], reports, level=1, tokens=5) == [2, 3]  # 2 and 3 tokens
    assert chosen_reports([0, 1], reports, level=2, tokens=100) == [2, 4]


# -- the index


def test_what_an_index_asks_for_and_keeps() -> None:
    index, lm = indexed(shelf().corpus)
    assert {node.name for node in index.nodes} == {name.upper() for name in TEXTS}
    counts = {name: lm.signatures.count(name) for name in set(lm.signatures)}
    assert counts["ExtractGraph"] == 10  # one more for what was overlooked
    several = [n for n in index.nodes if " and " in n.description]
    assert counts["Summarize"] == len(several) > 0  # an entity of one text keeps its description
    assert counts["ReportCommunity"] == len(index.reports) > 0
    assert index.facts()["index_calls"] == len(lm.asked)
    salt = next(node for node in index.nodes if node.name == "SALT ROAD")
    assert salt.units == (0, 1)
    assert index.nearest("Salt Road", 1) == [index.nodes.index(salt)]


def test_a_gleaning_is_told_what_was_found_before() -> None:
    _, lm = indexed(shelf().corpus)
    first, again = (
        asked.inputs["known"]
        for asked in lm.asked
        if asked.signature == "ExtractGraph" and asked.inputs["text"].startswith("Orla Venn |")
    )
    found = ["ORLA VENN", "SALT ROAD", "HARWICK", "ORLA VENN - SALT ROAD", "ORLA VENN - HARWICK"]
    assert not any(f'"{known}"' in first for known in found)
    assert all(f'"{known}"' in again for known in found)


def test_no_gleaning_is_one_call_a_passage() -> None:
    _, lm = indexed(shelf().corpus, gleanings=0)
    assert lm.signatures.count("ExtractGraph") == 5


def test_the_kinds_of_entities_are_a_knob() -> None:
    program, lm = GraphRAG(shelf(), entity_types="film, book,"), ScriptedLM(script)
    with dspy.context(lm=lm, adapter=make_adapter("json", lm)), open_ledger():
        program.prepare()
    asked = [one.inputs["entity_types"] for one in lm.asked if one.signature == "ExtractGraph"]
    assert asked == ['["film", "book"]'] * 10


def test_a_kill_in_the_middle_loses_no_finished_call() -> None:
    finished: list[str] = []

    def dies(asked: Asked) -> Reply:
        if asked.signature == "ReportCommunity":
            return rate_limited()
        finished.append(asked.signature)
        return script(asked)

    with pytest.raises(dspy.LMError):
        indexed(shelf().corpus, dies)
    index, lm = indexed(shelf().corpus)
    assert set(lm.signatures) == {"ReportCommunity"}
    assert index.facts()["index_calls"] == len(finished) + len(lm.asked)


def test_a_community_that_does_not_fit_is_reported_on_by_its_parts() -> None:
    long = "word " * 60

    def wordy(asked: Asked) -> Reply:
        if asked.signature == "ExtractGraph" and asked.inputs["known"].startswith("[]"):
            ring = [f"N{i}" for i in range(16)]
            rows = [{"name": name, "type": "t", "description": long} for name in ring]
            ends = [(a, b) for i in (0, 4, 8, 12) for a in ring[i : i + 4] for b in ring[i : i + 4]]
            ends += [("N0", "N4"), ("N8", "N12"), ("N4", "N8")]
            return {
                "entities": rows,
                "relations": [
                    {"source": a, "target": b, "description": "r", "strength": 1}
                    for a, b in ends
                    if a < b
                ],
            }
        if asked.signature == "ExtractGraph":
            return {"entities": [], "relations": []}
        return script(asked)

    index, lm = indexed(
        make_corpus(["one"]), wordy, max_community=2, report_input_tokens=300, gleanings=0
    )
    for asked in (asked for asked in lm.asked if asked.signature == "ReportCommunity"):
        shown = json.loads(asked.inputs["entities"])
        assert sum(len(line) for line in shown) <= 4 * 300
    assert len(index.reports) == lm.signatures.count("ReportCommunity")


# -- the program


def test_one_search_one_answer_from_reports_tables_and_texts() -> None:
    program = GraphRAG(shelf(padding=3))
    lm = ScriptedLM(script)
    with dspy.context(lm=lm, adapter=make_adapter("json", lm)):
        with open_ledger() as preparation:
            program.prepare()
        made = len(lm.asked)
        with open_ledger() as ledger:
            prediction = program(question=QUESTION)
    assert preparation.as_if.calls == made == program.index_facts()["index_calls"]
    assert lm.signatures[made:] == ["AnswerFromContext"]
    assert ledger.as_if.calls == ledger.path.calls == 1
    assert [step.action for step in prediction.steps] == ["index", "search", "answer"]
    context = json.loads(lm.asked[-1].inputs["context"].partition("\n\n[[")[0])
    kinds = [line.partition("] ")[2].partition(" | ")[0] for line in context]
    assert kinds[0] == "Report"
    assert kinds.index("Entities") < kinds.index("Relations") < kinds.index("Salt Road")
    pids = [passage.pid for passage in prediction.passages]
    assert pids[0] in ("Orla Venn", "Salt Road")
    assert pids[-2:] == ["entities", "relations"]  # after the texts, which recall counts
    assert set(prediction.steps[-1].pids) == set(pids)
    retrieved = prediction.steps[1].notes["retrieved"]
    assert len(retrieved) == len(pids)  # reports and tables are retrieved text too
    assert prediction.answer == "Orla Venn"


@pytest.mark.parametrize(
    ("ablation", "gone"),
    [("reports", "report-0"), ("tables", "entities"), ("texts", "Salt Road")],
)
def test_ablations(ablation: str, gone: str) -> None:
    whole, _, _ = ask(GraphRAG(shelf()), script, QUESTION)
    less, _, _ = ask(GraphRAG(shelf(), ablation=ablation), script, QUESTION)
    assert gone in [passage.pid for passage in whole.passages]
    assert gone not in [passage.pid for passage in less.passages]
    assert less.passages


def test_a_graph_without_entities_is_searched_by_vectors() -> None:
    def nothing(asked: Asked) -> Reply:
        if asked.signature == "ExtractGraph":
            return {"entities": [], "relations": []}
        return script(asked)

    prediction, lm, _ = ask(GraphRAG(shelf(), k=2), nothing, QUESTION)
    assert prediction.counts["no_seed"] == 1
    assert len(prediction.passages) == 2
    assert "ReportCommunity" not in lm.signatures


def test_a_rehearsal_makes_no_index_up(tmp_path: Path) -> None:
    examples = [dspy.Example(question=QUESTION).with_inputs("question")]
    rehearsed = rehearse(GraphRAG(shelf()), examples, make_adapter("json", ScriptedLM()))
    assert rehearsed is not None
    assert rehearsed.calls == (1, 1)
    assert not (tmp_path / "cache").exists()


def test_the_library_of_the_authors_makes_the_communities_of_an_index() -> None:
    pytest.importorskip("graspologic_native")
    assert GraphRAG(shelf(), leiden="graspologic").index_settings()["leiden"] == "graspologic"


def test_a_missing_library_is_told_before_anything_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "graspologic_native", None)
    with pytest.raises(MissingExtraError, match="graspologic needs graspologic_native"):
        GraphRAG(shelf(), leiden="graspologic")
