"""ReAct's variant `tree`."""

import re
from typing import Any

import pytest

from ragbench.programs.core.trace import Budget, Trace
from ragbench.programs.react import CorpusTools, ReActKnobs, ReActRAG, StepTree
from tests.fakes import Asked, Reply, ScriptedLM
from tests.programs.shelf import ask, shelf
from tests.programs.test_react import QUESTION, act


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

    prediction, lm, _ = ask(ReActRAG(shelf(), variant="tree", **knobs), script, QUESTION)
    return prediction, lm


def test_tree_takes_steps_that_differ_and_votes_over_the_paths() -> None:
    prediction, lm = grown(
        {
            "": [act("search", "Salt Road"), act("search", "Orla Venn")],
            "Salt Road": [act("finish", "Eastmere"), act("search", "the town")],
            "Orla Venn": [act("search", "Harwick"), act("finish", "Harwick")],
            "Harwick": [act("finish", "harwick"), act("finish", "Harwick")],
            "the town": [act("finish", "Eastmere town"), act("finish", "Eastmere")],
        },
        width=4,
    )
    taken = [(s.action, s.input or s.observation, s.notes.get("path")) for s in prediction.steps]
    assert taken == [
        ("search", "Salt Road", "1"),
        ("search", "Orla Venn", "2"),
        ("finish", "Eastmere", "1.1"),
        ("finish", "Harwick", "2.2"),
        ("search", "Harwick", "2.1"),
        ("search", "the town", "1.2"),
        ("finish", "harwick", "2.1.1"),
        ("finish", "Eastmere town", "1.2.1"),
        ("finish", "Harwick", "2.1.2"),
        ("finish", "Eastmere", "1.2.2"),
        ("answer", "Harwick", None),
    ]
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "answered")
    assert len(lm.asked) == 2 + 4 + 4
    assert {asked.request.config.temperature for asked in lm.asked} == {0.0, 0.7}


def test_tree_prunes_steps_like_a_sibling_or_an_earlier_one() -> None:
    prediction, lm = grown(
        {
            "": [act("search", "Orla Venn born"), act("search", "born: Orla Venn!")],
            "Orla Venn born": [act("search", "Orla Venn born"), act("search", "town of Harwick")],
            "town of Harwick": [act("search", "Harwick of town"), act("search", "Orla Venn born")],
        }
    )
    assert prediction.counts["pruned_similar"] == 4
    assert (prediction.answer, prediction.stop_reason) == ("Tollen", "no_progress")
    assert [search.query for search in prediction.searches] == ["Orla Venn born", "town of Harwick"]
    assert lm.signatures == [*["ReActStep"] * 6, "AnswerWithHints"]


def test_tree_holds_its_width() -> None:
    def script(asked: Asked) -> Reply:
        if asked.signature == "ReActStep":
            return act("search", f"word{asked.number}")
        return {"answer": "Harwick"}

    program = ReActRAG(shelf(), variant="tree", branching=3, width=2, max_steps=2)
    prediction, lm, _ = ask(program, script, QUESTION)
    assert prediction.counts["pruned_width"] == 1 + 4
    assert (len(lm.asked), prediction.stop_reason) == (3 + 6 + 1, "max_steps")
    paths = [s.notes["path"] for s in prediction.steps if s.action == "search"]
    assert paths == ["1", "2", "1.1", "2.1"]


@pytest.mark.parametrize(
    ("select", "answer"), [("vote", "Harwick"), ("first", "Eastmere"), ("read", "")]
)
def test_tree_selects_as_told_and_never_a_refusal(select: Any, answer: str) -> None:
    knobs = ReActKnobs(select=select)
    tree = StepTree([], knobs, CorpusTools(Trace("?", shelf(), Budget(9, 9)), knobs))
    tree.answers = ["unknown", "Eastmere", "Harwick", "Unknown", "the Harwick", "unknown"]
    assert tree.selected() == answer


def test_a_tree_that_cannot_be_read_is_answered_by_the_reader() -> None:
    def script(asked: Asked) -> Reply:
        return "Hm." if asked.signature == "ReActStep" else {"answer": "Harwick"}

    prediction, _, _ = ask(ReActRAG(shelf(), variant="tree"), script, QUESTION)
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "no_progress")
