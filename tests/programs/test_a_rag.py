"""A-RAG's tools, loop and limits, by scripted conversations."""

from typing import Any, get_args

import pytest

from ragbench.errors import KnobError
from ragbench.ledger import open_ledger
from ragbench.programs.a_rag import ARAG
from ragbench.retrievers.base import Corpus, Passage, Retriever
from ragbench.retrievers.factory import make_retriever
from tests.programs.shelf import TOWN, converse, ended, shelf

EVERY = ("keyword_search", "semantic_search", "chunk_read", "finish")
#: The tools that a variant leaves out.
VARIANTS = {
    "full": (), "naive": ("keyword_search", "chunk_read"), "no_keyword": ("keyword_search",),
    "no_semantic": ("semantic_search",), "no_read": ("chunk_read",),
}  # fmt: skip


def act(tool: str, *arguments: str, thought: str = "") -> dict[str, Any]:
    answer = ", ".join(arguments) if tool == "finish" else ""
    used = [] if tool == "finish" else list(arguments)
    return {"thought": thought, "answer": answer, "tool": tool, "arguments": used}


FINISH = act("finish", "Harwick", thought="Harwick it is.")


def talk(program: ARAG, *replies: Any, question: str = TOWN) -> tuple[Any, Any]:
    """Prediction and LM of a conversation of exactly these replies."""
    prediction, lm, _ = converse(program, question, ToolStep=replies)
    return prediction, lm


def observations(prediction: Any) -> list[str]:
    return [step.observation for step in prediction.steps]


def test_a_search_a_reading_and_an_answer() -> None:
    prediction, lm = talk(
        ARAG(shelf()), act("keyword_search", "salt road", "orla"), act("chunk_read", "0"), FINISH
    )
    assert ended(prediction) == ("Harwick", "answered")
    assert observations(prediction) == [
        "Chunk 1 | Salt Road: ... Salt Road is a novel by Orla Venn and Tam Quill about a "
        "caravan ...\n"
        "Chunk 0 | Orla Venn: ... Orla Venn wrote the novel Salt Road ...",
        "Chunk 0 | Orla Venn:\nOrla Venn wrote the novel Salt Road. She was born in Harwick.",
        "Harwick",
    ]
    # 9 letters of "salt road" and 4 of "orla", each once in both texts and once in one title.
    assert [search.hits for search in prediction.searches] == [
        (("Salt Road", 22.0), ("Orla Venn", 17.0))
    ]
    assert "She was born in Harwick." in lm.asked[2].inputs["trajectory"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_variant_offers_and_tells_of_its_own_tools_alone(variant: str) -> None:
    program, without = ARAG(shelf(), variant=variant), VARIANTS[variant]
    tool = program.act.signature.output_fields["tool"]
    assert get_args(tool.annotation) == tuple(name for name in EVERY if name not in without)
    _, lm = talk(program, FINISH)
    assert [name for name in without if name in lm.asked[0].prompt] == []
    assert ("Read a chunk whole" in lm.asked[0].prompt) is ("chunk_read" not in without)


def chunks() -> Retriever:
    texts = ["The comet came in June.", "Nobody saw the comet leave.", "Then it rained for days."]
    passages = tuple(Passage(f"c{n}", "", text) for n, text in enumerate(texts))
    return make_retriever("bm25", Corpus(passages, view="chunk"))


def test_chunks_name_their_neighbours_and_paragraphs_do_not() -> None:
    prediction, _ = talk(ARAG(chunks()), act("chunk_read", "0, 1"), FINISH)
    assert observations(prediction)[0] == (
        "Chunk 0:\nThe comet came in June.\n(Beside it: 1.)\n\n"
        "Chunk 1:\nNobody saw the comet leave.\n(Beside it: 0 and 2.)"
    )


@pytest.mark.parametrize(("variant", "embedded"), [("naive", 5 + 1), ("no_read", 9 + 1)])
def test_without_chunk_read_searches_show_whole_chunks(
    variant: str, embedded: int, embedder: Any
) -> None:
    program = ARAG(shelf(), variant=variant, k=1, embedder=variant)
    prediction, _ = talk(program, act("semantic_search", "Orla Venn wrote"), FINISH)
    whole = ": Orla Venn wrote the novel Salt Road. She was born in Harwick."
    assert observations(prediction)[0].endswith(whole)
    assert len(embedder.embedded) == embedded  # naive embeds chunks and no sentence


@pytest.mark.parametrize(
    ("limit", "reason"), [({"max_steps": 1}, "max_steps"), ({"token_budget": 100}, "budget")]
)
def test_at_a_limit_the_same_conversation_answers_without_tools(limit: Any, reason: str) -> None:
    search = act("keyword_search", "is", thought="so " * 150)
    prediction, lm = talk(ARAG(shelf(), **limit), search, FINISH)
    assert ended(prediction) == ("Harwick", reason)
    last = lm.asked[1]
    assert last.inputs["tools"].startswith("[]")
    assert "Harwick is a town" in last.inputs["trajectory"]
    assert last.inputs["steps_left"][0] == "0"


def test_each_question_has_its_own_passages_in_the_distractor_setting() -> None:
    corpus = shelf().corpus
    questions = {"Who?": (0, 1), "Where?": (3, 4)}
    asked = Corpus(corpus.passages, contexts=questions)
    program = ARAG(make_retriever("bm25", asked, setting="distractor"))
    program.prepare()  # nothing to share
    found = {}
    for question in questions:
        prediction, _ = talk(program, act("keyword_search", "a"), FINISH, question=question)
        found[question] = {pid for search in prediction.searches for pid, _ in search.hits}
    assert found == {"Who?": {"Orla Venn", "Salt Road"}, "Where?": {"Harwick", "Eastmere"}}


def test_prepare_embeds_the_corpus_so_that_no_question_does(embedder: Any) -> None:
    program = ARAG(shelf(), embedder="prepared")
    with open_ledger() as ledger:
        program.prepare()
        program.prepare()
    assert len(embedder.embedded) == 9
    assert [call.kind for call in ledger.calls] == ["embed"]
    talk(program, act("semantic_search", "born"), FINISH)
    assert len(embedder.embedded) == 10


def test_one_search_must_be_on() -> None:
    with pytest.raises(KnobError, match="are both off; leave one on"):
        ARAG(shelf(), keyword_search=False, semantic_search=False)
    with pytest.raises(KnobError, match="k=21 is not allowed"):
        ARAG(shelf(), k=21)
