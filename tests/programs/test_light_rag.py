"""LightRAG's graph by hand, and its ways to search by scripted conversations."""

from typing import Any

import pytest

from ragbench.programs.light_rag import LightRAG
from tests.fakes import Asked, Reply
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


def test_passages_of_what_is_shown_are_ranked_by_the_question() -> None:
    prediction, _, _ = ask(LightRAG(shelf(), variant="local", min_cosine=0.3), script, QUESTION)
    nearest, _, _ = ask(LightRAG(shelf(), variant="naive"), script, QUESTION)
    pids = [p.pid for p in prediction.passages]
    assert pids == [p.pid for p in nearest.passages if p.pid in pids]
    assert {"Orla Venn", "Salt Road"} <= {*pids}


@pytest.mark.parametrize(
    ("variant", "entities", "relations"),
    [
        ("local", ["Salt Road (thing)"], ["Orla Venn - Salt Road (authorship)"]),
        ("global", ["Dunmoor (thing)", "Tollen (thing)"], ["Dunmoor - Harwick (county)"]),
        ("hybrid", ["Salt Road (thing)", "Dunmoor (thing)"], ["Dunmoor - Harwick (county)"]),
    ],
)
def test_names_find_entities_and_themes_find_relations(
    variant: str, entities: list[str], relations: list[str]
) -> None:
    prediction, lm, _ = ask(LightRAG(shelf(), variant=variant, min_cosine=0.3), script, QUESTION)
    assert (prediction.answer, prediction.stop_reason) == ("Dunmoor", "answered")
    notes = lm.asked[-1].inputs["graph"]
    assert all(line in notes for line in [*entities, *relations])
    if variant == "local":
        assert "county" not in notes
    if variant == "global":
        assert "Salt Road" not in notes
    (step,) = [step for step in prediction.steps if step.action == "search"]
    assert any(line.startswith(entities[0]) for line in step.notes["retrieved"])
    assert lm.signatures.count("ExtractKeyedGraph") == len(TEXTS)


def test_mix_adds_the_passages_nearest_to_the_question_and_k_bounds_them() -> None:
    alone, _, _ = ask(LightRAG(shelf(), variant="local", min_cosine=0.3), script, QUESTION)
    mixed, _, _ = ask(LightRAG(shelf(), variant="mix", min_cosine=0.3), script, QUESTION)
    assert {p.pid for p in alone.passages} < {p.pid for p in mixed.passages}
    few, _, _ = ask(LightRAG(shelf(), variant="mix", k=2), script, QUESTION)
    assert len(few.passages) == 2


def test_naive_reads_the_nearest_passages_without_a_graph() -> None:
    prediction, lm, _ = ask(LightRAG(shelf(), variant="naive", k=2), script, QUESTION)
    assert lm.signatures == ["AnswerFromContext"]
    assert len(prediction.passages) == 2


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
    assert "Salt Road (thing)" not in lm.asked[-1].inputs["graph"]
