"""The two baselines of one call."""

import pytest

from ragbench.errors import ConfigError
from ragbench.programs.direct import DirectRAG
from ragbench.programs.vanilla import VanillaRAG
from ragbench.retrievers.factory import make_retriever
from tests.programs.shelf import converse, shelf

QUESTION = "Who wrote Salt Road?"


def test_vanilla_searches_with_the_question_and_reads_numbered_passages() -> None:
    prediction, lm, ledger = converse(
        VanillaRAG(shelf(), k=2), QUESTION, AnswerFromContext=[{"answer": " Orla Venn "}]
    )
    assert prediction.answer == "Orla Venn"
    assert prediction.stop_reason == "answered"
    assert [(s.query, s.k) for s in prediction.searches] == [(QUESTION, 2)]
    assert len(prediction.passages) == 2
    assert "[2] Salt Road | Salt Road is a novel" in lm.asked[0].inputs["context"]
    assert ledger.path.calls == 1


def test_vanilla_with_reader_cot_reasons_first() -> None:
    prediction, lm, _ = converse(
        VanillaRAG(shelf(), reader="cot"), QUESTION, AnswerFromContext=[{"answer": "Orla Venn"}]
    )
    assert list(lm.asked[0].fields) == ["reasoning", "answer"]
    assert prediction.steps[0].thought == "because"


def test_direct_never_searches() -> None:
    prediction, lm, _ = converse(
        DirectRAG(shelf()), QUESTION, DirectAnswer=[{"answer": "Orla Venn"}]
    )
    assert prediction.answer == "Orla Venn"
    assert prediction.searches == []
    assert "context" not in lm.asked[0].inputs


def test_naive_rag_refuses_a_retriever_that_does_not_search_vectors() -> None:
    with pytest.raises(ConfigError, match="the retriever is bm25; use --retriever dense") as error:
        VanillaRAG(shelf(), variant="naive_rag").prepare()
    assert "\n" not in str(error.value)
    VanillaRAG(make_retriever("dense", shelf().corpus), variant="naive_rag").prepare()
    VanillaRAG(shelf()).prepare()
    misled = make_retriever("distracting", shelf().corpus, inner="dense")
    VanillaRAG(misled, variant="naive_rag").prepare()
