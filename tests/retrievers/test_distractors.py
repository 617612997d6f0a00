"""Misleading passages: what each kind is, where they are put, and what the draw depends on."""

import random

import pytest

from ragbench.retrievers import Corpus, Passage, make_retriever
from ragbench.retrievers.distractors import (
    KINDS,
    false_shortcut,
    look_alike,
    split_evidence,
    subjective,
)
from tests.programs.shelf import TEXTS

CORPUS = Corpus([Passage(title, title, text) for title, text in TEXTS.items()])
VENN = CORPUS[0]
NAMES = ["Ada Brook"]


def chance() -> random.Random:
    return random.Random(7)


def test_a_look_alike_has_other_names_and_numbers_and_is_no_gold_passage() -> None:
    passage = Passage("1", "Harwick", "Harwick is a town in Dunmoor. It has 900 inhabitants.")
    made = look_alike(passage, NAMES, chance())
    assert made is not None
    assert (made.pid, made.title) == ("distractor-look_alike-1", "Harwick")  # no mark gives it away
    assert made.text.startswith("Harwick is a town in Ada Brook. It has 90")
    assert "900" not in made.text
    assert look_alike(Passage("2", "T", "nothing to change here"), NAMES, chance()) is None


def test_a_false_shortcut_answers_the_query_with_a_name_of_another_passage() -> None:
    made = false_shortcut(VENN, "Where was she born?", NAMES, chance())
    assert made is not None
    assert made.text.startswith("Where was she born: Ada Brook.")
    assert false_shortcut(VENN, "Where?", [], chance()) is None


def test_split_evidence_keeps_the_beginning_under_its_pid_and_the_rest_without_its_title() -> None:
    split = split_evidence(VENN)
    assert split is not None
    first, rest = split
    assert (first.pid, first.title) == ("Orla Venn", "Orla Venn")
    assert first.text == "Orla Venn wrote the novel Salt Road."
    assert (rest.title, rest.text) == ("", "She was born in Harwick.")
    assert split_evidence(Passage("1", "T", "One sentence.")) is None


def test_an_opinion_contradicts_the_passage() -> None:
    made = subjective(VENN, NAMES, chance())
    assert made is not None
    assert "Orla Venn wrote the novel Ada Brook." in made.text
    assert "As many people see it" in made.text


@pytest.mark.parametrize("kind", [*KINDS, "neutral"])
def test_each_kind_takes_places_of_hits_and_leaves_their_scores(kind: str) -> None:
    settings = {"rate": 1, "per_search": 1, "kinds": kind}
    plain = make_retriever("bm25", CORPUS).search("novel Salt Road by Orla Venn", k=3)
    found = make_retriever("distracting", CORPUS, **settings).search(
        "novel Salt Road by Orla Venn", k=3
    )
    assert len(found) == len(plain)
    assert [p.score for p in found] == [p.score for p in plain]
    made = [p for p in found if p.pid.startswith("distractor-")]
    assert len(made) <= 1
    texts_found = {p.text for p in found}
    assert texts_found != {p.text for p in plain}


def test_a_neutral_passage_is_one_of_the_corpus_about_something_else() -> None:
    made = make_retriever("distracting", CORPUS, rate=1, kinds="neutral", per_search=1)
    texts = {f"distractor-neutral-{p.pid}": p.text for p in CORPUS}
    for n in range(30):
        found = made.search(f"Salt Road by Orla Venn {n}", k=3)
        put = [p for p in found if p.pid.startswith("distractor-")]
        assert [p.text for p in put] == [texts[p.pid] for p in put]
        assert not {p.title for p in put} & {"Salt Road", "Orla Venn"}


def test_the_rate_is_the_share_of_searches_tampered_with() -> None:
    plain = make_retriever("bm25", CORPUS)
    queries = [f"town novel {n}" for n in range(400)]
    before = plain.search_many(queries, k=3)
    for rate, low, high in ((0, 0, 0), (0.25, 0.19, 0.31), (1, 1, 1)):
        tampered = make_retriever("distracting", CORPUS, rate=rate).search_many(queries, k=3)
        changed = sum(a != b for a, b in zip(before, tampered, strict=True)) / len(queries)
        assert low <= changed <= high


def test_a_search_depends_on_seed_and_query_alone() -> None:
    def found(seed: int) -> list[list[Passage]]:
        made = make_retriever("distracting", CORPUS, rate=1, seed=seed)
        return made.search_many([f"town novel {n}" for n in range(20)], k=3)

    assert found(1) == found(1)
    assert found(1) != found(2)
    alone = make_retriever("distracting", CORPUS, rate=1, seed=1).search("town novel 7", k=3)
    assert alone == found(1)[7]


def test_a_questions_own_passages_get_names_of_the_whole_corpus() -> None:
    whole = make_retriever("distracting", CORPUS, rate=1, kinds="false_shortcut", per_search=1)
    small = whole.restrict([3])
    (found,) = small.search("Harwick", k=1)
    assert found.pid in ("Harwick", "distractor-false_shortcut-Harwick")
    assert small.names == whole.names
