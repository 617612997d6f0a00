"""Indexes made by an LM: replies kept and lost, storing; LinearRAG and trees by hand."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import dspy
import numpy as np
import pytest

import ragbench as rb
from ragbench.errors import LMSetupError, LMUnavailableError
from ragbench.ledger import open_ledger
from ragbench.lms.adapters import make_adapter
from ragbench.passages import Corpus, Passage
from ragbench.retrievers import store as index_store
from ragbench.retrievers.lm_index import SummaryTree
from ragbench.retrievers.lm_index.light import Extraction
from ragbench.retrievers.lm_index.linear import LinearIndex, by_pattern, in_text, sentences_of
from ragbench.retrievers.lm_index.replies import IndexLM
from ragbench.retrievers.lm_index.tree import Shape, group, hiro, traversal
from ragbench.retrievers.store import IndexStore
from ragbench.signatures import ExtractEntities
from ragbench.sqlite_cache import CachedRows
from tests.fake_server import FakeServer, Fault
from tests.fakes import Asked, Reply, ScriptedLM, overflowing, rate_limited
from tests.retrievers.conftest import make_corpus

pytestmark = pytest.mark.usefixtures("words")


def names(asked: Asked) -> Reply:
    """The capitalised words of the text."""
    return {"entities": by_pattern(shown(asked))}


def shown(asked: Asked) -> str:
    """The text, without the words of the adapter after it."""
    return asked.inputs["text"].partition("\n\n")[0]


def with_lm(script: Any = names, **settings: Any) -> tuple[ScriptedLM, Any]:
    lm = ScriptedLM(script, **settings)
    return lm, dspy.context(lm=lm, adapter=make_adapter("json", lm), num_threads=4)


# -- kept replies


def test_index_reply_is_requested_once_and_recorded_once(tmp_path: Path) -> None:
    lm, active = with_lm()
    cache = CachedRows(tmp_path / "replies.sqlite")
    with active, open_ledger() as ledger:
        first = IndexLM(cache).ask(ExtractEntities, text="Orla met Tam.")
        again = IndexLM(CachedRows(tmp_path / "replies.sqlite"))
        assert again.ask(ExtractEntities, text="Orla met Tam.") == first
    assert first.values == {"entities": ["Orla", "Tam"]}
    assert len(lm.asked) == len(ledger.calls) == 1
    assert again.calls == list(first.calls)  # what was paid for before counts too
    (call,) = first.calls
    assert (call.signature, call.role) == ("ExtractEntities", "extract")


def test_a_text_that_is_too_long_is_cut_and_counted() -> None:
    def narrow(asked: Asked) -> Reply:
        return overflowing() if len(shown(asked)) > 60 else names(asked)

    lm, active = with_lm(narrow)
    with active:
        reply = IndexLM(CachedRows(None)).ask(ExtractEntities, text="Orla met Tam. " * 20)
    assert (reply.shortened, reply.loss) == (True, "")
    assert len(reply.calls) == len(lm.asked) == 5  # 280, with a shorter reply, 140, 70, 35


def test_a_reply_that_is_cut_is_asked_again_larger_and_then_loses_its_last_item() -> None:
    room: list[int] = []

    def endless(asked: Asked) -> Reply:
        room.append(asked.request.config.max_tokens)
        return '{"entities": ["Orla", "' + "Tam " * 10_000

    store, (_, active) = CachedRows(None), with_lm(endless, cuts=True)
    with active:
        index_lm = IndexLM(store)
        reply = index_lm.ask(ExtractEntities, text="Orla met Tam.")
        assert reply.values == {"entities": ["Orla"]}
        assert index_lm.counts["cut_replies"] == 1
        IndexLM(store).ask(ExtractEntities, text="Orla met Tam.")  # not kept: asked again
    assert room == [4096, 8192] * 2


def test_calls_of_a_reply_that_never_comes_are_booked() -> None:
    def fails_larger(asked: Asked) -> Reply:
        return rate_limited() if asked.number > 1 else '{"entities": ["' + "Tam " * 10_000

    _, active = with_lm(fails_larger, cuts=True)
    with active, open_ledger() as ledger, pytest.raises(dspy.LMError):
        IndexLM(CachedRows(None)).ask(ExtractEntities, text="Orla met Tam.")
    assert [call.error for call in ledger.calls] == [None, "LMRateLimitError"]


# -- LinearRAG: what it ranks over a fictional world is in tests/conformance/parity


def test_bridging_goes_on_for_three_iterations() -> None:
    index = LinearIndex(make_corpus([]))
    index.sentences, index.entities = [[0], [0, 1, 2], [1], [2]], [[0, 1], [1, 2], [1, 3]]
    question, index.sentence_vectors = np.zeros(32), np.zeros((3, 32))
    question[0], index.sentence_vectors[:, 0] = 1, [0.8, 0.9, 0.7]
    index.embedder.embed = lambda texts: [question]  # type: ignore[assignment]
    # From 0 (1.0) by sentence 0 to 0 and 1 with 0.8; from 1 by its best unused sentence, 1, with
    # 0.72 to 1 and 2. Entity 0 has no unused sentence left.
    found = index.activated("", [(0, 1.0)], threshold=0.5)
    assert found.latest == {0: (0.8, 2), 1: (pytest.approx(0.72), 3), 2: (pytest.approx(0.72), 3)}
    assert found.weights == pytest.approx({0: 1.8, 1: 1.52, 2: 0.72})


def test_entities_by_pattern() -> None:
    assert by_pattern("In which county was the author of Salt Road born?") == ["Salt Road"]
    text = "The Bank of England met He-Man. She saw U.S. Steel and Émile Zola in 1898."
    assert by_pattern(text) == ["Bank of England", "He-Man", "U.S. Steel", "Émile Zola"]


SHELF = Corpus(
    (
        Passage("a", "Orla Venn", "Orla Venn wrote Salt Road in Harwick. She is a writer."),
        Passage("b", "Harwick", "Harwick is a town. It has no Mayor."),
        Passage("c", "Stone", "A stone lies on a beach."),
    )
)


def linear(corpus: Corpus = SHELF, script: Any = names) -> LinearIndex:
    _, active = with_lm(script)
    with active:
        return LinearIndex.of(corpus, lm="lm")


def test_passages_that_follow_each_other_are_joined_where_they_are_chunks() -> None:
    assert linear().names == ["Orla Venn", "Salt Road", "Harwick", "Mayor", "Stone"]
    stones = make_corpus(["stone one", "stone two", "stone three"], title=lambda i: "")
    assert len(linear(stones).edges) == 0
    index_store._OPEN.clear()
    assert linear(Corpus(stones.passages, view="chunk")).edges.tolist() == [[0, 1], [1, 2]]


def test_names_are_found_as_the_text_writes_them() -> None:
    assert in_text("ORLA venn", "It is Orla Venn.") == "Orla Venn"
    assert in_text("Tam", "It is Orla Venn.") == ""
    assert sentences_of(SHELF[1]) == ["Harwick Harwick is a town.", "It has no Mayor."]
    assert sentences_of(Passage("e", "Empty", "")) == ["Empty"]
    index = linear(script=lambda asked: {"entities": ["orla venn", "Nobody"]})
    assert index.names == ["Orla Venn"]
    assert index.facts()["entities_not_in_text"] == 5


def test_a_stored_index_is_mapped_and_gives_the_same(tmp_path: Path) -> None:
    corpus = make_corpus(f"Town {i} lies on River {i % 7}." for i in range(120))
    made = linear(corpus)
    (entry,) = IndexStore().entries()
    assert (entry.retriever, entry.facts["index_calls"]) == ("linear", 120)
    index_store._OPEN.clear()
    lm, active = with_lm(lambda asked: rate_limited())
    with active:
        again = LinearIndex.of(corpus, lm="lm")
    assert lm.asked == []
    assert isinstance(again.sentence_vectors, np.memmap)
    assert again.facts() == made.facts()
    shares = []
    for index in (made, again):
        found = index.activated("River 3", index.seeds(["River 3"]))
        shares.append(index.walked(found.weights, np.zeros(120), damping=0.5).tolist())
    assert shares[0] == shares[1]


@pytest.mark.parametrize(("told", "weight"), [(7, 7.0), (-3, 0.0), (1e308, 1e6), (None, 1.0)])
def test_the_strength_of_a_relation_is_a_finite_number(told: Any, weight: float) -> None:
    read = Extraction()
    read.add({"relations": [{"source": "A", "target": "B", "strength": told}]})
    assert read.relations == [("A", "B", "", weight, ())]


def test_build_if_the_server_fails_has_a_one_line_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with FakeServer(lambda hit: Fault("400")) as server:
        settings: dict[str, Any] = {"api_base": server.url, "limit": 1, "size": 100, "out": "run"}
        # The third prompt that is refused in the same words may come before the run stops.
        words = r"LMInvalidRequestError.*continues|different prompts"
        with pytest.raises((LMUnavailableError, LMSetupError), match=words) as error:
            rb.evaluate("hippo_rag", "synthetic", lm="hosted_vllm/x", **settings)
    assert "\n" not in str(error.value)


# -- summary trees


def sums_up(asked: Asked) -> Reply:
    """The first words of the texts."""
    texts = json.loads(asked.inputs["texts"])
    return {"summary": f"{len(texts)} texts of {' '.join(texts[0].split()[:4])}"}


def test_clusters_are_those_of_the_data_and_the_same_each_time() -> None:
    noise, centres = np.random.default_rng(3).normal(0, 0.05, (15, 16)), 5 * np.eye(3, 16)
    rows = (np.tile(centres, (5, 1)) + noise).astype(np.float32)
    found = group(rows, [10] * 15, max_tokens=3500)
    assert {row for rows in found for row in rows} == set(range(15))
    assert all(len({row % 3 for row in rows}) == 1 for rows in found)
    assert found == group(rows, [10] * 15, max_tokens=3500)


def test_a_cluster_of_too_many_tokens_is_divided() -> None:
    same = np.ones((30, 16), dtype=np.float32)  # the mixture finds nothing to divide
    found = group(same, [100] * 30, max_tokens=1000)
    assert found == [list(range(s, s + 10)) for s in (0, 10, 20)]
    assert group(same[:2], [5000, 5000], max_tokens=1000) == [[0], [1]]


def test_layers_are_summaries_of_the_layer_below() -> None:
    lm, topics = ScriptedLM(sums_up), ("comet star moon sky", "bread flour oven", "river boat net")
    texts = (f"{topics[i % 3]} {topics[i % 3]} n{i}" for i in range(45))
    made = SummaryTree(make_corpus(texts, title=lambda i: ""), lm="scripted")
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


# -- searching a tree: leaves 0 to 4; 5 over 0 and 1, 6 over 1, 2 and 3, 7 over 4; 1 has two parents

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
