"""Inputs cut shorter: which go, which stay, and how each kind is cut."""

from __future__ import annotations

from typing import Any

import dspy
import pytest
from dspy.primitives.repl_types import REPLHistory
from pydantic import BaseModel

from ragbench.programs.core.prompts import shortened
from ragbench.programs.core.references import pid_of, split_shown
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


def test_a_repl_keeps_its_newest_turns() -> None:
    history = REPLHistory()
    for n in range(6):
        history = history.append(code=f"print({n})", output="word " * 40)
    kept = cut(repl_history=history)["repl_history"]
    assert kept.entries == history.entries[-len(kept) :]
    assert 1 <= len(kept) <= 3


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


def test_nothing_left_to_cut() -> None:
    assert shortened({"context": ["short"], "question": "q" * 999}) is None


@pytest.mark.parametrize(
    ("line", "pid"),
    [
        ("[1] A town | It lies by the sea. It is old.", "a"),
        ("[2] [n1.1] A town | It lies by ...", "a"),
        ("[2] A town | It lies ... is old.", "a"),
        ("[1] It has no title.", "b"),
        ("A town | It lies by the sea. It is new.", ""),
        ("Another town | It lies by the sea.", ""),
        ("", ""),
    ],
)
def test_lines_of_a_prompt_are_traced_to_their_passages(line: str, pid: str) -> None:
    passages = [
        Passage("a", "A town", "It lies by the sea. It is old."),
        Passage("b", "", "It has no title."),
    ]
    assert pid_of(line, passages) == pid


def test_what_shows_no_passage_stands_as_it_is() -> None:
    passage = Passage("a", "A", "One.")
    shown = {
        "question": "Q?",
        "context": ["[1] A | One."],
        "notes": ["a note"],
        "n": 3,
        "draft": "",
    }
    assert split_shown(shown, [passage]) == (("a",), {"notes": ["a note"]})
