"""Summary trees: making, keeping and resuming one; the three searches by hand."""

from __future__ import annotations

import json
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import dspy
import numpy as np
import pytest

from ragbench.ledger import open_ledger
from ragbench.lms.adapters.lenient import make_adapter
from ragbench.retrievers.base import Corpus
from ragbench.retrievers.store import IndexStore, index_key
from ragbench.retrievers.tree import index as tree_module
from ragbench.retrievers.tree.clusters import Clustering, group
from ragbench.retrievers.tree.index import SummaryTree
from ragbench.retrievers.tree.search import Shape, collapsed, hiro, hiro_reference, traversal
from tests.fakes import Asked, Reply, ScriptedLM, rate_limited
from tests.retrievers.conftest import WordEmbedder, make_corpus

TOPICS = ("comet star moon sky", "bread flour oven salt", "river boat fish net")


@pytest.fixture(autouse=True)
def words(monkeypatch: pytest.MonkeyPatch, embedder: WordEmbedder) -> WordEmbedder:
    monkeypatch.setattr(tree_module, "make_embedder", lambda spec, api_base="": embedder)
    return embedder


def topical(n: int) -> Corpus:
    """`n` texts, in turn of three topics, each with a word of its own."""
    return make_corpus(
        (f"{TOPICS[i % 3]} {TOPICS[i % 3]} n{i}" for i in range(n)), title=lambda i: ""
    )


def sums_up(asked: Asked) -> Reply:
    """The first words of the texts."""
    texts = json.loads(asked.inputs["texts"])
    return {"summary": f"{len(texts)} texts of {' '.join(texts[0].split()[:4])}"}


def build(
    corpus: Corpus, store: IndexStore | None = None, script: Any = sums_up, **settings: Any
) -> Any:
    """A tree of `corpus` and the LM that wrote it."""
    lm = ScriptedLM(script)
    made = SummaryTree(corpus, lm="scripted", **settings)
    with dspy.context(lm=lm, adapter=make_adapter("json", lm)):
        made.build(store)
    return made, lm


# -- clusters


def blobs(n: int, *, seed: int = 3) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = np.eye(3, 16) * 5
    rows = [centres[i % 3] + rng.normal(0, 0.05, 16) for i in range(n)]
    return np.array(rows, dtype=np.float32)


def test_clusters_are_those_of_the_data_and_the_same_each_time() -> None:
    found = group(blobs(45), [10] * 45, Clustering())
    assert {row for rows in found for row in rows} == set(range(45))
    assert all(len({row % 3 for row in rows}) == 1 for rows in found)
    assert found == group(blobs(45), [10] * 45, Clustering())


def test_a_cluster_of_too_many_tokens_is_divided() -> None:
    same = np.ones((30, 16), dtype=np.float32)  # the mixture finds nothing to divide
    found = group(same, [100] * 30, Clustering(max_tokens=1000))
    assert found == [list(range(s, s + 10)) for s in (0, 10, 20)]
    assert group(same[:2], [5000, 5000], Clustering(max_tokens=1000)) == [[0], [1]]


def test_few_rows_are_one_cluster() -> None:
    assert group(blobs(5), [1] * 5, Clustering()) == [[0, 1, 2, 3, 4]]


# -- making


def test_a_small_corpus_is_a_tree_of_one_layer_and_asks_nothing() -> None:
    made, lm = build(topical(11))
    assert (made.shape.layers, lm.asked) == ([list(range(11))], [])
    assert made.facts()["index_calls"] == 0


def test_one_node_and_none() -> None:
    one, _ = build(topical(1))
    assert [p.pid for p in one.search("comet star", k=5)] == ["p0"]
    none, _ = build(make_corpus([]))
    assert none.search("comet", k=5) == []
    assert none.shape.layer(-1) == []


def test_layers_are_summaries_of_the_layer_below() -> None:
    made, lm = build(topical(45))
    layers = made.shape.layers
    assert len(layers) >= 2
    assert len(layers[0]) == 45
    assert len(layers[-1]) <= 11
    for lower, upper in pairwise(layers):
        below = {child for node in upper for child in made.shape.children[node]}
        assert below == set(lower)  # no node drops out of the tree
    assert len(lm.asked) == sum(map(len, layers[1:])) == made.facts()["index_calls"]
    assert {asked.signature for asked in lm.asked} == {"Summarize"}
    top = made.passage(layers[1][0])
    assert "texts of" in top.text
    assert made.node(top.pid) == layers[1][0]


def test_the_calls_are_filed_where_the_tree_is_made_and_never_again(store: IndexStore) -> None:
    with open_ledger() as ledger:
        made, lm = build(topical(30), store)
    assert ledger.as_if.calls == len(lm.asked) == made.facts()["index_calls"] > 0
    assert made.facts()["index_tokens"] == ledger.as_if.tokens
    with open_ledger() as ledger:
        again, _ = build(topical(30), store)
    assert ledger.calls == []
    assert again.facts() == made.facts()


def test_stored_with_its_cost_and_loaded_without_a_call(store: IndexStore) -> None:
    made, _ = build(topical(30), store)
    again, lm = build(topical(30), store)
    assert lm.asked == []
    assert again.summaries == made.summaries
    assert again.facts() == made.facts()
    assert again.search("river boat", k=4) == made.search("river boat", k=4)
    (entry,) = store.entries()
    assert entry.facts["index_calls"] == made.facts()["index_calls"]
    lines = (store.root / entry.key / "calls.jsonl").read_text().splitlines()
    assert sum(json.loads(line)["kind"] == "lm" for line in lines) == entry.facts["index_calls"]
    assert list(store.root.glob("*.summaries.jsonl")) == []


def test_another_lm_makes_another_tree(store: IndexStore) -> None:
    build(topical(30), store)
    other = SummaryTree(topical(30), lm="another")
    assert index_key(other) not in {entry.key for entry in store.entries()}


@pytest.mark.parametrize("damage", ["", "torn", "changed"])
def test_an_interrupted_tree_goes_on_where_it_stopped(store: IndexStore, damage: str) -> None:
    whole, lm = build(topical(45))
    needed = len(lm.asked)
    lock, served = threading.Lock(), 0

    def down_after_two(asked: Asked) -> Reply:
        nonlocal served
        with lock:
            served += 1
            return sums_up(asked) if served <= 2 else rate_limited()

    with pytest.raises(dspy.LMError):
        build(topical(45), store, down_after_two)
    (journal,) = store.root.glob("*.summaries.jsonl")
    lines = journal.read_text()
    if damage == "torn":
        journal.write_text(lines + '0123456789abcdef {"key": "half a li')
    elif damage == "changed":
        journal.write_text(lines.replace('"text": "', '"text": "not ', 1))
    with open_ledger() as ledger:
        made, lm = build(topical(45), store)
    assert ledger.as_if.calls == len(lm.asked) == needed - 2 + (damage == "changed")
    assert made.summaries == whole.summaries
    assert made.facts()["index_calls"] == needed  # those paid for before count too


def test_an_unreadable_summary_is_the_texts_cut_short_and_counted() -> None:
    made, _ = build(topical(30), script=lambda asked: "I would rather not.", summary_words=5)
    assert made.facts()["unreadable_summaries"] == len(made.summaries) > 0
    assert all(len(summary.text.split()) == 5 for summary in made.summaries)


def test_max_layers_and_progress() -> None:
    seen: list[tuple[int, int]] = []
    lm = ScriptedLM(sums_up)
    made = SummaryTree(topical(45), max_layers=1, top_size=1)
    with dspy.context(lm=lm, adapter=make_adapter("json", lm)):
        made.build(progress=lambda done, total: seen.append((done, total)))
    assert len(made.shape.layers) == 2
    n = len(made.summaries)
    assert seen == [(i, n) for i in range(1, n + 1)]
    flat, lm = build(topical(45), max_layers=0)
    assert (flat.summaries, lm.asked) == ([], [])


def test_of_gives_one_tree_to_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path))
    lm = ScriptedLM(sums_up)
    with dspy.context(lm=lm, adapter=make_adapter("json", lm)):
        trees = [SummaryTree.of(topical(31), lm="of") for _ in range(2)]
    assert trees[0] is trees[1]
    assert len(lm.asked) == len(trees[0].summaries)
    assert len(list((tmp_path / "indexes").glob("tree-*/manifest.json"))) == 1


# -- searching: leaves 0 to 4; 5 over 0 and 1, 6 over 1, 2 and 3, 7 over 4; 1 has two parents

SHAPE = Shape(
    layers=[[0, 1, 2, 3, 4], [5, 6, 7]], children=[(), (), (), (), (), (0, 1), (1, 2, 3), (4,)]
)
SCORES = np.array([0.70, 0.55, 0.62, 0.20, 0.90, 0.50, 0.60, 0.25], dtype=np.float32)


def test_collapsed_ranks_all_layers_together() -> None:
    assert collapsed(SCORES, k=4).nodes == (4, 0, 2, 6)


def test_traversal_goes_down_from_the_best_of_the_top() -> None:
    # Top: 6 and 5; their children 0, 1, 2, 3: 0 and 2. Leaf 4 is best, but below a poor summary.
    assert traversal(SCORES, SHAPE, k=2).nodes == (6, 5, 0, 2)
    assert traversal(SCORES, SHAPE, k=2, start_layer=0).nodes == (4, 0)


def test_hiro_descends_while_similarity_rises() -> None:
    # 7 is not above 0.3, so 4 is never seen. From 6: 1 falls, 2 rises by 0.02, 3 fails, so 6 stays.
    # From 5: 0 rises by 0.2 and 1 by 0.05, so both take the place of 5.
    found = hiro(SCORES, SHAPE, selection=0.3, delta=0.015)
    assert (found.nodes, found.empty) == ((0, 2, 6, 1), False)
    # Where one child is enough to replace its parent, 6 goes.
    less = hiro(SCORES, SHAPE, selection=0.3, delta=0.015, keep_parent="none_pass")
    assert less.nodes == (0, 2, 1)
    # A rise of 0.02 is not above 0.03: 6 has no good child and stays alone.
    steep = hiro(SCORES, SHAPE, selection=0.3, delta=0.03, keep_parent="none_pass")
    assert steep.nodes == (0, 6, 1)
    assert hiro(SCORES, SHAPE, selection=0.3, delta=0.5).nodes == (6, 5)


def test_hiro_keeps_a_node_of_several_parents_once() -> None:
    scores = np.array([0.7, 0.8, 0.7, 0.7, 0.1, 0.5, 0.5, 0.1], dtype=np.float32)
    found = hiro(scores, SHAPE, selection=0.3, delta=0.0)
    assert found.nodes == (1, 0, 2, 3)


def test_hiro_without_a_root_above_the_threshold_starts_at_the_best() -> None:
    found = hiro(SCORES, SHAPE, selection=0.65, delta=0.015)
    assert found.empty
    assert found.nodes == (6,)  # none of its children is above 0.65 either


def test_hiro_from_the_leaves_is_a_threshold() -> None:
    found = hiro(SCORES, SHAPE, selection=0.6, delta=0.0, start_layer=0)
    assert found.nodes == (4, 0, 2)


def test_the_reference_keeps_dissimilar_parents_and_no_leaf() -> None:
    # Distances: 5 0.50, 6 0.40, 7 0.75; leaves 0.30, 0.45, 0.38, 0.80, 0.10.
    # 5 fails with both children, 6 with 2 only (1 rises by 0.05, 3 by 0.40), 7 with 4.
    found = hiro_reference(SCORES, SHAPE, selection=0.3, delta=0.015)
    assert found.nodes == (5, 6, 7)
    # A chain that improves down to the leaves is kept by nobody.
    chain = Shape(layers=[[0], [1]], children=[(), (0,)])
    rising = np.array([0.1, 0.5], dtype=np.float32)  # distances 0.9 and 0.5
    assert hiro_reference(rising, chain, selection=0.3, delta=0.015).nodes == ()
    assert hiro_reference(rising, chain, selection=0.3, delta=0.015).empty
    assert hiro(rising, chain, selection=0.3, delta=0.015).nodes == (1,)


def test_a_tree_of_one_node() -> None:
    shape = Shape(layers=[[0]], children=[()])
    score = np.array([0.5], dtype=np.float32)
    assert collapsed(score, k=3).nodes == traversal(score, shape, k=3).nodes == (0,)
    assert hiro(score, shape, selection=0.3, delta=0.1).nodes == (0,)
    assert hiro_reference(score, shape, selection=0.3, delta=0.1).nodes == ()
