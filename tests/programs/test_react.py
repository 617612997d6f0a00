"""ReAct by scripted conversations: the tool loop and its guards, pages, the tree of steps."""

import re
from typing import Any

import pytest

from ragbench.programs.core.tool_steps import REPEATED
from ragbench.programs.react import ReActRAG
from tests.fakes import Asked, Reply, ScriptedLM
from tests.programs.shelf import TOWN, ask, converse, ended, queries, shelf


def act(tool: str, argument: str = "", thought: str = "") -> dict[str, Any]:
    given, used = (argument, "") if tool == "finish" else ("", argument)
    return {"thought": thought, "answer": given, "tool": tool, "argument": used}


FINISH = act("finish", "Harwick", "Harwick it is.")
LOOK = act("search", "Orla Venn")
READ = [{"answer": "Harwick"}]


def talk(*steps: Any, read: Any = None, **knobs: Any) -> tuple[Any, ScriptedLM]:
    """Prediction and LM of a conversation of exactly these turns, and a forced answer `read`."""
    replies = {"ReActStep": list(steps), **({"AnswerWithHints": read} if read else {})}
    return converse(ReActRAG(shelf(), **knobs), TOWN, **replies)[:2]


def trajectories(lm: ScriptedLM) -> list[str]:
    return [asked.inputs.get("trajectory", "") for asked in lm.asked]


def test_the_model_searches_looks_up_and_finishes() -> None:
    prediction, lm = talk(act("search", "Orla Venn", "Who?"), act("lookup", "SHE was BORN"), FINISH)
    assert ended(prediction) == ("Harwick", "answered")
    assert queries(prediction) == ["Orla Venn"]  # no search before the first turn
    searched, looked_up, answer = [step.observation for step in prediction.steps]
    assert searched.startswith("Orla Venn | Orla Venn wrote the novel")
    # All matching sentences of all passages seen, with title and index.
    assert looked_up == "Orla Venn [1] She was born in Harwick."
    assert answer == "Harwick"
    assert prediction.steps[0].pids == ("Orla Venn", "Salt Road")
    assert trajectories(lm)[1].startswith("Step 1. Who?\nsearch(Orla Venn) showed:\n")
    assert [asked.inputs["steps_left"][0] for asked in lm.asked] == ["7", "6", "5"]
    assert "search(words): Find passages." in lm.asked[0].inputs["tools"]


def test_at_the_limit_the_answer_is_forced_from_passages_and_thoughts() -> None:
    steps = [act("search", "Orla Venn", "I need more."), act("search", "Tam Quill")]
    prediction, lm = talk(*steps, read=READ, max_steps=2)
    assert ended(prediction) == ("Harwick", "max_steps")
    assert "Tam Quill is a writer" in lm.asked[-1].inputs["context"]
    assert "I need more." in lm.asked[-1].inputs["notes"]
    assert ended(talk(LOOK, max_steps=1, force_answer=False)[0]) == ("noanswer", "max_steps")
    assert ended(talk(LOOK, read=READ, max_calls=2)[0]) == ("Harwick", "budget")


def test_where_an_answer_may_stand() -> None:
    prediction, lm = talk({**act("search", "Orla Venn", "Who?"), "answer": "Eastmere"}, FINISH)
    assert ended(prediction) == ("Harwick", "answered")
    assert prediction.steps[0].thought == "Who?"
    assert prediction.steps[0].notes["answer"] == "Eastmere"
    assert "Answer so far: Eastmere" in trajectories(lm)[1]
    as_argument = {"thought": "x", "answer": "", "tool": "finish", "argument": "Harwick"}
    assert ended(talk(LOOK, as_argument)[0]) == ("Harwick", "answered")
    prediction, _ = talk(LOOK, act("finish", "unknown"), read=READ)
    assert ended(prediction) == ("Harwick", "answered")
    unstated = {"thought": "x", "answer": "not stated", "tool": "finish", "argument": ""}
    prediction, lm = talk(LOOK, unstated, on_missing="say_so")
    assert (ended(prediction), len(lm.asked)) == (("not stated", "no_answer"), 2)


# -- guards


def test_without_guards_it_is_the_bare_loop() -> None:
    prediction, lm = talk(*[LOOK] * 3, act("finish", TOWN), guards=False)
    assert ended(prediction) == (TOWN, "answered")
    assert REPEATED not in trajectories(lm)[3]
    assert trajectories(lm)[3].count("She was born in Harwick") == 3
    assert ended(talk("?", read=READ, guards=False)[0]) == ("Harwick", "parse_fallback")


def test_unreadable_searches_the_question_once() -> None:
    prediction, _ = talk("Harwick, of course.", "I said Harwick.", read=[{"answer": "Eastmere"}])
    assert queries(prediction) == [TOWN]
    assert ended(prediction) == ("Eastmere", "parse_fallback")
    assert prediction.counts["parse_fallback"] == 2


_LONG = "The steps compare neither of the two towns, so the next step would be to compare them."


@pytest.mark.parametrize(
    ("answer", "thought", "event"),
    [
        (TOWN.lower(), "", "echoed_question"),
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
    again = {**LOOK, "thought": "Once more."}
    prediction, lm = talk(LOOK, again, act("lookup", "nothing"), LOOK, read=READ)
    assert ended(prediction) == ("Harwick", "no_progress")
    assert [REPEATED in text for text in trajectories(lm)] == [False, False, True, True, False]
    assert f"Step 2.\nsearch(Orla Venn) showed:\n{REPEATED}" in trajectories(lm)[2]
    _, lm = talk(LOOK, act("search", "Orla"), FINISH)  # a passage shown before is named alone
    assert trajectories(lm)[2].endswith("Orla Venn (shown above)\nSalt Road (shown above)")


# -- tree


def grown(steps: dict[str, list[dict[str, Any]]], **knobs: Any) -> tuple[Any, ScriptedLM]:
    """A tree whose steps are given by the last search of a path: its two samples.

    They are asked for at once, so a sample is known by its temperature.
    """

    def script(asked: Asked) -> Reply:
        if asked.signature != "ReActStep":
            return {"answer": "Tollen"}
        searched = ["", *re.findall(r"search\((.*?)\) showed", asked.inputs["trajectory"])]
        first, second = steps[searched[-1]]
        return first if asked.request.config.temperature == 0 else second

    return ask(ReActRAG(shelf(), variant="tree_search", **knobs), script, TOWN)[:2]


def test_tree_takes_steps_that_differ_and_selects_over_the_paths() -> None:
    steps = {
        "": [act("search", "Salt Road"), act("search", "Orla Venn")],
        "Salt Road": [act("finish", "Eastmere"), act("search", "the town")],
        "Orla Venn": [act("search", "Harwick"), act("finish", "Harwick")],
        "Harwick": [act("finish", "harwick"), act("finish", "Harwick")],
        "the town": [act("finish", "Eastmere town"), act("search", "Salt Road!")],
    }
    prediction, lm = grown(steps, width=4)
    taken = [(s.action, s.input or s.observation, s.notes.get("path")) for s in prediction.steps]
    assert taken[:4] == [
        ("search", "Salt Road", "1"), ("search", "Orla Venn", "2"),
        ("finish", "Eastmere", "1.1"), ("finish", "Harwick", "2.2"),
    ]  # fmt: skip
    assert [path for *_, path in taken[4:]] == ["2.1", "1.2", "2.1.1", "1.2.1", "2.1.2", None]
    assert ended(prediction) == ("Harwick", "answered")
    assert prediction.counts["pruned_similar"] == 1  # a step like an earlier one of its path
    assert len(lm.asked) == 2 + 4 + 4
    assert {asked.request.config.temperature for asked in lm.asked} == {0.0, 0.7}
