"""ReAct's tools and loop, by scripted conversations."""

from __future__ import annotations

import re
from typing import Any, get_args

import pytest

from ragbench.programs.core import argument_text
from ragbench.programs.core.budget import Budget
from ragbench.programs.core.tool_loop import REPEATED
from ragbench.programs.core.trace import Trace
from ragbench.programs.react.program import ReActRAG
from ragbench.programs.react.tools import CorpusTools, PageTools
from ragbench.programs.react.tree import Selection, StepTree
from ragbench.retrievers.base import Corpus, Passage, Retriever
from ragbench.retrievers.factory import make_retriever
from tests.fakes import Asked, Reply, ScriptedLM
from tests.programs.shelf import ask, converse, shelf

QUESTION = "Where was the author of Salt Road born?"


def act(tool: str, argument: str = "", thought: str = "I need more.") -> dict[str, Any]:
    return {"thought": thought, "tool": tool, "argument": argument}


FINISH = act("finish", "Harwick", "Harwick it is.")


def observations(prediction: Any) -> list[str]:
    return [step.observation for step in prediction.steps]


# -- seed


def unstarted(**knobs: Any) -> ReActRAG:
    """The program whose model makes the first search as well."""
    return ReActRAG(shelf(), initial_retrieval=False, **knobs)


def test_the_question_is_searched_before_the_first_turn() -> None:
    prediction, lm, _ = converse(
        ReActRAG(shelf()), QUESTION, ReActStep=[act("search", "Tam Quill"), FINISH]
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
            {"tool": "search", "argument": "Orla Venn"},
            {"tool": "finish", "argument": "Harwick"},
        ],
    )
    assert list(lm.asked[0].fields) == ["tool", "argument"]
    assert prediction.steps[0].thought == ""


def test_at_the_limit_the_answer_is_forced_from_all_passages_seen() -> None:
    prediction, lm, ledger = converse(
        ReActRAG(shelf(), max_steps=2),
        QUESTION,
        ReActStep=[act("search", "Orla Venn"), act("search", "Tam Quill")],
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
    return re.findall(r"(?m)^\[\d\] .(\w+)\(", asked.inputs["tools"]) or re.findall(
        r"(\w+)\(\w+\):", asked.inputs["tools"]
    )


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
    both = ["search", "lookup", "finish"]
    assert [tools_of(asked) for asked in lm.asked] == [
        ["search", "finish"],
        both,
        ["lookup", "finish"],
        ["lookup", "finish"],  # a look-up without a result is nothing new
        both,
    ]
    assert prediction.counts["withdrawn_tool"] == 2
    shown = lm.asked[2].inputs["trajectory"]
    assert (shown.count("(Orla Venn) showed"), shown.count("I need more.")) == (2, 1)


def test_two_steps_that_show_nothing_new_end_the_loop() -> None:
    search, look = act("search", "Orla Venn"), act("lookup", "Orla Venn")
    prediction, lm, _ = converse(
        unstarted(),
        QUESTION,
        ReActStep=[search, look, search, look],
        AnswerWithHints=[{"answer": "Harwick"}],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "no_progress")
    assert tools_of(lm.asked[3]) == ["lookup", "finish"]


def test_a_withdrawn_tool_used_all_the_same_is_no_progress() -> None:
    prediction, _, _ = converse(
        ReActRAG(shelf()),
        QUESTION,
        ReActStep=[act("search", QUESTION)] * 2,
        AnswerWithHints=[{"answer": "Harwick"}],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "no_progress")


def test_an_answer_given_when_stuck_is_left_to_the_reader_of_the_passages() -> None:
    prediction, _, _ = converse(
        ReActRAG(shelf()),
        QUESTION,
        ReActStep=[act("search", QUESTION), act("finish", "Eastmere")],
        AnswerWithHints=[{"answer": "Harwick"}],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "no_progress")
    assert prediction.counts["answer_when_stuck"] == 1


def test_an_answer_given_when_stuck_stands_where_none_is_forced() -> None:
    prediction, _, _ = converse(
        ReActRAG(shelf(), force_answer=False),
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


# -- page


def library() -> Retriever:
    pages = {
        "Milo Ferrant": "Milo Ferrant was a painter. He lived in Ostrow. He painted the sea. "
        "In Ostrow he met Ada. They moved away. He died in Ostrow. The town mourned.",
        "Ostrow (town)": "Ostrow is a town by the sea.",
        "Ferrant Prize": "The Ferrant Prize is given to a painter each year.",
    }
    return make_retriever("bm25", Corpus([Passage(t, t, text) for t, text in pages.items()]))


def page_tools() -> PageTools:
    trace = Trace("Who?", library(), Budget(9, 9))
    return PageTools(trace, k=5, snippet_words=60)


def test_page_search_shows_the_first_five_sentences_of_the_page_of_that_title() -> None:
    shown = page_tools().search("milo ferrant")
    assert shown.startswith("Milo Ferrant was a painter.")
    assert shown.endswith("They moved away.")


def test_page_search_names_similar_titles_where_none_fits() -> None:
    assert page_tools().search("painter Ferrant") == (
        "Could not find painter Ferrant. Similar: Ferrant Prize, Milo Ferrant."
    )
    assert page_tools().search("zebra") == "Could not find zebra. Similar: none."


def test_page_search_reaches_a_title_without_its_bracket() -> None:
    assert page_tools().search("Ostrow") == "Ostrow is a town by the sea."


def test_page_search_opens_the_page_of_the_exact_title_wherever_it_ranks() -> None:
    pages = {"It": "A novel by King.", "it girl": "It is a phrase.", "The": "A word."}
    trace = Trace(
        "?",
        make_retriever("bm25", Corpus([Passage(t, t, text) for t, text in pages.items()])),
        Budget(9, 9),
    )
    tools = PageTools(trace, k=1, snippet_words=60)
    assert tools.search("it") == "A novel by King."
    assert tools.search("The") == "A word."
    assert [(search.query, search.hits[0][0]) for search in trace.searches] == [
        ("it", "It"),
        ("The", "The"),
    ]


def test_page_lookup_walks_the_open_page_one_hit_at_a_time() -> None:
    tools = page_tools()
    assert tools.lookup("Ostrow") == "No page is open. Use search first."
    tools.search("Milo Ferrant")
    assert [tools.lookup("ostrow") for _ in range(4)] == [
        "(Result 1 / 3) He lived in Ostrow.",
        "(Result 2 / 3) In Ostrow he met Ada.",
        "(Result 3 / 3) He died in Ostrow.",
        "No more results.",
    ]
    assert tools.lookup("sea") == "(Result 1 / 1) He painted the sea."
    assert tools.lookup("Ostrow") == "(Result 1 / 3) He lived in Ostrow."  # a new text starts anew
    tools.search("Ostrow")
    assert tools.lookup("sea") == "(Result 1 / 1) Ostrow is a town by the sea."


def test_a_failed_page_search_leaves_the_open_page_open() -> None:
    tools = page_tools()
    tools.search("Milo Ferrant")
    tools.search("zebra")
    assert tools.lookup("Ada") == "(Result 1 / 1) In Ostrow he met Ada."


def test_repeated_lookups_are_progress_while_the_cursor_moves() -> None:
    look = act("lookup", "Ostrow")
    prediction, _, _ = converse(
        ReActRAG(library(), variant="page"),
        "Where did Milo Ferrant die?",
        ReActStep=[
            act("search", "Milo Ferrant"),
            look,
            look,
            look,
            act("finish", "Ostrow"),
        ],
    )
    assert prediction.stop_reason == "answered"


def test_corpus_lookup_uses_the_corpus_own_sentences() -> None:
    passage = Passage("1", "A", "One two. three", sentences=("One two.", "three"))
    trace = Trace("?", make_retriever("bm25", Corpus([passage])), Budget(9, 9))
    tools = CorpusTools(trace, k=1, snippet_words=5)
    assert tools.lookup("two") == "A | One two. three"  # nothing is found yet: this searches
    assert trace.counts["lookup_as_search"] == 1
    assert tools.lookup("four") == "No sentence has this text."
    assert tools.lookup("three") == "A [1] three"


# -- dspy


def turn(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"next_thought": "Hm.", "next_tool_name": tool, "next_tool_args": arguments}


def test_dspy_spends_one_more_call_on_the_answer() -> None:
    prediction, lm, ledger = converse(
        ReActRAG(shelf(), variant="dspy"),
        QUESTION,
        ReActStep=[turn("search", query="Orla Venn"), turn("finish")],
        DirectAnswer=[{"answer": "Harwick"}],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "answered")
    assert len(ledger.calls) == 3
    assert "She was born in Harwick" in lm.asked[1].prompt
    assert [step.action for step in prediction.steps] == ["search", "finish", "answer"]


def test_dspy_survives_replies_that_cannot_be_read() -> None:
    prediction, lm, _ = converse(
        ReActRAG(shelf(), variant="dspy"),
        QUESTION,
        ReActStep=["?", "?"],
        DirectAnswer=[{"answer": "Harwick"}],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "parse_fallback")
    assert [search.query for search in prediction.searches] == [QUESTION]
    assert "Orla Venn wrote" in lm.asked[-1].prompt


def test_dspy_answers_from_the_passages_where_the_extraction_fails() -> None:
    prediction, _, _ = converse(
        ReActRAG(shelf(), variant="dspy"),
        QUESTION,
        ReActStep=[turn("finish")],
        DirectAnswer=["?"],
        AnswerWithHints=[{"answer": "Harwick"}],
    )
    assert prediction.answer == "Harwick"


def test_dspy_is_told_when_no_search_is_left() -> None:
    prediction, _, _ = converse(
        ReActRAG(shelf(), variant="dspy", max_retrievals=0),
        QUESTION,
        ReActStep=[turn("search", query="Orla Venn"), turn("finish")],
        DirectAnswer=[{"answer": "Harwick"}],
    )
    assert prediction.steps[0].observation == "No search is left. Use finish."


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"words": "a", "k": 3}, "a"),
        ({"k": 3, "words": "a"}, "a"),
        ({"query": " a  b "}, "a b"),
        ({"words": ""}, ""),
        ({"words": None, "query": "a"}, "a"),
        ({"words": ["a", "b"]}, "a b"),
        ({"words": {"text": "a"}}, "a"),
        ({"words": 1912}, "1912"),
        ({"words": [None, True, {}]}, ""),
        ({}, ""),
        (None, ""),
        ("a", "a"),
    ],
)
def test_the_one_text_among_a_models_arguments(arguments: Any, text: str) -> None:
    assert argument_text(arguments, "words") == text


@pytest.mark.parametrize(
    ("arguments", "query", "mended"),
    [
        ({"words": "Orla Venn"}, "Orla Venn", 0),
        ({"query": "Orla Venn"}, "Orla Venn", 1),
        ({"words": ["Orla", "Venn"]}, "Orla Venn", 1),
        ({"words": "Orla Venn", "k": 3}, "Orla Venn", 1),
        ({"self": "Orla Venn"}, "Orla Venn", 1),
        ({"words": {"": []}}, None, 1),
        ({}, None, 1),
    ],
)
def test_dspy_mends_and_counts_the_arguments_of_a_tool(
    arguments: dict[str, Any], query: str | None, mended: int
) -> None:
    search = {"next_thought": "Hm.", "next_tool_name": "search", "next_tool_args": arguments}
    prediction, lm, _ = converse(
        ReActRAG(shelf(), variant="dspy"),
        QUESTION,
        ReActStep=[search, turn("finish", answer="Harwick")],
        DirectAnswer=[{"answer": "Harwick"}],
    )
    assert [search.query for search in prediction.searches] == ([query] if query else [])
    assert prediction.counts["argument_repair"] == mended + 1  # finish takes none
    assert "Execution error" not in lm.asked[-1].prompt
    if query is None:
        assert prediction.steps[0].observation == "search needs the argument words."


def test_dspy_does_not_hide_an_error_of_the_retriever() -> None:
    class Broken(type(shelf())):  # type: ignore[misc]
        def search_many(self, queries: Any, *, k: int) -> Any:
            raise ValueError("the index is gone")

    with pytest.raises(ValueError, match="the index is gone"):
        converse(
            ReActRAG(Broken(shelf().corpus), variant="dspy"),
            QUESTION,
            ReActStep=[turn("search", words="Orla Venn")],
        )


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
def test_tree_selects_as_told_and_never_a_refusal(select: Selection, answer: str) -> None:
    box = CorpusTools(Trace("?", shelf(), Budget(9, 9)), k=5, snippet_words=9)
    tree = StepTree(box, [], max_steps=1, width=9, similarity=1.0)
    tree.answers = ["unknown", "Eastmere", "Harwick", "Unknown", "the Harwick", "unknown"]
    assert tree.selected(select) == answer


def test_a_tree_that_cannot_be_read_searches_the_question() -> None:
    def script(asked: Asked) -> Reply:
        return "Hm." if asked.signature == "ReActStep" else {"answer": "Harwick"}

    prediction, _, _ = ask(ReActRAG(shelf(), variant="tree"), script, QUESTION)
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "no_progress")
    assert [search.query for search in prediction.searches] == [QUESTION]
