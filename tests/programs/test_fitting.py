"""Inputs cut shorter: which go, which stay, and how each kind is cut."""

import copy
import pickle
from typing import Any

import dspy
import pytest
from pydantic import BaseModel

from ragbench.programs.core.prompts import render, render_one, shortened, split_shown
from ragbench.retrievers.base import Passage


class Note(BaseModel):
    title: str
    text: str


def cut(**inputs: Any) -> dict[str, Any]:
    shorter = shortened(inputs)
    assert shorter is not None
    return shorter


def test_only_the_longest_inputs_are_cut_down_to_one_length() -> None:
    shorter = cut(context=["a " * 400, "b " * 400], notes=["short"], draft="c " * 300)
    assert shorter["notes"] == ["short"]
    assert len(shorter["context"][0]) <= 550
    assert len(shorter["context"]) == 1
    assert shorter["draft"].startswith("c c ")
    assert sum(len(str(value)) for value in shorter.values()) < 1300


def test_question_tools_and_settings_stay() -> None:
    whole = {"question": "q " * 500, "tools": ["t " * 500], "config": {"n": "c " * 500}}
    assert cut(context="x " * 500, **whole).items() >= whole.items()
    assert shortened(whole) is None


def test_what_grows_loses_its_oldest_part_and_what_is_ranked_its_last() -> None:
    steps = [Note(title=f"title {n}", text="o " * 60) for n in range(6)]
    assert cut(trajectory=steps)["trajectory"] == steps[-3:]
    assert cut(trajectory="old " * 200 + "new " * 200)["trajectory"].endswith("new new ")
    context = [f"{n}" * 100 for n in range(6)]
    assert cut(context=context)["context"] == context[:3]


def test_one_step_too_long_keeps_the_head_of_its_longest_text() -> None:
    step = Note(title="short", text="o " * 500)
    (left,) = cut(trajectory=[step])["trajectory"]
    assert left.title == "short"
    assert len(left.text) < 510
    assert left.text.endswith(" ...")


def test_a_conversation_keeps_its_newest_turns() -> None:
    messages = [{"n": n, "text": "word " * 40} for n in range(6)]
    kept = cut(history=dspy.History(messages=messages))["history"].messages
    assert [message["n"] for message in kept] == [3, 4, 5]


@pytest.mark.parametrize(
    ("refusal", "left"),
    [
        ("prompt is too long: 2,100 tokens > 2,000 maximum", 4500),
        ("Requested tokens (2100) exceed context window of 2000", 4500),
        ("limit 2000; requested 2100 tokens (1300 in messages, 800 in completion)", 4500),
        ("too long", 2500),
        ("error 400", 2500),
        ("limit 2000, asked 90000", 2500),  # more too much than there is to cut
    ],
)
def test_how_much_is_left(refusal: str, left: int) -> None:
    shorter = shortened({"text": "word " * 1000}, refusal=refusal)
    assert shorter is not None
    assert left - 20 <= len(shorter["text"]) <= left


def test_room_is_left_for_the_reply() -> None:
    told = "prompt is too long: 2,100 tokens > 2,000 maximum"
    shorter = shortened({"text": "word " * 1000}, refusal=told, reply_tokens=200)
    assert shorter is not None
    assert 3480 <= len(shorter["text"]) <= 3500


def test_a_line_names_the_passage_that_it_shows() -> None:
    twins = [Passage("a", "A town", "It is old."), Passage("b", "A town", "It is old. It lies by")]
    lines = render(twins, max_tokens=100)
    assert split_shown({"context": lines, "notes": ["a note"], "question": "Q?", "n": 3}) == (
        ("a", "b"),
        {"notes": ["a note"]},
    )


def test_a_line_that_is_cut_or_copied_still_names_its_passage() -> None:
    line = render_one(Passage("a", "A town", "It is old. " * 50), max_tokens=100)
    cut = shortened({"context": [line, line]})
    assert cut is not None
    assert [one.pid for one in cut["context"]] == ["a"]
    assert copy.deepcopy(line).pid == pickle.loads(pickle.dumps(line)).pid == "a"
