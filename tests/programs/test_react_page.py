"""The tools of ReAct."""

from ragbench.programs.core.tools import ToolUse
from ragbench.programs.core.trace import Budget, Trace
from ragbench.programs.react import CorpusTools, PageTools, ReActKnobs, ReActRAG, ReActTools
from ragbench.retrievers.base import Corpus, Passage, Retriever
from ragbench.retrievers.factory import make_retriever
from tests.programs.shelf import converse
from tests.programs.test_react import act


def library() -> Retriever:
    pages = {
        "Milo Ferrant": "Milo Ferrant was a painter. He lived in Ostrow. He painted the sea. "
        "In Ostrow he met Ada. They moved away. He died in Ostrow. The town mourned.",
        "Ostrow (town)": "Ostrow is a town by the sea.",
        "Ferrant Prize": "The Ferrant Prize is given to a painter each year.",
    }
    return make_retriever("bm25", Corpus([Passage(t, t, text) for t, text in pages.items()]))


def look(tools: ReActTools, text: str) -> str:
    return tools.use(ToolUse("lookup", {"text": text})).observation


def page_tools() -> PageTools:
    trace = Trace("Who?", library(), Budget(9, 9))
    return PageTools(trace, ReActKnobs())


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
    tools = PageTools(trace, ReActKnobs(k=1))
    assert tools.search("it") == "A novel by King."
    assert tools.search("The") == "A word."
    assert [(search.query, search.hits[0][0]) for search in trace.searches] == [
        ("it", "It"),
        ("The", "The"),
    ]


def test_page_lookup_walks_the_open_page_one_hit_at_a_time() -> None:
    tools = page_tools()
    assert look(tools, "Ostrow") == "No page is open. Use search first."
    tools.search("Milo Ferrant")
    assert [look(tools, "ostrow") for _ in range(4)] == [
        "(Result 1 / 3) He lived in Ostrow.",
        "(Result 2 / 3) In Ostrow he met Ada.",
        "(Result 3 / 3) He died in Ostrow.",
        "No more results.",
    ]
    assert look(tools, "sea") == "(Result 1 / 1) He painted the sea."
    assert look(tools, "Ostrow") == "(Result 1 / 3) He lived in Ostrow."  # a new text starts anew
    tools.search("Ostrow")
    assert look(tools, "sea") == "(Result 1 / 1) Ostrow is a town by the sea."


def test_a_failed_page_search_leaves_the_open_page_open() -> None:
    tools = page_tools()
    tools.search("Milo Ferrant")
    tools.search("zebra")
    assert look(tools, "Ada") == "(Result 1 / 1) In Ostrow he met Ada."


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


def test_corpus_tools_show_first_words_and_the_corpus_own_sentences() -> None:
    passage = Passage("1", "A", "One two. three four", sentences=("One two.", "three four"))
    trace = Trace("?", make_retriever("bm25", Corpus([passage])), Budget(9, 9))
    tools = CorpusTools(trace, ReActKnobs(k=1, snippet_words=5))
    assert look(tools, "two") == "No sentence has this text."  # nothing is found yet
    assert tools.search("three") == "A | One two. three ..."
    assert look(tools, "five") == "No sentence has this text."
    assert look(tools, "three") == "A [1] three four"
    assert look(tools, "a") == "A [0] One two."  # a name in the title
