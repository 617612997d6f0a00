"""Misleading passages: what each kind is, where they are put, and what the draw depends on."""

import pytest

from ragbench.retrievers import Corpus, Passage, make_retriever
from tests.programs.shelf import TEXTS

CORPUS = Corpus([Passage(title, title, text) for title, text in TEXTS.items()])
QUERY = "novel Salt Road by Orla Venn"


def misled(kind: str, query: str, *passages: Passage) -> tuple[Passage | None, list[Passage]]:
    """What one search over `passages` is given beside its hits."""
    corpus = Corpus([*passages, Passage("donor", "Ada Brook", "About a brook.")])
    settings = {"rate": 1, "per_search": 1, "kinds": kind}
    made = make_retriever("distracting", corpus, **settings)
    whole = make_retriever("bm25", corpus).search(query, k=1)
    for number in range(20):  # the made-up passage may be the one that drops out
        found = made.presented(f"{query}{' ' * number}", [*whole, *whole])
        put = [p for p in found if p.pid.startswith("distractor-")]
        if put:
            return put[0], [p for p in found if p not in put]
    return None, whole


@pytest.mark.parametrize(
    ("kind", "text", "title", "begins"),
    [
        ("look_alike", "Harwick is in Dunmoor.", "Harwick", "Harwick is in Ada Brook."),
        ("look_alike", "nothing to change here, harwick", "Harwick", ""),
        ("look_alike", "It has 900 people in Harwick.", "Harwick", "It has 90"),
        ("false_shortcut", "Harwick lies there.", "Harwick", "Where is Harwick: Ada Brook. No"),
        ("split_evidence", "It has a Mayor. It is Harwick.", "", "It is Harwick."),
        ("split_evidence", "One sentence of Harwick.", "", ""),
        ("subjective", "A town. Harwick is in Dunmoor.", "Harwick",
         "As many people see it: Harwick is in Ada Brook. Whoever"),
        ("neutral", "Harwick lies there.", "Ada Brook", "About a brook."),
    ],
)  # fmt: skip
def test_what_each_kind_is(kind: str, text: str, title: str, begins: str) -> None:
    made, kept = misled(kind, "Where is Harwick?", Passage("1", "Harwick", text))
    if not begins:
        assert made is None
        return
    assert made is not None
    assert (made.title, made.text.startswith(begins)) == (title, True), made.text
    assert all(p.pid == "1" for p in kept)  # under its own pid, as gold passages are found
    if kind == "split_evidence":
        assert any(p.text == "It has a Mayor." for p in kept)


@pytest.mark.parametrize(
    "kind", ["look_alike", "false_shortcut", "split_evidence", "subjective", "neutral"]
)
def test_each_kind_takes_places_of_hits_and_leaves_their_scores(kind: str) -> None:
    settings = {"rate": 1, "per_search": 1, "kinds": kind}
    plain = make_retriever("bm25", CORPUS).search(QUERY, k=3)
    found = make_retriever("distracting", CORPUS, **settings).search(QUERY, k=3)
    assert [p.score for p in found] == [p.score for p in plain]
    assert len([p for p in found if p.pid.startswith("distractor-")]) <= 1
    assert {p.text for p in found} != {p.text for p in plain}


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
