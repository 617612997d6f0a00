"""Tree retrieval in a program, by scripted conversations; see tests/retrievers/test_tree.py."""

import json

import dspy
import pytest

from ragbench.ledger import open_ledger
from ragbench.lms.adapters.lenient import make_adapter
from ragbench.programs.tree_rag import RAPTOR, TreeRAG
from ragbench.retrievers.base import Corpus
from ragbench.retrievers.factory import make_retriever
from tests.fakes import Asked, Reply, ScriptedLM
from tests.programs.shelf import ask, shelf

QUESTION = "Where was Orla Venn born?"


def script(asked: Asked) -> Reply:
    if asked.signature == "Summarize":
        return {"summary": " ".join(json.loads(asked.inputs["texts"]))[:200]}
    return {"answer": "Harwick"}


def test_raptor_is_tree_rag_under_its_own_name() -> None:
    one, other = (ask(program(shelf()), script, QUESTION)[1] for program in (RAPTOR, TreeRAG))
    assert one.asked[0].prompt == other.asked[0].prompt
    assert RAPTOR(shelf(), variant="arag").knobs.k == 5


@pytest.mark.parametrize("variant", ["collapsed", "traversal", "hiro"])
def test_one_search_one_call(variant: str) -> None:
    prediction, lm, _ = ask(TreeRAG(shelf(), variant=variant), script, QUESTION)
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "answered")
    assert lm.signatures == ["AnswerFromContext"]
    assert [step.action for step in prediction.steps] == ["index", "search", "answer"]
    assert [p.pid for p in prediction.passages] == [pid for pid, _ in prediction.searches[0].hits]
    assert prediction.passages[0].pid == "Orla Venn"


def test_summaries_are_made_once_and_found_beside_passages() -> None:
    program = TreeRAG(shelf(padding=40), k=40)
    lm = ScriptedLM(script)
    with dspy.context(lm=lm, adapter=make_adapter("json", lm)), open_ledger():
        program.prepare()
        made = len(lm.asked)
        prediction = program(question=QUESTION)
    assert lm.signatures == ["Summarize"] * made + ["AnswerFromContext"]
    notes = prediction.steps[0].notes
    assert notes["index_calls"] == made > 0
    assert len(notes["layers"]) == len(set(prediction.steps[1].notes["layers"])) == 2
    assert any(p.pid.startswith("summary-") for p in prediction.passages)


def test_nodes_are_shown_whole_within_the_limit() -> None:
    prediction, lm, _ = ask(TreeRAG(shelf(padding=6), context_tokens=100, k=50), script, QUESTION)
    assert 1 < len(prediction.passages) < 11
    assert "..." not in lm.asked[0].inputs["context"]


def test_no_root_above_the_threshold_is_counted() -> None:
    prediction, _, _ = ask(TreeRAG(shelf(), variant="hiro", selection=0.99), script, QUESTION)
    assert prediction.counts["hiro_empty"] == 1
    assert [p.pid for p in prediction.passages] == ["Orla Venn"]


def test_a_question_of_its_own_passages_has_a_tree_of_its_own() -> None:
    corpus = Corpus(shelf().corpus.passages, contexts={"Who?": (0, 1)})
    program = TreeRAG(make_retriever("bm25", corpus, setting="distractor"), variant="hiro")
    program.prepare()
    prediction, _, _ = ask(program, script, "Who?")
    assert {p.pid for p in prediction.passages} <= {"Orla Venn", "Salt Road"}
    assert prediction.steps[0].notes["layers"] == [2]
