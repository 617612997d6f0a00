"""Multi-query's queries, fusion and fall-back, by scripted conversations."""

from typing import Any

import pytest

from ragbench.programs.multi_query import MultiQueryRAG
from tests.programs.shelf import converse, shelf

QUESTION = "Where was the author of Salt Road born?"
ANSWER = [{"answer": "Harwick"}]


def queries_of(prediction: Any) -> list[str]:
    return [search.query for search in prediction.searches]


def test_searches_with_the_question_and_each_query_then_reads_once() -> None:
    prediction, lm, ledger = converse(
        MultiQueryRAG(shelf()),
        QUESTION,
        ExpandQueries=[{"queries": ["Orla Venn birthplace", "novel Salt Road", "Harwick"]}],
        AnswerFromContext=ANSWER,
    )
    assert prediction.answer == "Harwick"
    written = ["Orla Venn birthplace", "novel Salt Road", "Harwick"]
    assert queries_of(prediction) == [QUESTION, *written]
    assert [search.k for search in prediction.searches] == [3] * 4
    assert len(ledger.calls) == ledger.path.calls == 2
    assert lm.asked[0].request.config.temperature == 0.3
    assert lm.asked[1].request.config.temperature == 0.0


def test_queries_are_cleaned_and_counted_off() -> None:
    prediction, _, _ = converse(
        MultiQueryRAG(shelf(), n_queries=3, include_original=False),
        QUESTION,
        ExpandQueries=[{"queries": [" Harwick\n town ", "?", "harwick Town.", "Eastmere"]}],
        AnswerFromContext=ANSWER,
    )
    assert queries_of(prediction) == ["Harwick town"]


@pytest.mark.parametrize("include_original", [True, False])
def test_an_unreadable_reply_leaves_the_question_alone(include_original: bool) -> None:
    prediction, _, _ = converse(
        MultiQueryRAG(shelf(), include_original=include_original),
        QUESTION,
        ExpandQueries=["I cannot."],
        AnswerFromContext=ANSWER,
    )
    assert queries_of(prediction) == [QUESTION]
    assert prediction.counts["parse_fallback"] == 1


def test_passages_are_the_fused_ranking_that_the_reader_saw() -> None:
    prediction, lm, _ = converse(
        MultiQueryRAG(shelf(), max_passages=2),
        "Harwick",
        ExpandQueries=[{"queries": ["Eastmere town Tollen", "Eastmere", "Tollen"]}],
        AnswerFromContext=ANSWER,
    )
    # Eastmere leads three lists and Harwick one.
    assert prediction.passages[0].pid == "Eastmere"
    assert len(prediction.passages) == 2
    assert lm.asked[1].inputs["context"].index("Eastmere |") < 20
