"""FaithfulRAG's memory, alignment and answer, by scripted conversations."""

from __future__ import annotations

import dspy
import pytest

from ragbench.experiments.estimates.rehearsal import rehearse
from ragbench.lms.adapters.lenient import make_adapter
from ragbench.programs.workflow import faithful_rag
from ragbench.programs.workflow.faithful_rag import FaithfulRAG, pieces_of
from ragbench.retrievers.base import Corpus, Passage
from ragbench.retrievers.factory import make_retriever
from tests.fakes import ScriptedLM
from tests.programs.shelf import converse, shelf

QUESTION = "Where was the author of Salt Road born?"
MEMORY = {
    "RecallFacts": [{"facts": ["The author of Salt Road", "the author of salt road."]}],
    "RecallPassage": [{"passage": "Salt Road is by Orla Venn, born in Eastmere."}],
    "SplitFacts": [{"facts": ["Orla Venn was born in Harwick.", "Salt Road is a novel."]}],
}


def test_pieces_are_whole_sentences_without_brackets() -> None:
    sentences = ("One two (three).", "Four five.", "Six seven eight nine ten eleven [12].", "Four.")
    passage = Passage("1", "T", " ".join(sentences), sentences)
    assert pieces_of(passage, words=5) == [
        "One two. Four five.",
        "Six seven eight nine ten eleven.",
        "Four.",
    ]
    assert pieces_of(Passage("2", "T", "(All of it.)", ("(All of it.)",)), words=5) == []


def test_pieces_near_to_what_is_remembered_stand_beside_the_passages() -> None:
    prediction, lm, ledger = converse(
        FaithfulRAG(shelf(), k=2, piece_words=5, sent_topk=1, chunk_topk=2),
        QUESTION,
        **MEMORY,
        AnswerFaithfully=[{"reasoning": "so", "answer": "Harwick"}],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "answered")
    (aligned,) = [step for step in prediction.steps if step.action == "align"]
    assert "She was born in Harwick." in aligned.observation.splitlines()
    assert len(aligned.observation.splitlines()) == 2
    assert "She was born in Harwick." in lm.asked[-1].inputs["notes"]
    assert "[1]" in lm.asked[-1].inputs["context"]
    assert lm.asked[1].inputs["facts"].startswith('["The author of Salt Road"]')
    assert sum(call.kind == "lm" for call in ledger.calls) == 4


def test_a_passage_that_is_shown_whole_is_not_repeated_as_a_piece() -> None:
    knobs = {"k": 2, "sent_topk": 5, "chunk_topk": 5}
    answer = [{"answer": "Harwick"}]
    prediction, lm, _ = converse(
        FaithfulRAG(shelf(), **knobs), QUESTION, **MEMORY, AnswerFaithfully=answer
    )
    (aligned,) = [step for step in prediction.steps if step.action == "align"]
    assert len(aligned.observation.splitlines()) == 2  # both passages are of one piece
    assert lm.asked[-1].inputs["notes"] == "[]"

    long = f"Salt Road is a novel by Orla Venn{' and so on' * 150} to the end."
    one = make_retriever("bm25", Corpus([Passage("1", "Salt Road", long, (long,))]))
    _, lm, _ = converse(
        FaithfulRAG(one, context_tokens=100), QUESTION, **MEMORY, AnswerFaithfully=answer
    )
    assert "to the end." not in lm.asked[-1].inputs["context"]
    assert "to the end." in lm.asked[-1].inputs["notes"]


def test_the_best_pieces_of_all_facts_are_pooled_by_score() -> None:
    prediction, _, _ = converse(
        FaithfulRAG(shelf(), k=2, piece_words=5, sent_topk=5, chunk_topk=1),
        QUESTION,
        **{**MEMORY, "SplitFacts": [{"facts": ["a caravan", "She was born in Harwick."]}]},
        AnswerFaithfully=[{"answer": "Harwick"}],
    )
    (aligned,) = [step for step in prediction.steps if step.action == "align"]
    assert aligned.observation == "She was born in Harwick."


def test_a_rehearsal_embeds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(spec: str, api_base: str = "") -> None:
        raise AssertionError("a rehearsal asks no model")

    monkeypatch.setattr(faithful_rag, "make_embedder", never)
    example = dspy.Example(question=QUESTION).with_inputs("question")
    rehearsed = rehearse(FaithfulRAG(shelf()), [example], make_adapter("json", ScriptedLM()))
    assert rehearsed is not None
    assert rehearsed.calls[1] == 4


def test_nothing_remembered_leaves_the_passages() -> None:
    prediction, lm, _ = converse(
        FaithfulRAG(shelf(), k=2),
        QUESTION,
        RecallFacts=[{"facts": []}],
        RecallPassage=[{"passage": " "}],
        AnswerFaithfully=[{"answer": "Harwick"}],
    )
    assert prediction.counts["nothing_remembered"] == 1
    assert lm.asked[-1].inputs["notes"] == "[]"


@pytest.mark.parametrize(
    ("knobs", "reader"),
    [
        ({"cot": "scheduled"}, "AnswerInStages"),
        ({"cot": "none"}, "AnswerFaithfully"),
        ({"self_think": False}, "AnswerWithHints"),
    ],
)
def test_the_answer_is_reasoned_as_asked(knobs: dict[str, object], reader: str) -> None:
    stages = {"analysis": "a", "first_answer": "Eastmere", "check": "no"}
    reply = {**(stages if reader == "AnswerInStages" else {}), "answer": "Harwick"}
    program = FaithfulRAG(shelf(), **knobs)
    prediction, lm, _ = converse(program, QUESTION, **MEMORY, **{reader: [reply]})
    assert prediction.answer == "Harwick"
    assert ("reasoning" in lm.asked[-1].fields) == ("self_think" in knobs)


def test_memory_in_one_call_and_without_alignment() -> None:
    merged = {"facts": ["The author"], "passage": "Salt Road is by Orla Venn."}
    _, _, ledger = converse(
        FaithfulRAG(shelf(), staged=False),
        QUESTION,
        RecallKnowledge=[merged],
        SplitFacts=MEMORY["SplitFacts"],
        AnswerFaithfully=[{"answer": "Harwick"}],
    )
    assert sum(call.kind == "lm" for call in ledger.calls) == 3
    _, _, alone = converse(
        FaithfulRAG(shelf(), align=False), QUESTION, AnswerFaithfully=[{"answer": "Harwick"}]
    )
    assert len(alone.calls) == 1
