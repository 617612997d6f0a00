"""LightRAG's graph by hand, and its ways to search by scripted conversations."""

from __future__ import annotations

from typing import Any

import dspy
import pytest

from ragbench.experiments.estimates.rehearsal import rehearse
from ragbench.ledger import open_ledger
from ragbench.lms.adapters.lenient import make_adapter
from ragbench.programs.light_rag import LightRAG, relations_around, units_of
from ragbench.retrievers.graph.light import Entity, LightIndex, Relation, joined
from tests.fakes import Asked, Reply, ScriptedLM
from tests.programs.shelf import TEXTS, ask, shelf

QUESTION = "In which county was the author of Salt Road born?"

#: What is read off each passage: names, and (source, target, keywords).
READ: dict[str, tuple[list[str], list[tuple[str, str, str]]]] = {
    "Orla Venn": (["Orla Venn", "Salt Road"], [("Orla Venn", "Salt Road", "authorship")]),
    "Salt Road": (["Salt Road", "Tam Quill"], [("Tam Quill", "Salt Road", "authorship")]),
    "Tam Quill": (["Tam Quill"], [("Tam Quill", "Eastmere", "birthplace")]),
    "Harwick": (["Harwick", "Dunmoor"], [("Harwick", "Dunmoor", "county")]),
    "Eastmere": (["Eastmere", "Tollen"], [("Eastmere", "Tollen", "county")]),
}


def graph(title: str) -> dict[str, Any]:
    names, links = READ[title]
    return {
        "entities": [{"name": n, "type": "thing", "description": f"of {title}"} for n in names],
        "relations": [
            {"source": s, "target": t, "description": word, "keywords": [word], "strength": 2}
            for s, t, word in links
        ],
    }


def script(asked: Asked) -> Reply:
    if asked.signature == "ExtractKeyedGraph":
        if not asked.inputs["known"].startswith("[]"):
            return {"entities": [], "relations": []}
        return graph(asked.inputs["text"].partition(" | ")[0])
    if asked.signature == "ExtractKeywords":
        return {"high_level": ["county"], "low_level": ["Salt Road", "salt road"]}
    return {"answer": "Dunmoor"}


def test_entities_and_relations_are_merged_by_name() -> None:
    entities, ends = joined([[graph(title)] for title in TEXTS], words=5)
    assert [entity.name for entity in entities] == sorted(
        ["ORLA VENN", "SALT ROAD", "TAM QUILL", "EASTMERE", "HARWICK", "DUNMOOR", "TOLLEN"]
    )
    assert len(ends) == 5
    road = next(entity for entity in entities if entity.name == "SALT ROAD")
    assert road == Entity("SALT ROAD", "thing", "of Orla Venn of Salt", [0, 1])
    both = {"source": "b", "target": "A", "description": "x", "keywords": ["k"], "strength": 2}
    turned = {"source": "a", "target": "B", "description": "x", "keywords": ["k", "l"]}
    found, (relation,) = joined(
        [[{"relations": [both]}], [{"relations": [turned, {**both, "target": "b"}]}]], words=9
    )
    assert relation == Relation((0, 1), "x", ["k", "l"], 3.0, [0, 1])
    assert [(e.name, e.type, e.units) for e in found] == [("A", "", [0, 1]), ("B", "", [0, 1])]


def test_relations_of_well_connected_ends_come_first_and_passages_that_hold_them() -> None:
    lm = ScriptedLM(script)
    with dspy.context(lm=lm, adapter=make_adapter("json", lm)), open_ledger():
        index = LightIndex.of(shelf().corpus)
    names = [entity.name for entity in index.entities]
    road = names.index("SALT ROAD")
    ends = [{names[e] for e in index.relations[r].ends} for r in relations_around(index, [road])]
    assert ends == [{"TAM QUILL", "SALT ROAD"}, {"ORLA VENN", "SALT ROAD"}]  # 4 links, 3 links
    titles = [index.corpus[unit].title for unit in units_of(index, [road])]
    assert titles == ["Orla Venn", "Salt Road"]


@pytest.mark.parametrize(
    ("variant", "entities", "relations"),
    [
        ("local", ["SALT ROAD (thing)"], ["ORLA VENN - SALT ROAD (authorship)"]),
        ("global", ["DUNMOOR (thing)", "TOLLEN (thing)"], ["DUNMOOR - HARWICK (county)"]),
        ("hybrid", ["SALT ROAD (thing)", "DUNMOOR (thing)"], ["DUNMOOR - HARWICK (county)"]),
    ],
)
def test_names_find_entities_and_themes_find_relations(
    variant: str, entities: list[str], relations: list[str]
) -> None:
    prediction, lm, _ = ask(LightRAG(shelf(), variant=variant, min_cosine=0.3), script, QUESTION)
    assert (prediction.answer, prediction.stop_reason) == ("Dunmoor", "answered")
    notes = lm.asked[-1].inputs["notes"]
    assert all(line in notes for line in [*entities, *relations])
    if variant == "local":
        assert "county" not in notes
    if variant == "global":
        assert "SALT ROAD" not in notes
    (step,) = [step for step in prediction.steps if step.action == "search"]
    assert any(line.startswith(entities[0]) for line in step.notes["retrieved"])
    assert lm.signatures.count("ExtractKeyedGraph") == 2 * len(TEXTS)
    gleaning = [a.inputs["known"] for a in lm.asked if a.signature == "ExtractKeyedGraph"]
    assert any('"ORLA VENN", "SALT ROAD", "ORLA VENN - SALT ROAD"' in known for known in gleaning)


def test_what_only_a_relation_tells_of_an_entity_is_shown_once() -> None:
    def unlisted(asked: Asked) -> Reply:
        reply = script(asked)
        if asked.signature == "ExtractKeyedGraph" and isinstance(reply, dict):
            named = [row for row in reply["entities"] if row["name"] != "Dunmoor"]
            return {**reply, "entities": named}
        return reply

    def notes(**knobs: Any) -> str:
        program = LightRAG(shelf(), variant="global", min_cosine=0.3, **knobs)
        _, lm, _ = ask(program, unlisted, QUESTION)
        shown: str = lm.asked[-1].inputs["notes"]
        return shown

    assert "DUNMOOR (unknown)" not in notes()
    assert "DUNMOOR - HARWICK (county): county" in notes()
    assert "HARWICK (thing)" in notes()
    assert "DUNMOOR (unknown): county" in notes(relation_tokens=0)


def test_mix_adds_the_passages_nearest_to_the_question_and_k_bounds_them() -> None:
    alone, _, _ = ask(LightRAG(shelf(), variant="local", min_cosine=0.3), script, QUESTION)
    mixed, _, _ = ask(LightRAG(shelf(), variant="mix", min_cosine=0.3), script, QUESTION)
    assert {p.pid for p in alone.passages} < {p.pid for p in mixed.passages}
    few, _, _ = ask(LightRAG(shelf(), variant="mix", k=2), script, QUESTION)
    assert len(few.passages) == 2


def test_naive_reads_the_nearest_passages_without_a_graph() -> None:
    prediction, lm, _ = ask(LightRAG(shelf(), variant="naive", k=2), script, QUESTION)
    assert lm.signatures == ["AnswerWithHints"]
    assert len(prediction.passages) == 2
    assert prediction.steps[0].notes["entities"] == 0


def test_without_keywords_the_question_stands_for_them() -> None:
    def silent(asked: Asked) -> Reply:
        if asked.signature == "ExtractKeywords":
            return {"high_level": [], "low_level": [" "]}
        return script(asked)

    prediction, _, _ = ask(LightRAG(shelf()), silent, QUESTION)
    assert prediction.counts["no_keywords"] == 1
    assert QUESTION in next(s for s in prediction.steps if s.action == "keywords").observation


def test_where_nothing_is_found_the_nearest_passages_are_read() -> None:
    prediction, _, _ = ask(LightRAG(shelf(), k=2, min_cosine=1), script, QUESTION)
    assert prediction.counts["no_seed"] == 1
    assert len(prediction.passages) == 2


def test_passages_can_be_left_out_and_lines_are_cut_to_their_tokens() -> None:
    _, lm, _ = ask(LightRAG(shelf(), texts=False, entity_tokens=0), script, QUESTION)
    assert lm.asked[-1].inputs["context"].startswith("[]")
    assert "SALT ROAD (thing)" not in lm.asked[-1].inputs["notes"]


def test_a_rehearsal_shows_as_much_as_the_index_may_give() -> None:
    example = dspy.Example(question=QUESTION).with_inputs("question")
    adapter = make_adapter("json", ScriptedLM())
    sizes = []
    for variant in ("hybrid", "naive"):
        found = rehearse(LightRAG(shelf(padding=300), variant=variant), [example], adapter)
        assert found is not None
        sizes.append(found.prompt_tokens[1])
    assert sizes[0] > sizes[1] + 800
