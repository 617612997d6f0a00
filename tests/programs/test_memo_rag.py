"""MemoRAG's gists, clues and surrogate questions, by scripted conversations."""

import json

import dspy

from ragbench.ledger import open_ledger
from ragbench.lms.adapters.lenient import make_adapter
from ragbench.programs.workflow.memo_rag import MemoRAG
from ragbench.retrievers.lm_index import GistIndex
from tests.fakes import Asked, Reply, ScriptedLM, never_parses
from tests.programs.shelf import ask, shelf

QUESTION = "In which county was the author of Salt Road born?"


def script(asked: Asked) -> Reply:
    if asked.signature == "Summarize":
        return {"summary": "Gist: " + json.loads(asked.inputs["texts"])[0][:40]}
    if asked.signature == "RecallClues":
        return {"clues": ["Harwick is a town in Dunmoor", "too short"]}
    if asked.signature == "SurrogateQuestions":
        return {"questions": ["Who wrote Salt Road?", "who wrote salt road"]}
    return {"answer": "Dunmoor"}


def gists(texts_tokens: int, reply: object = script) -> GistIndex:
    lm = ScriptedLM(reply)  # type: ignore[arg-type]
    with dspy.context(lm=lm, adapter=make_adapter("json", lm)), open_ledger():
        return GistIndex.of(shelf().corpus, stretch_tokens=texts_tokens)


def test_a_gist_is_of_consecutive_passages_that_fit() -> None:
    assert len(gists(10_000).gists) == 1
    each = gists(50)
    assert 1 < len(each.gists) < len(each.corpus)
    assert each.gists[0].startswith("Gist: Orla Venn")


def test_an_unreadable_gist_is_its_texts_cut_short() -> None:
    index = gists(10_000, never_parses)
    assert index.gists[0].startswith("Orla Venn | Orla Venn wrote")
    assert index.facts()["unreadable_replies"] == 1


def test_gists_that_do_not_fit_are_those_nearest_to_the_question_in_order() -> None:
    index = gists(50)
    assert index.memory(QUESTION, max_tokens=10_000) == index.gists
    some = index.memory(index.gists[1], max_tokens=20)
    assert index.gists[1] in some
    assert len(some) < len(index.gists)
    assert some == [gist for gist in index.gists if gist in some]


def test_clues_and_surrogates_are_searched_and_read_in_the_order_of_the_corpus() -> None:
    prediction, lm, ledger = ask(MemoRAG(shelf(), k=1), script, QUESTION)
    assert (prediction.answer, prediction.stop_reason) == ("Dunmoor", "answered")
    assert [s.query for s in prediction.searches] == [
        "Harwick is a town in Dunmoor",
        "Who wrote Salt Road?",
        QUESTION,
    ]
    assert "Gist: " in lm.asked[1].inputs["memory"]
    context = json.loads(lm.asked[-1].inputs["context"].partition("\n\n")[0])
    places = [shelf().corpus.positions[line.split(" | ")[0][4:]] for line in context]
    assert places == sorted(places)
    assert prediction.steps[0].notes["gists"] == 1
    assert sum(call.kind == "lm" for call in ledger.calls) == 3


def test_without_memory_surrogates_come_from_the_question_alone() -> None:
    program = MemoRAG(shelf(), variant="no_memory", k=1)
    prediction, lm, _ = ask(program, script, QUESTION)
    assert lm.signatures == ["SurrogateQuestions", "AnswerFromContext"]
    assert [s.query for s in prediction.searches] == ["Who wrote Salt Road?", QUESTION]
    assert program.other_calls() == []


def test_a_draft_is_searched_with_too() -> None:
    prediction, lm, _ = ask(MemoRAG(shelf(), draft=True, k=1), script, QUESTION)
    assert [s.query for s in prediction.searches][-2:] == ["Dunmoor", QUESTION]
    assert lm.signatures.count("AnswerFromContext") == 2
