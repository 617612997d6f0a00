"""ReAct's loop over the tools of `seed`, by scripted conversations."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from ragbench.programs.core.budget import Budget
from ragbench.programs.core.tool_loop import REPEATED, Done, ToolUse, shown_again
from ragbench.programs.core.tool_turns import rendered
from ragbench.programs.core.trace import Trace
from ragbench.programs.react.program import ReActRAG
from ragbench.programs.react.tools import CorpusTools
from ragbench.retrievers.base import Corpus, Passage
from ragbench.retrievers.factory import make_retriever
from tests.fakes import Asked, Reply
from tests.programs.react_turns import FINISH, QUESTION, act, observations, unstarted
from tests.programs.shelf import ask, converse, shelf


def test_the_question_is_searched_before_the_first_turn() -> None:
    prediction, lm, _ = converse(
        ReActRAG(shelf()), QUESTION, ReActStep=[act("search", "Tam Quill", "I need more."), FINISH]
    )
    assert [search.query for search in prediction.searches] == [QUESTION, "Tam Quill"]
    first, second = (asked.inputs["trajectory"] for asked in lm.asked)
    assert first.startswith(f"Step 1.\nsearch({QUESTION}) showed:\nOrla Venn | ")
    assert "Step 2. I need more.\nsearch(Tam Quill) showed:" in second
    assert [asked.inputs["steps_left"][0] for asked in lm.asked] == ["7", "6"]
    assert "lookup(" in lm.asked[0].inputs["tools"]


def test_seed_searches_looks_up_and_finishes() -> None:
    prediction, lm, ledger = converse(
        unstarted(),
        QUESTION,
        ReActStep=[act("search", "Orla Venn"), act("lookup", "BORN in"), FINISH],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "answered")
    assert len(ledger.calls) == 3
    searched, looked_up, answer = observations(prediction)
    assert searched.startswith("Orla Venn | Orla Venn wrote the novel")
    # All matching sentences of all passages seen, with title and index.
    assert looked_up == "Orla Venn [1] She was born in Harwick."
    assert answer == "Harwick"
    assert "She was born in Harwick." in lm.asked[2].inputs["trajectory"]
    assert prediction.steps[0].pids == ("Orla Venn", "Salt Road")


def test_the_tool_is_narrowed_to_the_programs_own() -> None:
    program = ReActRAG(shelf())
    assert get_args(program.act.signature.output_fields["tool"].annotation) == (
        "search",
        "lookup",
        "finish",
    )
    bare = ReActRAG(shelf(), lookup=False)
    assert get_args(bare.act.signature.output_fields["tool"].annotation) == ("search", "finish")
    _, lm, _ = converse(bare, QUESTION, ReActStep=[FINISH])
    assert "lookup" not in lm.asked[0].prompt


def test_act_only_has_no_thoughts() -> None:
    prediction, lm, _ = converse(
        ReActRAG(shelf(), act_only=True),
        QUESTION,
        ActStep=[
            {"answer": "", "tool": "search", "argument": "Orla Venn"},
            {"answer": "Harwick", "tool": "finish", "argument": ""},
        ],
    )
    assert list(lm.asked[0].fields) == ["answer", "tool", "argument"]
    assert prediction.steps[0].thought == ""


def test_at_the_limit_the_answer_is_forced_from_all_passages_seen() -> None:
    prediction, lm, ledger = converse(
        ReActRAG(shelf(), max_steps=2),
        QUESTION,
        ReActStep=[act("search", "Orla Venn", "I need more."), act("search", "Tam Quill")],
        AnswerWithHints=[{"answer": "Harwick"}],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "max_steps")
    assert len(ledger.calls) == 3
    assert "Tam Quill is a writer" in lm.asked[-1].inputs["context"]
    assert "I need more." in lm.asked[-1].inputs["notes"]


def test_without_force_answer_the_limit_gives_none() -> None:
    prediction, _, _ = converse(
        ReActRAG(shelf(), max_steps=1, force_answer=False),
        QUESTION,
        ReActStep=[act("search", "Orla Venn")],
    )
    assert (prediction.answer, prediction.stop_reason) == ("noanswer", "max_steps")


def test_an_unreadable_reply_searches_the_question_once_then_forces_an_answer() -> None:
    prediction, _, _ = converse(
        unstarted(),
        QUESTION,
        ReActStep=["Harwick, of course.", "I said Harwick."],
        AnswerWithHints=[{"answer": "Eastmere"}],
    )
    assert [search.query for search in prediction.searches] == [QUESTION]
    assert (prediction.answer, prediction.stop_reason) == ("Eastmere", "parse_fallback")
    assert prediction.counts["parse_fallback"] == 2


def tools_of(asked: Asked) -> list[str]:
    """Names of the tools that a turn offers."""
    return re.findall(r"(\w+)\(\w+\):", asked.inputs["tools"])


def test_a_tool_that_shows_nothing_new_is_withdrawn_until_something_new_is_seen() -> None:
    again = act("search", "Orla Venn")
    prediction, lm, _ = converse(
        unstarted(),
        QUESTION,
        ReActStep=[again, again, act("lookup", "no such words"), act("lookup", "Orla"), FINISH],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "answered")
    assert [search.cached for search in prediction.searches] == [False, True]
    assert [REPEATED in asked.inputs["trajectory"] for asked in lm.asked] == [
        *(False, False),  # the second time it is told so
        *(True, True, True),
    ]
    both = ["search", "lookup"]
    assert [tools_of(asked) for asked in lm.asked] == [
        ["search"],
        both,
        ["lookup"],
        ["lookup"],  # a look-up without a result is nothing new
        both,
    ]
    assert prediction.counts["withdrawn_tool"] == 2
    assert lm.asked[2].inputs["trajectory"].count("(Orla Venn) showed") == 2


def test_a_repeated_step_is_shown_without_its_thought() -> None:
    use = ToolUse("search", {"words": "Orla Venn"})
    steps = [
        Done(0, "Look.", use, "Orla Venn | a novelist"),
        Done(1, "Once more.", use, "Orla Venn | a novelist"),
    ]
    text = rendered(shown_again(steps, 1000))
    assert text.endswith(f"Step 2.\nsearch(Orla Venn) showed:\n{REPEATED}")


def test_the_only_tool_is_not_withdrawn() -> None:
    again = act("search", "Orla Venn")
    _, lm, _ = converse(
        unstarted(lookup=False),
        QUESTION,
        ReActStep=[again, again, act("search", "Tam Quill"), FINISH],
    )
    assert {tuple(tools_of(asked)) for asked in lm.asked} == {("search",)}


def test_two_steps_that_show_nothing_new_end_the_loop() -> None:
    search, look = act("search", "Orla Venn"), act("lookup", "Orla Venn")
    prediction, lm, _ = converse(
        unstarted(),
        QUESTION,
        ReActStep=[search, look, search, look],
        AnswerWithHints=[{"answer": "Harwick"}],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "no_progress")
    assert tools_of(lm.asked[3]) == ["lookup"]


def test_a_withdrawn_tool_used_all_the_same_is_no_progress() -> None:
    prediction, _, _ = converse(
        ReActRAG(shelf()),
        QUESTION,
        ReActStep=[act("search", QUESTION)] * 2,
        AnswerWithHints=[{"answer": "Harwick"}],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "no_progress")


def test_an_answer_after_a_repeated_step_stands() -> None:
    prediction, _, _ = converse(
        ReActRAG(shelf()),
        QUESTION,
        ReActStep=[act("search", QUESTION), act("finish", "Eastmere")],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Eastmere", "answered")


def test_the_question_is_no_answer() -> None:
    prediction, _, _ = converse(
        ReActRAG(shelf()),
        QUESTION,
        ReActStep=[act("finish", QUESTION.lower())],
        AnswerWithHints=[{"answer": "Harwick"}],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "no_progress")
    assert prediction.counts["echoed_question"] == 1


def test_a_message_of_a_tool_is_no_answer() -> None:
    prediction, _, _ = converse(
        ReActRAG(shelf()),
        QUESTION,
        ReActStep=[
            act("search", "Orla Venn"),
            act("lookup", "no such words"),
            act("finish", "No sentence has this text."),
        ],
        AnswerWithHints=[{"answer": "Harwick"}],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "no_progress")
    assert prediction.counts["copied_observation"] == 1


def test_a_name_in_a_title_is_found_by_lookup() -> None:
    _, lm, _ = converse(
        ReActRAG(shelf()),
        QUESTION,
        ReActStep=[act("search", "Orla Venn"), act("lookup", "orla venn"), FINISH],
    )
    shown = lm.asked[2].inputs["trajectory"]
    assert "Orla Venn [0]" in shown.split("lookup(orla venn) showed:")[1]


def test_lookup_is_offered_once_there_is_something_to_look_in() -> None:
    _, lm, _ = converse(unstarted(), QUESTION, ReActStep=[act("search", "Orla Venn"), FINISH])
    assert ["lookup(" in asked.inputs["tools"] for asked in lm.asked] == [False, True]


def test_a_search_for_the_tools_own_description_is_one_for_the_question() -> None:
    prediction, _, _ = converse(
        unstarted(), QUESTION, ReActStep=[act("search", "find passages"), FINISH]
    )
    assert [search.query for search in prediction.searches] == [QUESTION]
    assert prediction.counts["copied_tool"] == 1


def test_where_nothing_was_found_the_question_is_searched_before_the_forced_answer() -> None:
    prediction, lm, _ = converse(
        unstarted(max_steps=1),
        QUESTION,
        ReActStep=[act("search", "zzyzx")],
        AnswerWithHints=[{"answer": "Harwick"}],
    )
    assert [search.query for search in prediction.searches] == ["zzyzx", QUESTION]
    assert "Salt Road" in lm.asked[-1].inputs["context"]


def test_a_blank_finish_is_answered_from_the_passages() -> None:
    prediction, _, _ = converse(
        unstarted(),
        QUESTION,
        ReActStep=[act("finish")],
        AnswerWithHints=[{"answer": "Harwick"}],
    )
    assert prediction.answer == "Harwick"
    assert [search.query for search in prediction.searches] == [QUESTION]


def test_advice_where_the_argument_is_missing() -> None:
    prediction, _, _ = converse(
        unstarted(), QUESTION, ReActStep=[act("search"), act("lookup", ""), FINISH]
    )
    assert observations(prediction)[:2] == [
        "search needs the argument words.",
        "lookup needs the argument name.",
    ]


def test_the_oldest_steps_leave_a_prompt_that_grows_too_long() -> None:
    def script(asked: Asked) -> Reply:
        if asked.signature == "ReActStep":
            return act(
                "search", f"Salt Road {asked.number}", f"Thought {asked.number}. {'so ' * 60}"
            )
        return {"answer": "x"}

    _, lm, _ = ask(ReActRAG(shelf(), context_tokens=150, max_steps=3), script)
    shown = lm.asked[2].inputs["trajectory"]
    assert "Thought 2." in shown
    assert "Thought 1." not in shown


def test_a_passage_shown_before_is_named_and_steps_left_are_told() -> None:
    _, lm, _ = converse(
        unstarted(),
        QUESTION,
        ReActStep=[act("search", "Orla Venn"), act("search", "Orla Venn novel"), FINISH],
    )
    assert "Orla Venn (shown above)" in lm.asked[2].inputs["trajectory"]
    assert lm.asked[2].inputs["trajectory"].count("She was born in Harwick") == 1
    assert [asked.inputs["steps_left"][0] for asked in lm.asked] == ["7", "6", "5"]


def test_short_passages_are_shown_whole_and_long_ones_cut() -> None:
    texts = {"Short": "word " * 100, "Longer": "word " * 145, "Long": "word " * 300}
    corpus = Corpus([Passage(t, t, text) for t, text in texts.items()])
    trace = Trace("?", make_retriever("bm25", corpus), Budget(9, 9))
    tools = CorpusTools(trace, k=3, snippet_words=120)
    shown = {line.split(" | ")[0]: line for line in tools.search("word").split("\n")}
    assert {title: line.endswith(" ...") for title, line in shown.items()} == {
        "Short": False,
        "Longer": False,
        "Long": True,
    }


def test_after_the_cut_stand_the_sentences_with_what_was_asked_for() -> None:
    long = "He went on and on. " * 40
    text = (
        f"Milo Ferrant was a painter. {long} His wife Ada died in Ostrow. {long} He died in Lome."
    )
    passage = Passage("Milo", "Milo Ferrant", text)
    trace = Trace("?", make_retriever("bm25", Corpus([passage])), Budget(9, 9))
    tools = CorpusTools(trace, k=1, snippet_words=40)

    def ending(query: str) -> list[str]:
        return tools.search(query).split(" ... ")[1:]

    assert ending("Milo Ferrant wife") == ["His wife Ada died in Ostrow. ..."]
    assert ending("Milo Ferrant Lome died") == ["He died in Lome. ..."]
    assert ending("Milo Ferrant wife Lome") == [
        "His wife Ada died in Ostrow.",
        "He died in Lome. ...",
    ]
    assert tools.search("Milo Ferrant painter").endswith("He went ...")


@pytest.mark.parametrize(
    ("read", "answer"), [("Eastmere", "Eastmere"), ("unknown", "Harwick"), ("", "Harwick")]
)
def test_an_answer_beside_a_tool_is_a_guess_that_the_reader_settles(read: str, answer: str) -> None:
    guess = {**act("search", "Orla Venn"), "answer": "Harwick"}
    prediction, lm, _ = converse(
        unstarted(), QUESTION, ReActStep=[guess, guess], AnswerWithHints=[{"answer": read}]
    )
    assert (prediction.answer, prediction.stop_reason) == (answer, "answered")
    assert [search.query for search in prediction.searches] == ["Orla Venn"]  # a guess before it
    assert prediction.counts["guess_beside_tool"] == 1
    assert len(lm.asked) == 3


def test_a_guess_stands_where_no_answer_is_forced() -> None:
    guess = {**act("search", "Orla Venn"), "answer": "Harwick"}
    prediction, _, _ = converse(unstarted(force_answer=False), QUESTION, ReActStep=[guess, guess])
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "answered")


def test_a_step_copied_from_the_prompt_is_no_answer() -> None:
    finish = {"thought": "x", "answer": "", "tool": "finish", "argument": "search(Orla Venn)"}
    prediction, _, _ = converse(
        unstarted(),
        QUESTION,
        ReActStep=[act("search", "Orla Venn"), finish],
        AnswerWithHints=[{"answer": "Harwick"}],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "no_progress")
    assert prediction.counts["copied_step"] == 1


@pytest.mark.parametrize("refusal", ["The passages do not say.", "unknown", ""])
def test_a_finish_without_an_answer_is_left_to_the_reader(refusal: str) -> None:
    prediction, _, _ = converse(
        unstarted(),
        QUESTION,
        ReActStep=[act("search", "Orla Venn"), act("finish", refusal)],
        AnswerWithHints=[{"answer": "Harwick"}],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "answered")
    assert prediction.counts["finish_without_answer"] == 1


def test_an_answer_given_to_finish_as_its_argument_counts() -> None:
    finish = {"thought": "x", "answer": "", "tool": "finish", "argument": "Harwick"}
    prediction, _, _ = converse(
        unstarted(), QUESTION, ReActStep=[act("search", "Orla Venn"), finish]
    )
    assert prediction.answer == "Harwick"


def test_a_repeated_thought_is_asked_for_once_more_and_not_shown_then() -> None:
    first = act("search", "Orla Venn", "The author is missing.")
    copy = act("lookup", "Salt", "the author is missing")
    prediction, lm, _ = converse(
        unstarted(),
        QUESTION,
        ReActStep=[first, copy, act("lookup", "born", "She is found."), FINISH],
    )
    assert prediction.counts["resampled"] == 1
    assert [step.thought for step in prediction.steps][:2] == [first["thought"], "She is found."]
    shown = [asked.inputs["trajectory"] for asked in lm.asked]
    assert [text.count("The author is missing.") for text in shown] == [0, 1, 0, 1]
    assert ["Say what the last step shows." in text for text in shown] == [
        False,
        False,
        True,
        False,
    ]
    assert [asked.request.config.temperature for asked in lm.asked][2] == 0.7


def test_a_repeated_thought_beside_an_answer_ends_the_loop() -> None:
    turns = [act("search", "Orla Venn", "Found."), act("finish", "Harwick", "Found.")]
    prediction, lm, _ = converse(unstarted(), QUESTION, ReActStep=turns)
    assert (prediction.answer, len(lm.asked)) == ("Harwick", 2)


def test_a_thought_given_as_the_answer_is_left_to_the_reader() -> None:
    thought = (
        "The steps compare neither of the two towns, so the next step would be to compare them."
    )
    prediction, _, _ = converse(
        unstarted(),
        QUESTION,
        ReActStep=[act("search", "Orla Venn"), act("finish", thought, thought)],
        AnswerWithHints=[{"answer": "Harwick"}],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "no_progress")
    assert prediction.counts["echoed_thought"] == 1
