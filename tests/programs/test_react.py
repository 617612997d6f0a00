"""The tool loop and its guards, by scripted conversations of ReAct."""

import re
from typing import Any

import pytest

from ragbench.errors import KnobError
from ragbench.programs.core.tools import (
    DEFAULT_GUARDS,
    GUARDS,
    REPEATED,
    Done,
    ToolUse,
    argument_text,
    rendered,
    shown_again,
)
from ragbench.programs.react import ReActRAG
from tests.fakes import Asked, Reply
from tests.programs.shelf import ask, converse, shelf

QUESTION = "Where was the author of Salt Road born?"


def act(tool: str, argument: str = "", thought: str = "") -> dict[str, Any]:
    given, used = (argument, "") if tool == "finish" else ("", argument)
    return {"thought": thought, "answer": given, "tool": tool, "argument": used}


FINISH = act("finish", "Harwick", "Harwick it is.")
LOOK = act("search", "Orla Venn")
READ = [{"answer": "Harwick"}]


def talk(*steps: Any, read: Any = None, **knobs: Any) -> tuple[Any, Any]:
    """Prediction and LM of a conversation of exactly these turns, and a forced answer `read`."""
    forced = {"AnswerWithHints": read} if read else {}
    prediction, lm, _ = converse(
        ReActRAG(shelf(), **knobs), QUESTION, ReActStep=list(steps), **forced
    )
    return prediction, lm


def ended(prediction: Any) -> tuple[str, str]:
    return prediction.answer, prediction.stop_reason


def queries(prediction: Any) -> list[str]:
    return [search.query for search in prediction.searches]


def observations(prediction: Any) -> list[str]:
    return [step.observation for step in prediction.steps]


def test_the_model_searches_looks_up_and_finishes() -> None:
    prediction, lm = talk(act("search", "Orla Venn", "Who?"), act("lookup", "BORN in"), FINISH)
    assert ended(prediction) == ("Harwick", "answered")
    assert queries(prediction) == ["Orla Venn"]  # no search before the first turn
    searched, looked_up, answer = observations(prediction)
    assert searched.startswith("Orla Venn | Orla Venn wrote the novel")
    # All matching sentences of all passages seen, with title and index.
    assert looked_up == "Orla Venn [1] She was born in Harwick."
    assert answer == "Harwick"
    assert prediction.steps[0].pids == ("Orla Venn", "Salt Road")
    assert lm.asked[1].inputs["trajectory"].startswith("Step 1. Who?\nsearch(Orla Venn) showed:\n")
    assert [asked.inputs["steps_left"][0] for asked in lm.asked] == ["7", "6", "5"]
    assert "search(words): Find passages." in lm.asked[0].inputs["tools"]


def test_the_question_may_be_searched_before_the_first_turn() -> None:
    prediction, lm = talk(LOOK, FINISH, initial_retrieval=True)
    assert queries(prediction) == [QUESTION, "Orla Venn"]
    assert lm.asked[0].inputs["trajectory"].startswith(f"Step 1.\nsearch({QUESTION}) showed:\n")
    assert "Step 2." in lm.asked[1].inputs["trajectory"]


def test_act_only_has_no_thoughts() -> None:
    turns = [
        {"answer": "", "tool": "search", "argument": "Orla"},
        {"answer": "x", "tool": "finish"},
    ]
    prediction, lm, _ = converse(ReActRAG(shelf(), act_only=True), QUESTION, ActStep=turns)
    assert list(lm.asked[0].fields) == ["answer", "tool", "argument"]
    assert prediction.steps[0].thought == ""


def test_at_the_limit_the_answer_is_forced_from_passages_and_thoughts() -> None:
    steps = [act("search", "Orla Venn", "I need more."), act("search", "Tam Quill")]
    prediction, lm = talk(*steps, read=READ, max_steps=2)
    assert ended(prediction) == ("Harwick", "max_steps")
    assert "Tam Quill is a writer" in lm.asked[-1].inputs["context"]
    assert "I need more." in lm.asked[-1].inputs["notes"]
    assert ended(talk(LOOK, max_steps=1, force_answer=False)[0]) == ("noanswer", "max_steps")
    assert ended(talk(LOOK, read=READ, max_calls=2)[0]) == ("Harwick", "budget")


def test_an_answer_beside_a_tool_is_kept_as_a_part_of_the_thought() -> None:
    guess = {**act("search", "Orla Venn", "Who?"), "answer": "Eastmere"}
    prediction, lm = talk(guess, FINISH)
    assert ended(prediction) == ("Harwick", "answered")
    assert prediction.steps[0].thought == "Who? Answer so far: Eastmere"
    assert "Answer so far: Eastmere" in lm.asked[1].inputs["trajectory"]


@pytest.mark.parametrize("finish", [act("finish"), act("finish", "unknown")])
def test_a_finish_without_an_answer_is_left_to_the_reader(finish: Any) -> None:
    prediction, _ = talk(LOOK, finish, read=READ)
    assert ended(prediction) == ("Harwick", "answered")
    assert prediction.counts["finish_without_answer"] == 1


def test_an_answer_given_to_finish_as_its_argument_counts() -> None:
    finish = {"thought": "x", "answer": "", "tool": "finish", "argument": "Harwick"}
    assert ended(talk(LOOK, finish)[0]) == ("Harwick", "answered")


def test_the_oldest_steps_leave_a_prompt_that_grows_too_long() -> None:
    def script(asked: Asked) -> Reply:
        if asked.signature == "ReActStep":
            thought = f"Thought {asked.number}. {'so ' * 60}"
            return act("search", f"Salt Road {asked.number}", thought)
        return {"answer": "x"}

    _, lm, _ = ask(ReActRAG(shelf(), context_tokens=150, max_steps=3), script)
    assert "Thought 2." in lm.asked[2].inputs["trajectory"]
    assert "Thought 1." not in lm.asked[2].inputs["trajectory"]


def test_guards_are_listed_and_none_is_the_bare_loop() -> None:
    def guards(given: Any) -> tuple[str, ...]:
        return ReActRAG(shelf(), guards=given).knobs.guards

    assert ReActRAG(shelf()).knobs.guards == DEFAULT_GUARDS
    assert guards("false") == guards(False) == guards("none") == ()
    assert guards("true") == GUARDS
    assert guards("withdraw,reader") == ("withdraw", "reader")
    with pytest.raises(KnobError, match="give any of unreadable, copied, repeated, "):
        guards("withdrawal")


def test_without_guards_the_loop_only_counts_its_steps() -> None:
    prediction, lm = talk(*[LOOK] * 3, act("finish", QUESTION), guards="false")
    assert ended(prediction) == (QUESTION, "answered")
    assert REPEATED not in lm.asked[3].inputs["trajectory"]
    assert lm.asked[3].inputs["trajectory"].count("She was born in Harwick") == 3
    assert ended(talk("?", read=READ, guards="false")[0]) == ("Harwick", "parse_fallback")


def test_unreadable_searches_the_question_once() -> None:
    prediction, _ = talk("Harwick, of course.", "I said Harwick.", read=[{"answer": "Eastmere"}])
    assert queries(prediction) == [QUESTION]
    assert ended(prediction) == ("Eastmere", "parse_fallback")
    assert prediction.counts["parse_fallback"] == 2


_LONG = "The steps compare neither of the two towns, so the next step would be to compare them."


@pytest.mark.parametrize(
    ("answer", "thought", "event"),
    [
        (QUESTION.lower(), "", "echoed_question"),
        ("No sentence has this text.", "", "copied_observation"),
        ("search(Orla Venn)", "", "copied_step"),
        (_LONG, _LONG, "echoed_thought"),
    ],
)
def test_copied_is_no_answer(answer: str, thought: str, event: str) -> None:
    steps = [LOOK, act("lookup", "no such words"), act("finish", answer, thought)]
    prediction, _ = talk(*steps, read=READ)
    assert ended(prediction) == ("Harwick", "no_progress")
    assert prediction.counts[event] == 1


def test_repeated_steps_are_told_and_a_second_one_ends_the_loop() -> None:
    prediction, lm = talk(LOOK, LOOK, act("lookup", "nothing"), LOOK, read=READ)
    assert ended(prediction) == ("Harwick", "no_progress")
    told = [REPEATED in asked.inputs.get("trajectory", "") for asked in lm.asked]
    assert told == [False, False, True, True, False]
    assert ended(talk(LOOK, LOOK, FINISH)[0]) == ("Harwick", "answered")


def test_a_repeated_step_has_no_thought_and_a_passage_shown_before_is_named() -> None:
    use, other = ToolUse("search", {"words": "Orla"}), ToolUse("search", {"words": "Venn"})
    steps = [
        Done(0, "Look.", use, "Orla Venn | a novelist"),
        Done(1, "Once more.", use, "Orla Venn | a novelist"),
        Done(2, "Other.", other, "Orla Venn | a novelist"),
    ]
    text = rendered(shown_again(steps, 1000))
    assert f"Step 2.\nsearch(Orla) showed:\n{REPEATED}" in text
    assert text.endswith("Step 3. Other.\nsearch(Venn) showed:\nOrla Venn (shown above)")


def tools_of(asked: Asked) -> list[str]:
    """Names of the tools that a turn offers."""
    return re.findall(r"(\w+)\(\w+\):", asked.inputs["tools"])


def test_withdraw_takes_a_tool_away_until_something_new_is_seen() -> None:
    steps = [LOOK, LOOK, act("lookup", "no such words"), act("lookup", "Orla"), FINISH]
    prediction, lm = talk(*steps, guards="withdraw,repeated,lookup")
    both = ["search", "lookup"]
    assert [tools_of(asked) for asked in lm.asked] == [
        ["search"],
        both,
        ["lookup"],
        ["lookup"],  # a look-up without a result is nothing new
        both,
    ]
    assert prediction.counts["withdrawn_tool"] == 2
    alone = talk(LOOK, LOOK, FINISH, lookup=False, guards="withdraw")[1]
    assert {tuple(tools_of(asked)) for asked in alone.asked} == {("search",)}


def test_lookup_is_offered_once_there_is_something_to_look_in() -> None:
    prediction, lm = talk(LOOK, FINISH, guards="lookup")
    assert ["lookup(" in asked.inputs["tools"] for asked in lm.asked] == [False, True]
    assert prediction.counts["hidden_tool"] == 1


def test_unsearched_answers_are_checked_by_a_search() -> None:
    prediction, _ = talk(act("finish", "Oslo"), FINISH, guards="unsearched")
    assert ended(prediction) == ("Harwick", "answered")
    assert (queries(prediction), prediction.counts["unsearched_answer"]) == ([QUESTION], 1)


def test_resample_asks_once_more_without_the_thought_that_was_repeated() -> None:
    first = act("search", "Orla Venn", "The author is missing.")
    copy = act("lookup", "Salt", "the author is missing")
    again = act("lookup", "born", "She is found.")
    prediction, lm = talk(first, copy, again, FINISH, guards="resample")
    assert prediction.counts["resampled"] == 1
    assert [step.thought for step in prediction.steps][:2] == [first["thought"], "She is found."]
    shown = [asked.inputs["trajectory"] for asked in lm.asked]
    assert [text.count("The author is missing.") for text in shown] == [0, 1, 0, 1]
    assert "Say what the last step shows." in shown[2]
    assert lm.asked[2].request.config.temperature == 0.7


@pytest.mark.parametrize(("read", "answer"), [("Eastmere", "Eastmere"), ("unknown", "Harwick")])
def test_reader_settles_an_answer_beside_a_tool(read: str, answer: str) -> None:
    guess = {**LOOK, "answer": "Harwick"}
    prediction, _ = talk(guess, guess, read=[{"answer": read}], guards="reader")
    assert ended(prediction) == (answer, "answered")
    assert queries(prediction) == ["Orla Venn"]  # a guess before it
    assert prediction.counts["guess_beside_tool"] == 1
    alone, _ = talk(guess, guess, guards="reader", force_answer=False)
    assert ended(alone) == ("Harwick", "answered")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"query": "Orla", "k": 3}, "Orla"),
        ({"k": 3, "words": ["Orla", "Venn"]}, "3"),
        (["Orla", 3], "Orla 3"),
        ({"a": {"b": "x"}}, "x"),
        (None, ""),
        (True, ""),
    ],
)
def test_the_one_text_among_a_models_arguments(given: Any, text: str) -> None:
    assert argument_text(given) == text
