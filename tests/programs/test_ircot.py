"""IRCoT's rounds, queries, limits and endings, by scripted conversations."""

import json
from typing import Any

import dspy
import pytest

from ragbench.programs.ircot import AllLeftOutError, IRCoT, ending
from ragbench.retrievers.base import Corpus, Passage, Retriever
from ragbench.retrievers.factory import make_retriever
from tests.programs.shelf import converse, shelf

QUESTION = "Where was the author of Salt Road born?"


def think(thought: str, answer: str = "", *, done: bool = False) -> dict[str, Any]:
    step = "answer" if done or answer else "search"
    return {"thought": thought, "next_step": step, "answer": answer}


def queries_of(prediction: Any) -> list[str]:
    return [search.query for search in prediction.searches]


def test_spec_searches_the_question_then_each_sentence() -> None:
    steps = [
        think("Salt Road is by O. Venn. It is long."),
        think("Orla Venn was born in Harwick.", "Harwick"),
    ]
    prediction, lm, _ = converse(IRCoT(shelf()), QUESTION, CoTStep=steps)
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "answered")
    assert queries_of(prediction) == [QUESTION, "Salt Road is by O. Venn."]  # one sentence
    assert lm.asked[0].inputs["context"] != "[]"
    assert lm.asked[1].inputs["thoughts"].startswith("1. Salt Road is by O. Venn.\n")
    from_memory = IRCoT(shelf(), initial_retrieval=False)
    prediction, lm, _ = converse(from_memory, QUESTION, CoTStep=steps)
    assert queries_of(prediction) == ["Salt Road is by O. Venn."]
    assert lm.asked[0].inputs["context"] == "[]"


NOVEL = think("Salt Road is a novel.")


@pytest.mark.parametrize(
    ("steps", "chain", "reason"),
    [
        ([NOVEL, think("Harwick is a town.")], 2, "max_steps"),
        ([think("It is unclear.", "Not stated in the passages", done=True)], 0, "answered"),
        ([NOVEL, think("Salt Road is a novel!")], 1, "no_progress"),
        ([think(QUESTION)], 0, "no_progress"),
        (["Hm."], 0, "parse_fallback"),
        ([NOVEL], 1, "budget"),
    ],
)
def test_a_chain_without_an_answer_is_asked_for_one_of_its_own(
    steps: list[Any], chain: int, reason: str
) -> None:
    prediction, lm, _ = converse(
        IRCoT(shelf(), max_steps=2, max_calls=2 if reason == "budget" else 50),
        QUESTION,
        CoTStep=steps,
        AnswerWithHints=[{"answer": "Harwick"}],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", reason)
    shown = [step["thought"] for step in steps[:chain]]
    assert json.loads(lm.asked[-1].inputs["notes"]) == shown


@pytest.mark.parametrize(
    ("step", "thought", "expected"),
    [
        ("search", "The answer is her birthplace.", (False, "")),
        ("answer", "The answer is her birthplace.", (True, "her birthplace")),
        ("", "So the answer is: Harwick.", (True, "Harwick")),
        ("", "The answer is not stated in the passages.", (False, "")),
    ],
)
def test_the_typed_step_decides_and_the_phrase_counts_without_it(
    step: str, thought: str, expected: tuple[bool, str]
) -> None:
    assert ending(dspy.Prediction(next_step=step, answer=""), thought) == expected


def test_a_repeated_sentence_that_comes_with_an_answer_ends_the_chain() -> None:
    settled = {"thought": "Salt Road is a novel!", "next_step": "search", "answer": "Orla"}
    prediction, _, _ = converse(IRCoT(shelf()), QUESTION, CoTStep=[NOVEL, settled])
    assert (prediction.answer, prediction.stop_reason) == ("Orla", "answered")


@pytest.mark.parametrize(("reply", "answer"), [({"answer": "Harwick"}, "Harwick"), ("?", "East")])
def test_paper_searches_with_facts_and_has_a_reader_that_sees_no_chain(
    reply: Any, answer: str
) -> None:
    prediction, lm, _ = converse(
        IRCoT(shelf(), variant="paper"),
        QUESTION,
        CoTStep=[
            think("Therefore it must be a town."),
            think("Salt Road is by Orla Venn."),
            think("Thus she was born where she grew up."),
            think("Orla Venn was born in Harwick.", "East"),
        ],
        AnswerFromContext=[reply],
    )
    asked, fact = "was the author of Salt Road born?", "Salt Road by Orla Venn."
    assert queries_of(prediction) == [asked, asked, fact, fact]  # a repeat costs nothing
    assert [search.cached for search in prediction.searches] == [False, True, False, True]
    assert prediction.answer == answer
    assert set(lm.asked[-1].inputs) == {"context", "question"}
    assert list(lm.asked[-1].fields) == ["reasoning", "answer"]


TEXTS = {
    "long": "novel " * 601,
    "shown in part": "novel " + "word " * 400,
    "twin one": "novel about a caravan in the north of the land " * 3,
    "twin two": "novel about a caravan in the north of the land " * 3,
    "last": "a novel that differs from all of the others here",
}


def searching(texts: dict[str, str], **settings: Any) -> Retriever:
    titles = {"twin one": "Twin", "twin two": "Twin"}
    passages = [Passage(p, titles.get(p, p), text.strip()) for p, text in texts.items()]
    return make_retriever("bm25", Corpus(passages, **settings))


@pytest.mark.parametrize("view", ["paragraph", "chunk"])
def test_paper_limits_paragraphs_by_words_number_and_likeness(view: str) -> None:
    prediction, lm, _ = converse(
        IRCoT(searching(TEXTS, view=view), variant="paper", k=5, max_passages=3),
        "novel",
        CoTStep=[think("Done.", "x")],
        AnswerFromContext=[{"answer": "x"}],
    )
    pids = [passage.pid for passage in prediction.passages]
    assert ("long" in pids) is (view == "chunk")  # a chunk has any length
    assert prediction.counts["passage_left_out"] == (view == "paragraph")
    assert len({"twin one", "twin two"} & set(pids)) == 1
    assert len(pids) == 3
    if view == "paragraph":
        assert lm.asked[-1].inputs["context"].count("word") == 349


def test_a_question_whose_every_passage_was_left_out_fails() -> None:
    program = IRCoT(searching({"long": TEXTS["long"]}), variant="paper")
    with pytest.raises(AllLeftOutError, match="all 1 passages found have more than 600 words"):
        converse(program, "novel", CoTStep=[think("Done.", "x")])


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
