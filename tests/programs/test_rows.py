"""Rows that papers compare with: gold, memory, main_rag, self_ask, iter_retgen, hyde, search_o1."""

from typing import Any

import dspy
import pytest

from ragbench.context import current, use
from ragbench.errors import DataError
from ragbench.experiments.config import RunConfig, make_config
from ragbench.experiments.runs.context import build
from ragbench.programs import PROGRAMS
from ragbench.programs.core.question_state import Questions
from ragbench.programs.gold import GoldRAG
from ragbench.programs.hyde import HyDE
from ragbench.programs.iter_retgen import IterRetGen
from ragbench.programs.search_o1 import SearchO1
from ragbench.programs.self_ask import SelfAsk
from ragbench.programs.workflow.main_rag import MAINRAG
from ragbench.retrievers import make_retriever
from tests.programs.shelf import COUNTY, TOWN, ask, check, converse, rules, shelf, shown, step

AUTHOR = "Who wrote the novel Salt Road?"
BORN = "Where was Orla Venn born?"


def test_gold_reads_the_gold_passages_in_the_order_of_the_data_and_nothing_else() -> None:
    pids = ["Salt Road", "Orla Venn", "in no corpus"]
    gold = Questions({TOWN: dspy.Example(qid="q", gold_pids=pids)})
    replies: Any = {"AnswerFromContext": [{"answer": "Harwick"}]}
    sees, hides = ["[1] Salt Road |", "[2] Orla Venn |"], ["Tam Quill |"]
    with use(current().plus(gold)):
        prediction, _ = check(GoldRAG, replies, sees=sees, hides=hides, counts={"reads_gold": 1})
    assert prediction.in_context == ["Salt Road", "Orla Venn"]
    check(GoldRAG, replies, hides=["|"], counts={"reads_gold": 0})


def test_data_without_gold_passages_is_refused_and_memory_is_another_name_of_direct() -> None:
    given: dict[str, Any] = {"size": 100, "limit": 3, "lm": "openai/m@http://127.0.0.1:9/v1"}
    assert build(RunConfig(program="gold", **given)).program.name == "gold"
    like = build(RunConfig(program="vanilla", **given))
    for example in like.examples:
        example.gold_pids = []
    with pytest.raises(DataError, match="no question of synthetic has any"):
        build(RunConfig(program="gold", **given), like=like)
    assert make_config({"program": "memory"}).program == PROGRAMS.get("memory").name == "direct"


def test_main_rag_reads_the_passages_whose_answers_hold_best_first() -> None:
    stated = {"Orla Venn": "Harwick", "Tam Quill": "Eastmere", "Salt Road": "Orla Venn"}
    holds = {"Orla Venn": 0.9, "Tam Quill": 0.2, "Salt Road": 0.6}

    def answered(asked: Any) -> dict[str, str]:
        return {"answer": stated.get(asked.inputs["context"].split(" |")[0].split("] ")[-1], "")}

    def judged(asked: Any) -> dict[str, Any]:
        sure = holds[asked.inputs["passage"].split(" |")[0]]
        return {"holds": sure > 0.5, "confidence": max(sure, 1 - sure)}

    last: Any = {"AnswerFromContext": {"answer": "Harwick"}}
    script = rules(AnswerIfStated=answered, HoldsAnswer=judged, **last)
    for n, titles in ((0.0, ["Orla Venn", "Salt Road"]), (3.0, [*holds])):
        prediction, lm, _ = ask(MAINRAG(shelf(), n=n), script, COUNTY)
        assert len(lm.asked) == 5 + 3 + 1  # two passages give no answer, and are not judged
        read = shown(lm, "AnswerFromContext")["context"]
        assert all(title in read for title in titles)
        assert ("Tam Quill |" in read) == (n > 0)
        assert read.index("Orla Venn |") < read.index("Salt Road |")
    nothing = rules(AnswerIfStated={"answer": ""}, **last)
    prediction, lm, _ = ask(MAINRAG(shelf()), nothing, COUNTY)
    assert len(prediction.in_context) == 5  # where none gives an answer, all are read


def follow_up(question: str) -> dict[str, str]:
    return {"next_step": "follow_up", "follow_up": question, "answer": ""}


def settled(answer: str) -> dict[str, str]:
    return {"next_step": "answer", "follow_up": "", "answer": answer}


def test_self_ask_answers_follow_ups_and_then_the_question_from_these_answers() -> None:
    replies: Any = {
        "FollowUpStep": [follow_up(AUTHOR), follow_up(BORN), settled("Harwick")],
        "AnswerFollowUp": [{"answer": "Orla Venn"}, {"answer": "Harwick"}],
    }
    notes = [f"{AUTHOR} Orla Venn", f"{BORN} Harwick"]
    hides = ["Orla Venn | "]  # the loop sees answers, and no passage
    prediction, lm = check(SelfAsk, replies, searched=[AUTHOR, BORN], sees=notes, hides=hides)
    part = shown(lm, "AnswerFollowUp")
    assert part["question"].startswith(BORN)
    assert "Orla Venn | Orla Venn wrote" in part["context"]
    turns = [asked.inputs for asked in lm.asked if asked.signature == "FollowUpStep"]
    assert [inputs["follow_ups_left"][0] for inputs in turns] == ["5", "4", "3"]
    assert "Orla Venn" in prediction.in_context


def test_self_ask_says_what_was_not_found_and_never_asks_a_follow_up_twice() -> None:
    again = AUTHOR.upper()
    replies: Any = {
        "FollowUpStep": [follow_up(AUTHOR), follow_up(again)],
        "AnswerFollowUp": [{"answer": ""}],
        "SynthesizeAnswer": [{"answer": "Harwick"}],
    }
    more: Any = {"stop": "no_progress"}
    check(SelfAsk, replies, searched=[AUTHOR], sees=["Road? not found"], **more)
    endless: Any = {
        "FollowUpStep": [follow_up(AUTHOR), follow_up(BORN)],
        "AnswerFollowUp": [{"answer": "Orla Venn"}],
        "SynthesizeAnswer": [{"answer": "Harwick"}],
    }
    check(SelfAsk, endless, searched=[AUTHOR], stop="max_steps", max_follow_ups=1)


def test_iter_retgen_searches_with_its_last_generation_and_reads_what_that_finds_alone() -> None:
    first = {"reasoning": "By Tam Quill, a writer, who is of Eastmere.", "answer": "Tollen"}
    replies = {"AnswerFromContext": [first, {"reasoning": "So.", "answer": "Harwick"}]}
    searched = [TOWN, f"By Tam Quill, a writer, who is of Eastmere. Tollen {TOWN}"]
    _, lm = check(
        IterRetGen, replies, searched=searched, k=1, sees=["[1] Tam Quill |"], hides=["Orla Venn |"]
    )
    assert "[1] Orla Venn |" in shown(lm, "AnswerFromContext", 0)["context"]
    far = "Eastmere, a town in the county of Tollen"
    near = "Harwick, a town in the county of Dunmoor"
    flash = [{"answer": text} for text in (far, near, "Harwick")]
    searched = [TOWN, f"{TOWN} {far}", f"{TOWN} {near}"]
    prediction, _ = check(
        IterRetGen, {"AnswerFromContext": flash}, searched=searched, variant="flash", k=1
    )
    assert [one.observation for one in prediction.steps] == [far, near, "Harwick"]


def test_iter_retgen_ends_where_a_search_changes_nothing() -> None:
    replies = {"AnswerFromContext": [{"reasoning": "So.", "answer": "Harwick"}]}
    check(IterRetGen, replies, stop="no_progress", rounds=9, k=1)


MADE_UP = ["The caravan of Eastmere.", "Eastmere is in Tollen."]


def test_hyde_fuses_the_rankings_of_what_it_makes_up_and_of_the_question() -> None:
    replies: Any = {
        "WritePassage": [{"passage": text} for text in MADE_UP],
        "AnswerFromContext": [{"answer": "Harwick"}],
    }
    prediction, lm = check(HyDE, replies, n_passages=2, path=2, sees=["Eastmere |"])
    assert {search.query for search in prediction.searches} == {TOWN, *MADE_UP}
    assert [asked.request.config.temperature for asked in lm.asked] == [0.7, 0.7, 0.0]
    alone = {**replies, "WritePassage": [{"passage": " "}, {"passage": MADE_UP[0]}]}
    check(HyDE, alone, n_passages=2, include_original=False, searched=MADE_UP[:1])


def test_hyde_searches_dense_vectors_with_the_mean() -> None:
    dense = make_retriever("dense", shelf().corpus)
    replies: Any = {"WritePassage": {"passage": MADE_UP[1]}, "AnswerFromContext": {"answer": "x"}}
    prediction, _, _ = ask(HyDE(dense, n_passages=1, k=3), rules(**replies), COUNTY)
    [search] = prediction.searches
    texts = [COUNTY, MADE_UP[1]]
    scores = {passage.pid: 0.0 for passage in dense.corpus}
    for text in texts:
        for passage in dense.search(text, k=5):
            scores[passage.pid] += passage.score / len(texts)
    best = sorted(scores, key=lambda pid: -scores[pid])[:3]
    assert [pid for pid, _ in search.hits] == best
    assert all(abs(score - scores[pid]) < 1e-5 for pid, score in search.hits)


def turn(thought: str, query: str = "", answer: str = "") -> dict[str, str]:
    step = "answer" if answer else "search"
    return {"thought": thought, "next_step": step, "query": query, "answer": answer}


def test_search_o1_reasons_on_with_what_was_read_off_the_passages() -> None:
    replies: Any = {
        "ReasonStep": [
            turn("The author is needed.", "author of Salt Road"),
            turn("Again.", "Author of Salt Road?"),
            turn("Her birthplace is needed.", "Orla Venn birthplace"),
            turn("She was born in Harwick.", answer="Harwick"),
        ],
        "ReadForReasoning": [{"information": "Orla Venn wrote it."}, {"information": ""}],
    }
    sees = [
        "[search] author of Salt Road: Orla Venn wrote it.",
        "searched before",
        "birthplace: nothing helpful found",
    ]
    searched = ["author of Salt Road", "Orla Venn birthplace"]
    counts = {"repeated_query": 1}
    prediction, lm = check(
        SearchO1, replies, searched=searched, sees=sees, hides=["Orla Venn | "], counts=counts
    )
    read = shown(lm, "ReadForReasoning", 0)
    assert "The author is needed." in read["thoughts"]
    assert read["query"].startswith("author of Salt Road")
    assert read["question"].startswith(TOWN)
    assert step(prediction, "read").observation == "Orla Venn wrote it."
    assert "Orla Venn" in prediction.in_context


def test_search_o1_answers_from_its_reasoning_when_no_search_is_left() -> None:
    replies: Any = {
        "ReasonStep": [turn("One.", "Salt Road"), turn("Two.", "Harwick")],
        "SynthesizeAnswer": [{"answer": "Harwick"}],
    }
    more: Any = {"max_searches": 1, "variant": "no_reading", "stop": "max_steps"}
    sees = ["Two.", "Salt Road | Salt Road is a novel"]
    check(SearchO1, replies, searched=["Salt Road"], sees=sees, **more)
    prediction, _, _ = converse(
        SearchO1(shelf()), TOWN, ReasonStep=["?"], SynthesizeAnswer=[{"answer": "Harwick"}]
    )
    assert prediction.stop_reason == "parse_fallback"
