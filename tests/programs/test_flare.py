"""FLARE's drafts, triggers, queries and endings, by scripted conversations."""

import math
from types import SimpleNamespace
from typing import Any

import dspy
import pytest

from ragbench.errors import LMSetupError
from ragbench.programs.core import token_probabilities
from ragbench.programs.workflow.flare import FLARE
from ragbench.record import Ledger
from tests.fakes import ScriptedLM
from tests.programs.shelf import converse, shelf

QUESTION = "Where was the author of Salt Road born?"


def draft(
    thought: str, sure: float = 0.9, *, doubt: list[str] | None = None, answer: str = ""
) -> dict[str, Any]:
    step = "answer" if answer else "continue"
    said = {"uncertain_words": doubt or [], "confidence": sure}
    return {"thought": thought, **said, "next_step": step, "answer": answer}


def written(
    *drafts: dict[str, Any], forced: str = "", **knobs: Any
) -> tuple[dspy.Prediction, ScriptedLM, Ledger]:
    """A run of these drafts, and the answer `forced`, where one is due."""
    hints = [{"answer": forced}] if forced else []
    program = FLARE(shelf(), **knobs)
    return converse(program, QUESTION, DraftSentence=list(drafts), AnswerWithHints=hints)


def test_a_sure_draft_is_kept_without_a_search() -> None:
    prediction, lm, ledger = written(
        draft("Salt Road is by Orla Venn. More."),
        draft("She was born in Harwick.", answer="Harwick"),
    )
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "answered")
    assert [s.query for s in prediction.searches] == [QUESTION]
    assert "Salt Road is by Orla Venn." in lm.asked[1].inputs["thoughts"]
    assert "More." not in lm.asked[1].inputs["thoughts"]
    assert len(ledger.calls) == 2


def test_a_doubtful_draft_is_searched_without_its_doubtful_words_and_written_again() -> None:
    prediction, lm, _ = written(
        draft("Orla Venn was born in Eastmere.", 1.0, doubt=["eastmere", " "]),
        draft("Orla Venn was born in Harwick.", 0.1, answer="Harwick"),
        k=1,
    )
    assert [s.query for s in prediction.searches] == [QUESTION, "Orla Venn was born in ."]
    assert prediction.answer == "Harwick"
    shown = [asked.inputs["context"] for asked in lm.asked]
    assert "[1] Orla Venn" in shown[1]
    assert "[2]" not in shown[1]  # what is found takes the place of the passages before
    (step,) = [step for step in prediction.steps if step.action == "think"]
    assert step.thought == "Orla Venn was born in Harwick."


@pytest.mark.parametrize(
    ("drafted", "knobs", "query"),
    [
        ("It is in Eastmere.", {"variant": "always"}, "It is in Eastmere."),
        ("It is in Eastmere.", {"query_from": "draft"}, "It is in Eastmere."),
        ("It is in Eastmere.", {"query_from": "previous"}, QUESTION),
        ("Eastmere.", {}, QUESTION),  # nothing is left of the draft
    ],
)
def test_what_is_searched_for(drafted: str, knobs: dict[str, Any], query: str) -> None:
    prediction, _, _ = written(
        draft(drafted, 0.2, doubt=["Eastmere"]),
        draft("It is in Harwick.", answer="Harwick"),
        **knobs,
    )
    assert prediction.steps[0].input == query


def test_never_searches_the_question_alone_and_asks_for_no_doubt() -> None:
    prediction, lm, _ = written(
        {"thought": "It is.", "next_step": "answer", "answer": "Harwick"}, variant="never"
    )
    assert len(prediction.searches) == 1
    assert "confidence" not in lm.asked[0].fields


def test_at_the_limit_an_answer_is_forced_from_the_last_passages_and_the_sentences() -> None:
    for limit, reason in (({"max_steps": 1}, "max_steps"), ({"max_calls": 2}, "budget")):
        prediction, lm, _ = written(draft("Salt Road is by Orla Venn."), forced="Harwick", **limit)
        assert (prediction.answer, prediction.stop_reason) == ("Harwick", reason)
        assert "Salt Road is by Orla Venn." in lm.asked[-1].inputs["notes"]


def test_after_a_search_without_passages_those_of_the_one_before_are_read_on() -> None:
    prediction, lm, _ = written(
        draft("Zyx qqq.", 0.2), draft("Nobody knows."), forced="Harwick", k=1, max_steps=1
    )
    first, second = prediction.searches
    assert (len(first.hits), len(second.hits)) == (1, 0)
    assert len(lm.asked) == 3
    for asked in lm.asked:  # two drafts and the forced answer
        assert f"[1] {first.hits[0][0]} |" in asked.inputs["context"]


def test_a_sentence_said_before_ends_the_draft() -> None:
    prediction, _, _ = written(
        draft("It is by Orla Venn."), draft("it is by Orla Venn"), forced="Harwick"
    )
    assert prediction.stop_reason == "no_progress"


def test_token_probabilities_need_an_lm_that_gives_them() -> None:
    with pytest.raises(LMSetupError, match="set confidence_source to verbal"):
        written(
            {"thought": "It is.", "next_step": "continue", "answer": ""},
            confidence_source="logprob",
        )


def tokens(*parts: tuple[str, float]) -> Any:
    content = [SimpleNamespace(token=text, logprob=math.log(p)) for text, p in parts]
    return SimpleNamespace(content=content)


def test_the_tokens_of_a_field_and_how_likely_they_are() -> None:
    said = tokens(
        ('{"thought', 1.0), ('": "Orla', 0.9), (" said", 0.5), (' \\"', 0.7), ("no", 0.3),
        ('\\"."', 0.8), (', "answer": "Orla"}', 0.2),
    )  # fmt: skip
    reply = dspy.Prediction(thought='Orla said "no".', logprobs=said)
    found = [(text, round(p, 6)) for text, p in token_probabilities(reply, "thought")]
    assert found == [("Orla", 0.9), (" said", 0.5), (' \\"', 0.7), ("no", 0.3), ('\\".', 0.8)]
    assert token_probabilities(dspy.Prediction(thought="", parse_fallback=True), "thought") == []


def test_by_tokens_one_unlikely_token_is_a_doubt_and_left_out_of_the_query() -> None:
    program = FLARE(shelf(), confidence_source="logprob", theta=0.8, beta=0.4)
    assert program.draft.config == {"logprobs": True}
    parts = (('{"thought": "', 1.0), ("Born in", 0.9), (" East", 0.3), ("mere", 0.7), ('"', 1.0))
    reply = dspy.Prediction(thought="Born in Eastmere", logprobs=tokens(*parts))
    assert program._in_doubt(reply)
    assert program._query(QUESTION, [], reply) == "Born in mere"
    sure = dspy.Prediction(thought="Born in", logprobs=tokens(*parts))
    assert not program._in_doubt(sure)
