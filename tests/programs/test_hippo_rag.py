"""HippoRAG 2: its index and its weights by hand, and the program by scripted conversations."""

import json
from typing import Any

import dspy
import numpy as np
import pytest

from ragbench.lms.adapters.lenient import make_adapter
from ragbench.programs.hippo_rag import HippoRAG
from ragbench.programs.linear_rag import LinearRAG
from ragbench.retrievers.base import Corpus
from ragbench.retrievers.lm_index import by_pattern
from ragbench.retrievers.lm_index.hippo import (
    HippoIndex,
    cleaned,
    facts_of,
    phrase_weights,
    synonyms,
)
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


def test_a_phrase_weighs_the_mean_of_its_facts_over_its_passages() -> None:
    # Phrase 0 is in facts of 1.0 and 0.5 and in two passages: (0.5 + 0.25) / 2.
    weights = phrase_weights([(0, 1), (0, 2)], [1.0, 0.5], {0: 2, 1: 1, 2: 1}, keep=5)
    assert weights == {0: 0.375, 1: 1.0, 2: 0.5}
    assert list(phrase_weights([(0, 1), (0, 2)], [1.0, 0.5], {0: 2}, keep=2)) == [1, 2]


def test_synonyms_are_those_alike_of_more_than_two_letters() -> None:
    rows = np.array([[1, 0], [0.9, 0.4359], [0, 1], [1, 0]], dtype=np.float32)
    found = synonyms(["orla", "orlas", "tam", "ab"], rows, 0.8)
    assert set(found) == {(0, 1), (0, 3), (1, 0), (1, 3)}  # "ab" is too short to ask
    assert found[0, 1] == pytest.approx(0.9, abs=1e-3)


# -- the index


def test_nodes_and_edges_of_an_index() -> None:
    def facts(asked: Asked) -> Reply:
        if asked.signature == "ExtractEntities":
            return {"entities": ["Orla"]}
        other = "Tam" if text_of(asked) == "one" else "Salt"
        return triples(("Orla", "knows", other), *[("Orla", "likes", "Tam")] * 2)

    corpus = make_corpus(["one", "two"], title=lambda i: "")
    index = indexed(corpus, facts, synonym_threshold=1.01)
    assert index.phrases == ["orla", "tam", "salt"]
    facts_read = [index.fact_text(i) for i in range(3)]
    assert facts_read == ["orla knows tam", "orla likes tam", "orla knows salt"]
    assert index.spread.tolist() == [2, 2, 1]
    edges = {tuple(e): float(w) for e, w in zip(index.edges.tolist(), index.weights, strict=True)}
    assert edges == {
        (0, 1): 3, (1, 0): 3,  # knows and likes in one passage, likes in the other
        (0, 2): 1, (2, 0): 1,
        (3, 0): 1, (3, 1): 1,
        (4, 0): 1, (4, 1): 1, (4, 2): 1,
    }  # fmt: skip
    assert index.facts()["index_calls"] == 4


def test_without_entities_all_triples_are_asked_for() -> None:
    asked: list[str] = []

    def none_named(one: Asked) -> Reply:
        asked.append(one.signature)
        return {"entities": [], **triples(("rain", "wets", "stones"))}

    assert indexed(make_corpus(["Rain wets stones."]), none_named).phrases == ["rain", "stones"]
    assert asked == ["ExtractEntities", "ExtractAllTriples"]


def test_a_synonym_takes_the_place_of_a_relation() -> None:
    facts = {"entities": ["old town"], **triples(("old town", "is", "town old"))}
    index = indexed(make_corpus(["one"]), lambda asked: facts)  # the same words, the same vector
    weights = dict(zip(map(tuple, index.edges.tolist()), index.weights.tolist(), strict=True))
    assert weights[0, 1] == weights[1, 0] == pytest.approx(1)


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


def test_another_system_shares_what_was_read() -> None:
    lm = ScriptedLM(script)
    with dspy.context(lm=lm, adapter=make_adapter("json", lm)):
        LinearRAG(shelf()).prepare()
        program = HippoRAG(shelf())
        program.prepare()
    assert lm.signatures.count("ExtractEntities") == 5  # asked for by the first alone
    assert lm.signatures.count("ExtractTriples") == 5
    assert program.index_facts()["index_calls"] == 10  # as if it had asked for all
