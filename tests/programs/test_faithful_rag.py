"""FaithfulRAG's memory, alignment and answer, by scripted conversations."""

import dspy
import pytest

from ragbench.experiments.estimates import rehearse
from ragbench.lms.adapters.lenient import make_adapter
from ragbench.programs.workflow import faithful_rag
from ragbench.programs.workflow.faithful_rag import FaithfulRAG, pieces_of
from ragbench.retrievers.base import Passage
from tests.fakes import ScriptedLM
from tests.programs.shelf import converse, shelf

QUESTION = "Where was the author of Salt Road born?"
MEMORY = {
    "RecallFacts": [{"facts": ["Orla Venn wrote it.", "orla venn wrote it"]}],
    "RecallPassage": [{"passage": "Salt Road is by Orla Venn, born in Eastmere."}],
    "SplitFacts": [{"facts": ["Orla Venn was born in Harwick.", "Salt Road is a novel."]}],
}
HARWICK = [{"answer": "Harwick"}]


def test_pieces_are_whole_sentences_after_the_title_with_no_brackets_but_those_of_dates() -> None:
    sentences = ("One two (three).", "Four five.", "Six seven eight nine ten (1911).", "Four.")
    passage = Passage("1", "T", " ".join(sentences), sentences)
    assert pieces_of(passage, words=5) == [
        "T | One two. Four five.",
        "T | Six seven eight nine ten (1911).",
        "T | Four.",
    ]
    assert pieces_of(Passage("2", "T", "(All of it.)", ("(All of it.)",)), words=5) == []


def test_pieces_near_to_what_is_remembered_stand_beside_the_passages() -> None:
    prediction, lm, _ = converse(
        FaithfulRAG(shelf(), k=2, piece_words=5, sent_topk=1, chunk_topk=2),
        QUESTION,
        **MEMORY,
        AnswerFaithfully=HARWICK,
    )
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "answered")
    (aligned,) = [step for step in prediction.steps if step.action == "align"]
    assert "Orla Venn | She was born in Harwick." in aligned.observation.splitlines()
    assert len(aligned.observation.splitlines()) == 2
    assert "She was born in Harwick." in lm.asked[-1].inputs["notes"]
    assert "[1]" in lm.asked[-1].inputs["context"]
    assert lm.asked[1].inputs["facts"].startswith('["Orla Venn wrote it."]')
    assert len(lm.asked) == 4


def test_the_best_pieces_of_all_facts_are_pooled_by_score() -> None:
    facts = [{"facts": ["a caravan", "She was born in Harwick."]}]
    prediction, _, _ = converse(
        FaithfulRAG(shelf(), k=2, piece_words=5, chunk_topk=1),
        QUESTION,
        **{**MEMORY, "SplitFacts": facts, "AnswerFaithfully": HARWICK},
    )
    (aligned,) = [step for step in prediction.steps if step.action == "align"]
    assert aligned.observation == "Orla Venn | She was born in Harwick."


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
        AnswerFaithfully=HARWICK,
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


def test_without_alignment_the_passages_alone_are_read() -> None:
    program = FaithfulRAG(shelf(), align=False)
    _, lm, _ = converse(program, QUESTION, AnswerFaithfully=HARWICK)
    assert len(lm.asked) == 1
