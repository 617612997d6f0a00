"""IRCoT's rounds, queries, limits and endings, by scripted conversations."""

from __future__ import annotations

import json
from typing import Any

from ragbench.programs.core.texts import first_sentence
from ragbench.programs.ircot import IRCoT
from ragbench.retrievers.base import Corpus, Passage
from ragbench.retrievers.factory import make_retriever
from tests.programs.shelf import converse, shelf

QUESTION = "Where was the author of Salt Road born?"


def think(thought: str, answer: str = "", *, done: bool = False) -> dict[str, Any]:
    step = "answer" if done or answer else "search"
    return {"thought": thought, "next_step": step, "answer": answer}


def queries_of(prediction: Any) -> list[str]:
    return [search.query for search in prediction.searches]


def test_seed_searches_the_question_then_each_sentence() -> None:
    prediction, lm, _ = converse(
        IRCoT(shelf()),
        QUESTION,
        CoTStep=[
            think("Salt Road is by Orla Venn."),
            think("Orla Venn was born in Harwick.", "Harwick"),
        ],
    )
    assert queries_of(prediction) == [QUESTION, "Salt Road is by Orla Venn."]
    assert lm.asked[0].inputs["context"] != "[]"


def test_without_a_first_search_the_first_sentence_comes_from_memory() -> None:
    prediction, lm, _ = converse(
        IRCoT(shelf(), initial_retrieval=False),
        QUESTION,
        CoTStep=[
            think("Salt Road is by Orla Venn."),
            think("Orla Venn was born in Harwick.", "Harwick"),
        ],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "answered")
    assert queries_of(prediction) == ["Salt Road is by Orla Venn."]
    assert lm.asked[0].inputs["context"] == "[]"
    assert "Orla Venn was born" not in lm.asked[1].inputs["thoughts"]
    assert "Salt Road is by Orla Venn." in lm.asked[1].inputs["thoughts"]
    assert [step.action for step in prediction.steps] == ["think", "think"]


def test_only_the_first_new_sentence_of_a_thought_is_kept() -> None:
    prediction, _, _ = converse(
        IRCoT(shelf()),
        QUESTION,
        CoTStep=[
            think("It is by O. Venn. She was born in Eastmere."),
            think("She was born there.", "Harwick"),
        ],
    )
    assert prediction.steps[0].thought == "It is by O. Venn."


def test_first_sentence_is_not_ended_by_initials() -> None:
    assert first_sentence("J. R. Smith won. He left.") == "J. R. Smith won."
    assert first_sentence("No end mark") == "No end mark"


def test_at_the_limit_the_reader_answers_from_the_passages() -> None:
    prediction, lm, _ = converse(
        IRCoT(shelf(), max_steps=2),
        QUESTION,
        CoTStep=[think("Salt Road is a novel."), think("Harwick is a town.")],
        AnswerFromContext=[{"answer": "Harwick"}],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "max_steps")
    assert set(lm.asked[-1].inputs) == {"context", "question"}
    assert list(lm.asked[-1].fields) == ["reasoning", "answer"]
    assert len(prediction.searches) == 2


def test_done_without_an_answer_ends_in_a_forced_one() -> None:
    prediction, _, _ = converse(
        IRCoT(shelf(), initial_retrieval=False),
        QUESTION,
        CoTStep=[think("It is clear.", done=True)],
        AnswerFromContext=[{"answer": "Harwick"}],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "answered")
    assert queries_of(prediction) == [QUESTION]  # nothing was searched before


def test_the_typed_step_decides_and_the_phrase_counts_without_it() -> None:
    prediction, _, _ = converse(
        IRCoT(shelf()),
        QUESTION,
        CoTStep=[
            think("The answer is not stated in the passages about Salt Road."),
            think("The answer is the birthplace of Orla Venn."),
            {"thought": "So the answer is: Harwick.", "answer": ""},
        ],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "answered")
    assert len(prediction.searches) == 3
    assert prediction.counts["partial_reply"] == 1


def test_a_refusal_is_no_answer() -> None:
    prediction, _, _ = converse(
        IRCoT(shelf()),
        QUESTION,
        CoTStep=[think("It is unclear.", "Not stated in the passages", done=True)],
        AnswerFromContext=[{"answer": "Harwick"}],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "answered")


def test_a_search_step_without_an_answer_goes_on() -> None:
    prediction, _, _ = converse(
        IRCoT(shelf()),
        QUESTION,
        CoTStep=[
            {"thought": "Salt Road is by Orla Venn.", "next_step": "search"},
            think("Orla Venn was born in Harwick.", "Harwick"),
        ],
    )
    assert (prediction.answer, prediction.counts["partial_reply"]) == ("Harwick", 1)


def test_a_repeated_sentence_is_asked_for_again_once_then_no_progress() -> None:
    again = think("Salt Road is a novel!")
    prediction, lm, _ = converse(
        IRCoT(shelf()),
        QUESTION,
        CoTStep=[think("Salt Road is a novel."), again, again],
        AnswerFromContext=[{"answer": "Harwick"}],
    )
    assert prediction.stop_reason == "no_progress"
    assert prediction.counts["resampled"] == 1
    assert "1. Salt Road is a novel." in lm.asked[1].inputs["thoughts"]
    assert "write something else: Salt Road is a novel!" in lm.asked[2].inputs["thoughts"]
    assert [asked.request.config.temperature for asked in lm.asked[:3]] == [0.0, 0.0, 0.7]


def test_a_repeated_sentence_that_comes_with_an_answer_ends_the_chain() -> None:
    """Small models name the step "search" beside an answer; two more calls are saved."""
    settled = {
        "thought": "Salt Road is by Orla Venn!",
        "next_step": "search",
        "answer": "Orla Venn",
    }
    prediction, lm, _ = converse(
        IRCoT(shelf()), QUESTION, CoTStep=[think("Salt Road is by Orla Venn."), settled]
    )
    assert (prediction.answer, prediction.stop_reason) == ("Orla Venn", "answered")
    assert len(lm.asked) == 2
    assert "resampled" not in prediction.counts


def test_the_question_itself_is_no_thought() -> None:
    prediction, _, _ = converse(
        IRCoT(shelf()),
        QUESTION,
        CoTStep=[think(QUESTION), think("Salt Road is by Orla Venn.", "Orla Venn")],
    )
    assert (prediction.answer, prediction.counts["resampled"]) == ("Orla Venn", 1)


def test_an_unreadable_first_sentence_searches_the_question() -> None:
    prediction, lm, _ = converse(
        IRCoT(shelf(), initial_retrieval=False),
        QUESTION,
        CoTStep=["Hm."],
        AnswerFromContext=[{"answer": "Harwick"}],
    )
    assert prediction.stop_reason == "parse_fallback"
    assert queries_of(prediction) == [QUESTION]
    assert "Salt Road" in lm.asked[-1].inputs["context"]


def test_paper_skips_inferences_and_question_words_in_queries() -> None:
    prediction, _, _ = converse(
        IRCoT(shelf(), variant="paper"),
        QUESTION,
        CoTStep=[
            think("Therefore it must be a town."),
            think("Salt Road is by Orla Venn."),
            think("Thus she was born where she grew up."),
            think("Then 3 + 4 = 7 of them."),
            think("Orla Venn was born in Harwick.", "Harwick"),
        ],
        AnswerFromContext=[{"answer": "Harwick"}],
    )
    stripped = "was the author of Salt Road born?"
    assert queries_of(prediction) == [
        stripped,
        stripped,  # no sentence but inferences yet: the question again, at no cost
        "Salt Road by Orla Venn.",
        "Salt Road by Orla Venn.",
        "Salt Road by Orla Venn.",
    ]
    assert [search.cached for search in prediction.searches] == [False, True, False, True, True]


def test_paper_reads_the_passages_without_the_chain() -> None:
    prediction, lm, _ = converse(
        IRCoT(shelf(), variant="paper"),
        QUESTION,
        CoTStep=[think("She was born in Harwick.", "Eastmere")],
        AnswerFromContext=[{"answer": "Harwick"}],
    )
    assert prediction.answer == "Harwick"
    assert set(lm.asked[-1].inputs) == {"context", "question"}
    assert list(lm.asked[-1].fields) == ["reasoning", "answer"]


def test_paper_falls_back_to_the_chain_where_the_reader_says_nothing() -> None:
    prediction, _, _ = converse(
        IRCoT(shelf(), variant="paper"),
        QUESTION,
        CoTStep=[think("She was born in Harwick.", "Harwick")],
        AnswerFromContext=["?"],
    )
    assert prediction.answer == "Harwick"


def test_paper_limits_passages_by_words_number_and_likeness() -> None:
    texts = {
        "long": "novel " * 601,
        "shown in part": "novel " + "word " * 400,
        "twin one": "novel about a caravan in the north of the land " * 3,
        "twin two": "novel about a caravan in the north of the land " * 3,
        "last": "a novel that differs from all of the others here",
    }
    titles = {"twin one": "Twin", "twin two": "Twin"}
    corpus = Corpus([Passage(p, titles.get(p, p), text.strip()) for p, text in texts.items()])
    prediction, lm, _ = converse(
        IRCoT(make_retriever("bm25", corpus), variant="paper", k=5, max_passages=3),
        "novel",
        CoTStep=[think("Done.", "x")],
        AnswerFromContext=[{"answer": "x"}],
    )
    pids = [passage.pid for passage in prediction.passages]
    assert "long" not in pids
    assert len({"twin one", "twin two"} & set(pids)) == 1
    assert len(pids) == 3
    assert lm.asked[-1].inputs["context"].count("word") == 349


def test_flash_ranks_by_best_score_and_shows_the_best_last() -> None:
    prediction, lm, _ = converse(
        IRCoT(shelf(), variant="flash"),
        "Salt Road",
        CoTStep=[think("Tam Quill is from Eastmere."), think("Done.", "Eastmere")],
    )
    best: dict[str, float] = {}
    for search in prediction.searches:
        for pid, score in search.hits:
            best[pid] = max(score, best.get(pid, score))
    ranked = [passage.pid for passage in prediction.passages]
    assert ranked == sorted(ranked, key=lambda pid: -best[pid])
    assert ranked[0] == "Tam Quill"
    shown = json.loads(lm.asked[1].inputs["context"])
    assert [line.split("] ")[1].split(" | ")[0] for line in shown] == ranked[::-1]
