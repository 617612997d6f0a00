"""Tree retrieval in a program, by scripted conversations; see tests/retrievers/test_tree.py."""

import json
from dataclasses import replace
from pathlib import Path

import dspy
import pytest

from ragbench.context import current, use
from ragbench.experiments.runs.context import check_roles
from ragbench.ledger import open_ledger
from ragbench.lms.adapters.lenient import make_adapter
from ragbench.programs.tree_rag import RAPTOR, TreeRAG
from ragbench.retrievers.base import Corpus
from ragbench.retrievers.factory import make_retriever
from tests.fakes import Asked, Reply, ScriptedLM
from tests.programs.shelf import ask, shelf

QUESTION = "Where was Orla Venn born?"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path))
    return tmp_path


def script(asked: Asked) -> Reply:
    if asked.signature == "Summarize":
        return {"summary": " ".join(json.loads(asked.inputs["texts"]))[:200]}
    return {"answer": "Harwick"}


def test_raptor_is_tree_rag_under_its_own_name() -> None:
    same = [
        ask(program(shelf(), variant="collapsed"), script, QUESTION)[1].asked[0].prompt
        for program in (RAPTOR, TreeRAG)
    ]
    assert same[0] == same[1]
    assert RAPTOR(shelf(), variant="arag").knobs.k == 5


@pytest.mark.parametrize("variant", ["collapsed", "traversal", "hiro"])
def test_one_search_one_call(variant: str) -> None:
    prediction, lm, _ = ask(TreeRAG(shelf(), variant=variant), script, QUESTION)
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "answered")
    assert lm.signatures == ["AnswerFromContext"]
    assert [step.action for step in prediction.steps] == ["index", "search", "answer"]
    assert [p.pid for p in prediction.passages] == [pid for pid, _ in prediction.searches[0].hits]
    assert prediction.passages[0].pid == "Orla Venn"


def test_summaries_are_made_once_and_are_no_part_of_a_questions_cost(cache: Path) -> None:
    program = TreeRAG(shelf(padding=40), k=40)
    lm = ScriptedLM(script, name="tree")
    with dspy.context(lm=lm, adapter=make_adapter("json", lm)):
        with open_ledger() as preparation:
            program.prepare()
        made = len(lm.asked)
        with open_ledger() as ledger:
            prediction = program(question=QUESTION)
            program(question="Another?")
    assert preparation.as_if.calls == made > 0
    assert lm.signatures == ["Summarize"] * made + ["AnswerFromContext"] * 2
    assert [call.signature for call in ledger.calls if call.kind == "lm"] == [
        "AnswerFromContext"
    ] * 2
    notes = prediction.steps[0].notes
    assert notes["index_calls"] == made
    assert len(notes["layers"]) == len(set(prediction.steps[1].notes["layers"])) == 2
    assert any(p.pid.startswith("summary-") for p in prediction.passages)


def test_summaries_are_written_by_the_lm_of_their_role() -> None:
    program = TreeRAG(shelf(padding=43))
    check_roles(program, ["answer", "extract"])
    usual, own = ScriptedLM(script, name="usual"), ScriptedLM(script, name="own")
    adapter = make_adapter("json", usual)
    with use(replace(current(), role_lms={"extract": own}), lm=usual, adapter=adapter):
        program.prepare()
        tree = program.index_of(program.retriever)
    assert set(own.signatures) == {"Summarize"}
    assert usual.asked == []
    assert tree.lm == own.model  # a tree by another LM is another tree


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
