"""The programs of a call or two: direct, vanilla, multi_query, adaptive_rag."""

from typing import Any

import pytest

from ragbench.errors import ConfigError
from ragbench.programs import AdaptiveRAG, DirectRAG, MultiQueryRAG, VanillaRAG
from ragbench.retrievers.factory import make_retriever
from tests.fakes import never_parses
from tests.programs.shelf import TOWN, ask, check, shelf

HARWICK = {"reasoning": "So.", "answer": " Harwick "}


def test_direct_never_searches() -> None:
    _, lm = check(DirectRAG, {"DirectAnswer": [HARWICK]}, searched=[])
    assert "context" not in lm.asked[0].inputs


@pytest.mark.parametrize("reader", ["predict", "cot"])
def test_vanilla_searches_with_the_question_and_reads_numbered_passages(reader: str) -> None:
    sees = ["[1] Orla Venn | ", "[2] Salt Road | Salt Road is a novel"]
    read = {"AnswerFromContext": [HARWICK]}
    prediction, lm = check(VanillaRAG, read, searched=[TOWN], sees=sees, k=2, reader=reader)
    assert [s.k for s in prediction.searches] == [2]
    assert list(lm.asked[0].fields) == ["reasoning"] * (reader == "cot") + ["answer"]


def test_naive_rag_refuses_a_retriever_that_does_not_search_vectors() -> None:
    with pytest.raises(ConfigError, match="the retriever is bm25; use --retriever dense") as error:
        VanillaRAG(shelf(), variant="naive_rag").prepare()
    assert "\n" not in str(error.value)
    VanillaRAG(make_retriever("dense", shelf().corpus), variant="naive_rag").prepare()
    VanillaRAG(shelf()).prepare()
    misled = make_retriever("distracting", shelf().corpus, inner="dense")
    VanillaRAG(misled, variant="naive_rag").prepare()


def written(*texts: str) -> dict[str, Any]:
    return {"ExpandQueries": [{"queries": list(texts)}], "AnswerFromContext": [HARWICK]}


def test_multi_query_searches_with_the_question_and_each_query_then_reads_once() -> None:
    texts = ["Orla Venn birthplace", "novel Salt Road", "Harwick"]
    prediction, lm = check(MultiQueryRAG, written(*texts), searched=[TOWN, *texts], path=2)
    assert [search.k for search in prediction.searches] == [3] * 4
    assert [asked.request.config.temperature for asked in lm.asked] == [0.3, 0.0]


def test_multi_query_reads_the_fused_ranking() -> None:
    # Eastmere leads three lists and Harwick one.
    replies = written("Eastmere town Tollen", "Eastmere", "Tollen")
    prediction, _ = check(
        MultiQueryRAG, replies, question="Harwick", sees=["[1] Eastmere |"], max_passages=2
    )
    assert [prediction.passages[0].pid, len(prediction.passages)] == ["Eastmere", 2]


THOUGHT = {"thought": "Salt Road is by Orla Venn.", "next_step": "search", "answer": ""}
DONE = {"thought": "She was born in Harwick.", "next_step": "answer", "answer": "Harwick"}


@pytest.mark.parametrize(
    ("effort", "replies", "stop", "searches"),
    [
        ("none", {"DirectAnswer": [HARWICK]}, "direct", []),
        ("single", {"AnswerFromContext": [HARWICK]}, "answered", [6]),
        ("multi", {"CoTStep": [THOUGHT, DONE]}, "answered", [3, 3]),  # and no second reader
    ],
)
@pytest.mark.parametrize("asked", [True, False])
def test_adaptive_rag_searches_by_the_effort(
    effort: str, replies: Any, stop: str, searches: list[int], asked: bool
) -> None:
    choice = {"QuestionComplexity": [{"effort": effort}]} if asked else {}
    knobs = {} if asked else {"route": effort}
    prediction, _ = check(AdaptiveRAG, {**choice, **replies}, stop=stop, **knobs)
    assert [s.k for s in prediction.searches] == searches


def test_adaptive_rag_has_the_published_k_and_takes_the_loop_if_unreadable() -> None:
    ways = [AdaptiveRAG(shelf(), variant=variant).knobs for variant in ("gpt", "flan")]
    assert [(knobs.k, knobs.loop_k) for knobs in ways] == [(6, 3), (15, 6)]
    prediction, _, _ = ask(AdaptiveRAG(shelf()), never_parses, TOWN)
    assert prediction.steps[0].observation == "multi"
