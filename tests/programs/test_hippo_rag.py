"""HippoRAG 2: its index and its weights by hand, and the program by scripted conversations."""

import json
from typing import Any

import dspy
import pytest

from ragbench.lms.adapters import make_adapter
from ragbench.programs.hippo_rag import HippoRAG
from ragbench.retrievers.base import Corpus
from ragbench.retrievers.lm_index import by_pattern
from ragbench.retrievers.lm_index.hippo import HippoIndex, cleaned, facts_of
from tests.fakes import Asked, Reply, ScriptedLM
from tests.programs.shelf import COUNTY, ask, ended, shelf
from tests.retrievers.conftest import make_corpus

FACTS = {
    "Orla Venn": [("Orla Venn", "wrote", "Salt Road"), ("Orla Venn", "was born in", "Harwick")],
    "Salt Road": [("Salt Road", "is a novel by", "Orla Venn"), ("Salt Road", "is by", "Tam Quill")],
    "Tam Quill": [("Tam Quill", "was born in", "Eastmere")],
    "Harwick": [("Harwick", "is a town in", "Dunmoor")],
    "Eastmere": [("Eastmere", "is a town in", "Tollen")],
}


def text_of(asked: Asked) -> str:
    return asked.inputs["text"].partition("\n\n")[0]


def triples(*rows: tuple[str, str, str]) -> dict[str, Any]:
    return {"triples": [{"subject": s, "relation": r, "object": o} for s, r, o in rows]}


def script(asked: Asked) -> Reply:
    """Reads the facts above; keeps who wrote Salt Road."""
    if asked.signature == "ExtractEntities":
        return {"entities": by_pattern(text_of(asked))}
    if asked.signature == "ExtractTriples":
        return triples(*FACTS.get(text_of(asked).split(" | ")[0], []))
    if asked.signature == "SelectFacts":
        lines = json.loads(asked.inputs["facts"].partition("\n\n")[0])
        return {"keep": [n for n, line in enumerate(lines, start=1) if "orla venn wrote" in line]}
    return {"answer": "Dunmoor"}


def indexed(corpus: Corpus, facts: Any = script, **settings: Any) -> HippoIndex:
    lm = ScriptedLM(facts)
    with dspy.context(lm=lm, adapter=make_adapter("json", lm), num_threads=4):
        return HippoIndex.of(corpus, lm="lm", **settings)


# -- parts, by hand


def test_triples_are_cleaned() -> None:
    assert cleaned(" Émile's (first) Book_2! ") == "émile s  first  book 2"
    rows = triples(("A", "knows", "B"), ("a", "Knows", "b"), ("?", "is", "B"))["triples"]
    # The same only once they are cleaned: two, as the published code counts. Said twice: one.
    assert facts_of([*rows, {"subject": "A"}, rows[0]]) == [("a", "knows", "b")] * 2


# -- the index


def test_without_entities_all_triples_are_asked_for() -> None:
    asked: list[str] = []

    def none_named(one: Asked) -> Reply:
        asked.append(one.signature)
        return {"entities": [], **triples(("rain", "wets", "stones"))}

    assert indexed(make_corpus(["Rain wets stones."]), none_named).phrases == ["rain", "stones"]
    assert asked == ["ExtractEntities", "ExtractAllTriples"]


# -- the program


def test_facts_are_chosen_and_walks_find_the_second_hop() -> None:
    prediction, lm, _ = ask(HippoRAG(shelf(padding=5), k=3), script, COUNTY)
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
        HippoRAG(shelf()), lambda asked: replies.get(asked.signature) or script(asked), COUNTY
    )
    assert ("SelectFacts" in lm.signatures) is filters
    assert (prediction.counts["no_seed"], len(prediction.passages)) == (not seeds, 5)
    assert prediction.answer == "Dunmoor"
    assert prediction.steps[1].observation.count(";") == seeds


@pytest.mark.parametrize(
    ("knobs", "signatures"),
    [
        ({"use_filter": False}, ["AnswerFromContext"]),
        ({"linking": "phrases"}, ["AnswerFromContext"]),
        ({"linking": "entities"}, ["ExtractEntities", "AnswerFromContext"]),
        ({"passage_node_weight": 0.0}, ["SelectFacts", "AnswerFromContext"]),
    ],
)
def test_ablations(knobs: dict[str, Any], signatures: list[str]) -> None:
    prediction, lm, _ = ask(HippoRAG(shelf(), **knobs), script, COUNTY)
    assert lm.signatures[10:] == signatures
    assert "walk" in [step.action for step in prediction.steps]
