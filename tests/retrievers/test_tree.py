"""Summary trees: making, keeping and resuming one; the three searches by hand."""

import json
from itertools import pairwise
from pathlib import Path

import dspy
import numpy as np
import pytest

from ragbench.lms.adapters import make_adapter
from ragbench.retrievers.base import Corpus
from ragbench.retrievers.lm_index import SummaryTree, base
from ragbench.retrievers.lm_index.tree import Shape, group, hiro, traversal
from tests.fakes import Asked, Reply, ScriptedLM
from tests.retrievers.conftest import WordEmbedder, make_corpus

TOPICS = ("comet star moon sky", "bread flour oven salt", "river boat fish net")


@pytest.fixture(autouse=True)
def words(monkeypatch: pytest.MonkeyPatch, embedder: WordEmbedder, tmp_path: Path) -> WordEmbedder:
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path))
    monkeypatch.setattr(base, "make_embedder", lambda spec, api_base="": embedder)
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


# -- clusters


def blobs(n: int, *, seed: int = 3) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = np.eye(3, 16) * 5
    rows = [centres[i % 3] + rng.normal(0, 0.05, 16) for i in range(n)]
    return np.array(rows, dtype=np.float32)


def test_clusters_are_those_of_the_data_and_the_same_each_time() -> None:
    found = group(blobs(45), [10] * 45, max_tokens=3500)
    assert {row for rows in found for row in rows} == set(range(45))
    assert all(len({row % 3 for row in rows}) == 1 for rows in found)
    assert found == group(blobs(45), [10] * 45, max_tokens=3500)


def test_a_cluster_of_too_many_tokens_is_divided() -> None:
    same = np.ones((30, 16), dtype=np.float32)  # the mixture finds nothing to divide
    found = group(same, [100] * 30, max_tokens=1000)
    assert found == [list(range(s, s + 10)) for s in (0, 10, 20)]
    assert group(same[:2], [5000, 5000], max_tokens=1000) == [[0], [1]]


# -- making


def test_layers_are_summaries_of_the_layer_below() -> None:
    lm = ScriptedLM(sums_up)
    made = SummaryTree(topical(45), lm="scripted")
    with dspy.context(lm=lm, adapter=make_adapter("json", lm)):
        made.build()
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


# -- searching: leaves 0 to 4; 5 over 0 and 1, 6 over 1, 2 and 3, 7 over 4; 1 has two parents

SHAPE = Shape(
    layers=[[0, 1, 2, 3, 4], [5, 6, 7]], children=[(), (), (), (), (), (0, 1), (1, 2, 3), (4,)]
)
SCORES = np.array([0.70, 0.55, 0.62, 0.20, 0.90, 0.50, 0.60, 0.25], dtype=np.float32)


def test_traversal_goes_down_from_the_best_of_the_top() -> None:
    # Top: 6 and 5; their children 0, 1, 2, 3: 0 and 2. Leaf 4 is best, but below a poor summary.
    assert traversal(SCORES, SHAPE, k=2) == [6, 5, 0, 2]


def test_hiro_descends_while_similarity_rises() -> None:
    # 7 is not above 0.3, so 4 is never seen. From 6: 1 falls, 2 rises by 0.02, 3 fails, so 6 stays.
    # From 5: 0 rises by 0.2 and 1 by 0.05, so both take the place of 5.
    assert hiro(SCORES, SHAPE, selection=0.3, delta=0.015) == [0, 2, 6, 1]
    # Where one child is enough to replace its parent, 6 goes.
    less = hiro(SCORES, SHAPE, selection=0.3, delta=0.015, keep_parent="none_pass")
    assert less == [0, 2, 1]
    # A rise of 0.02 is not above 0.03: 6 has no good child and stays alone.
    steep = hiro(SCORES, SHAPE, selection=0.3, delta=0.03, keep_parent="none_pass")
    assert steep == [0, 6, 1]
    assert hiro(SCORES, SHAPE, selection=0.3, delta=0.5) == [6, 5]
    # Node 1 has two parents and is kept once.
    shared = np.array([0.7, 0.8, 0.7, 0.7, 0.1, 0.5, 0.5, 0.1], dtype=np.float32)
    assert hiro(shared, SHAPE, selection=0.3, delta=0.0) == [1, 0, 2, 3]
    # Without a root above the threshold it starts at the best; no child of it is above either.
    assert hiro(SCORES, SHAPE, selection=0.65, delta=0.015) == [6]
