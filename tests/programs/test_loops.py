"""Programs of a call or two (direct, vanilla, multi_query, adaptive_rag), and ircot and flare."""

import json
import math
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import dspy
import pytest

from ragbench.errors import ConfigError
from ragbench.passages import Corpus, Passage
from ragbench.programs.ircot import AllLeftOutError, IRCoT
from ragbench.programs.multi_query import MultiQueryRAG
from ragbench.programs.vanilla import VanillaRAG
from ragbench.programs.workflow.adaptive_rag import AdaptiveRAG
from ragbench.programs.workflow.flare import FLARE
from ragbench.retrievers.factory import make_retriever
from tests.fakes import never_parses
from tests.programs.shelf import TOWN, ask, check, converse, shelf, step

HELD = {"reasoning": "So.", "answer": " Harwick "}


@pytest.mark.parametrize("reader", ["predict", "cot"])
def test_vanilla_searches_with_the_question_and_reads_numbered_passages(reader: str) -> None:
    sees = ["[1] Orla Venn | ", "[2] Salt Road | Salt Road is a novel"]
    read = {"AnswerFromContext": [HELD]}
    prediction, lm = check(VanillaRAG, read, searched=[TOWN], sees=sees, k=2, reader=reader)
    assert [s.k for s in prediction.searches] == [2]
    assert list(lm.asked[0].fields) == ["reasoning"] * (reader == "cot") + ["answer"]


def test_naive_rag_refuses_a_retriever_that_does_not_search_vectors() -> None:
    with pytest.raises(ConfigError, match=r"not bm25\. Use --retriever dense") as error:
        VanillaRAG(shelf(), variant="naive_rag").prepare()
    assert "\n" not in str(error.value)
    VanillaRAG(make_retriever("dense", shelf().corpus), variant="naive_rag").prepare()
    VanillaRAG(shelf()).prepare()
    misled = make_retriever("distracting", shelf().corpus, inner="dense")
    VanillaRAG(misled, variant="naive_rag").prepare()


def written(*texts: str) -> dict[str, Any]:
    return {"ExpandQueries": [{"queries": list(texts)}], "AnswerFromContext": [HELD]}


def test_multi_query_searches_with_the_question_and_each_query_then_reads_once() -> None:
    texts = ["Orla Venn birthplace", "novel Salt Road", "Harwick"]
    prediction, lm = check(MultiQueryRAG, written(*texts), searched=[TOWN, *texts], path=2)
    assert [search.k for search in prediction.searches] == [3] * 4
    assert [asked.request.config.temperature for asked in lm.asked] == [0.3, 0.0]
    # The fused ranking is read: Eastmere leads three lists and Harwick one.
    replies, sees = written("Eastmere town Tollen", "Eastmere", "Tollen"), ["[1] Eastmere |"]
    check(MultiQueryRAG, replies, question="Harwick", sees=sees, max_passages=2)
    alone = written(" Harwick\n town ", "harwick Town.")
    check(MultiQueryRAG, alone, searched=["Harwick town"], include_original=False)


def think(thought: str, answer: str = "") -> dict[str, Any]:
    return {"thought": thought, "next_step": "answer" if answer else "search", "answer": answer}


MULTI = [think("Salt Road is by Orla Venn."), think("She was born in Harwick.", "Harwick")]


@pytest.mark.parametrize(
    ("effort", "replies", "stop", "searches"),
    [
        ("none", {"DirectAnswer": [HELD]}, "direct", []),
        ("single", {"AnswerFromContext": [HELD]}, "answered", [6]),
        ("multi", {"CoTStep": MULTI, "AnswerFromContext": [HELD]}, "answered", [3, 3]),
    ],
)
@pytest.mark.parametrize("asked", [True, False])
def test_adaptive_rag_searches_by_the_effort(
    effort: str, replies: Any, stop: str, searches: list[int], asked: bool
) -> None:
    choice = {"QuestionComplexity": [{"effort": effort}]} if asked else {}
    knobs = {} if asked else {"route": effort}
    prediction, _ = check(AdaptiveRAG, {**choice, **replies}, stop=stop, **knobs)
    assert [s.k for s in prediction.searches] == searches


def test_adaptive_rag_reads_after_its_loop_as_published_and_loops_if_unreadable() -> None:
    ways = [AdaptiveRAG(shelf(), variant=variant).knobs for variant in ("gpt", "flan")]
    assert [(knobs.k, knobs.loop_k, knobs.reader) for knobs in ways] == [
        (6, 3, "cot"), (15, 6, "predict"),
    ]  # fmt: skip
    check(AdaptiveRAG, {"CoTStep": MULTI}, route="multi", variant="chain")  # no second reader
    prediction, _, _ = ask(AdaptiveRAG(shelf()), never_parses, TOWN)
    assert prediction.steps[0].observation == "multi"


NOVEL = think("Salt Road is a novel.")
FORCED = [{"answer": "Harwick"}]


@pytest.mark.parametrize("first", [True, False])
def test_ircot_searches_the_question_then_each_sentence(first: bool) -> None:
    steps = [think("Salt Road is by O. Venn. It is long."), think("Born in Harwick.", "Harwick")]
    searched = [*[TOWN][:first], "Salt Road is by O. Venn."]  # one sentence
    _, lm = check(IRCoT, {"CoTStep": steps}, searched=searched, initial_retrieval=first)
    assert (lm.asked[0].inputs["context"] != "[]") is first
    assert lm.asked[1].inputs["thoughts"].startswith("1. Salt Road is by O. Venn.")
    assert [asked.inputs["sentences_left"][0] for asked in lm.asked] == ["5", "4"]


def test_the_last_sentence_is_searched_before_the_answer_is_forced() -> None:
    steps = [think("Salt Road is by Orla Venn."), think("Harwick is in a county.")]
    replies: Any = {"CoTStep": steps, "AnswerWithHints": FORCED}
    more: Any = {"k": 1, "max_steps": 2, "stop": "max_steps"}
    searched = [TOWN, "Salt Road is by Orla Venn.", "Harwick is in a county."]
    check(IRCoT, replies, searched=searched, sees=["Harwick | Harwick is"], **more)
    check(IRCoT, replies, searched=searched[:2], last_search=False, **more)


@pytest.mark.parametrize(
    ("steps", "chain", "reason"),
    [
        ([NOVEL, think("Harwick is a town.")], 2, "max_steps"),
        ([think("It is unclear.", "Not stated in the passages")], 0, "answered"),
        ([NOVEL, think("Salt Road is a novel!")], 1, "no_progress"),
        ([think(TOWN)], 0, "no_progress"),
        (["Hm."], 0, "parse_fallback"),
        ([NOVEL], 1, "budget"),
    ],
)
def test_a_chain_without_an_answer_is_asked_for_one_of_its_own(
    steps: list[Any], chain: int, reason: str
) -> None:
    replies = {"CoTStep": steps, "AnswerWithHints": FORCED}
    limits = {"max_steps": 2, "max_calls": 2 if reason == "budget" else 50}
    _, lm = check(IRCoT, replies, stop=reason, **limits)
    assert json.loads(lm.asked[-1].inputs["notes"]) == [one["thought"] for one in steps[:chain]]


@pytest.mark.parametrize(("reply", "answer"), [({"answer": "Harwick"}, "Harwick"), ("?", "East")])
def test_paper_searches_with_facts_and_has_a_reader_that_sees_no_chain(
    reply: Any, answer: str
) -> None:
    steps = [
        think("Therefore it must be a town."),
        think("Salt Road is by Orla Venn."),
        think("Thus she was born where she grew up."),
        think("Orla Venn was born in Harwick.", "East"),
    ]
    asked, fact = "was the author of Salt Road born?", "Salt Road by Orla Venn."
    replies = {"CoTStep": steps, "AnswerFromContext": [reply]}
    searched = [asked, asked, fact, fact]
    prediction, lm = check(IRCoT, replies, answer=answer, searched=searched, variant="paper")
    assert [search.cached for search in prediction.searches] == [False, True, False, True]
    assert set(lm.asked[-1].inputs) == {"context", "question"}
    assert list(lm.asked[-1].fields) == ["reasoning", "answer"]


@pytest.mark.parametrize("view", ["paragraph", "chunk"])
def test_paper_leaves_paragraphs_of_more_than_600_words_out_but_no_chunk(view: Any) -> None:
    corpus = Corpus([Passage("long", "long", "novel " * 601)], view=view)
    program = IRCoT(make_retriever("bm25", corpus), variant="paper")
    replies: Any = {"CoTStep": [think("Done.", "x")], "AnswerFromContext": [{"answer": "x"}]}
    left_out = "all 1 passages found have more than 600 words"
    refused = pytest.raises(AllLeftOutError, match=left_out)
    with refused if view == "paragraph" else nullcontext():
        prediction, _, _ = converse(program, "novel", **replies)
        assert [passage.pid for passage in prediction.passages] == ["long"]


# -- flare


def draft(thought: str, sure: float = 0.9, *doubt: str, answer: str = "") -> dict[str, Any]:
    said = {"uncertain_words": list(doubt), "confidence": sure}
    return {**think(thought, answer), **said, "next_step": "answer" if answer else "continue"}


BY_ORLA, IN_HARWICK = draft("It is by Orla Venn. More."), draft("In Harwick.", answer="Harwick")


def test_a_sure_draft_is_kept_without_a_search() -> None:
    replies = {"DraftSentence": [BY_ORLA, IN_HARWICK]}
    check(FLARE, replies, searched=[TOWN], sees=["It is by Orla Venn."], hides=["More."])


def test_a_doubtful_draft_is_searched_without_its_doubtful_words_and_written_again() -> None:
    drafts = [
        draft("Orla Venn was born in Eastmere.", 1.0, "eastmere", " "),
        draft("Orla Venn was born in Harwick.", 0.1, answer="Harwick"),
    ]
    # What is found takes the place of the passages before.
    more: Any = {"searched": [TOWN, "Orla Venn was born in ."], "hides": ["[2]"], "k": 1}
    prediction, _ = check(FLARE, {"DraftSentence": drafts}, sees=["[1] Orla"], **more)
    assert step(prediction, "think").thought == "Orla Venn was born in Harwick."


@pytest.mark.parametrize(
    ("drafted", "knobs", "query"),
    [
        ("It is in Eastmere.", {"variant": "always"}, "It is in Eastmere."),
        ("It is in Eastmere.", {"query_from": "draft"}, "It is in Eastmere."),
        ("It is in Eastmere.", {"query_from": "previous"}, TOWN),
        ("Eastmere.", {}, TOWN),  # nothing is left of the draft
    ],
)
def test_what_is_searched_for(drafted: str, knobs: dict[str, Any], query: str) -> None:
    drafts = [draft(drafted, 0.2, "Eastmere"), IN_HARWICK]
    prediction, _ = check(FLARE, {"DraftSentence": drafts}, **knobs)
    assert prediction.steps[0].input == query


@pytest.mark.parametrize(
    ("drafts", "limit", "reason"),
    [
        ([BY_ORLA], {"max_steps": 1}, "max_steps"),
        ([BY_ORLA], {"max_calls": 2}, "budget"),
        ([BY_ORLA, draft("it is by Orla Venn")], {}, "no_progress"),  # said before
    ],
)
def test_an_answer_is_forced_from_the_last_passages_and_the_sentences(
    drafts: list[Any], limit: dict[str, int], reason: str
) -> None:
    replies = {"DraftSentence": drafts, "AnswerWithHints": FORCED}
    check(FLARE, replies, stop=reason, sees=["It is by Orla Venn."], **limit)


def test_after_a_search_without_passages_those_of_the_one_before_are_read_on() -> None:
    drafts = [draft("Zyx qqq.", 0.2), draft("Nobody knows.")]
    replies = {"DraftSentence": drafts, "AnswerWithHints": FORCED}
    check(FLARE, replies, stop="max_steps", sees=["[1] "], k=1, max_steps=1)


def tokens(*parts: tuple[str, float]) -> Any:
    content = [SimpleNamespace(token=text, logprob=math.log(p)) for text, p in parts]
    return SimpleNamespace(content=content)


def test_by_tokens_one_unlikely_token_is_a_doubt_and_left_out_of_the_query() -> None:
    program = FLARE(shelf(), confidence_source="logprob", theta=0.8, beta=0.4)
    assert program.draft.config == {"logprobs": True}
    parts = (('{"thought": "', 1.0), ("Born in", 0.9), (" East", 0.3), ("mere", 0.7), ('"', 1.0))
    reply = dspy.Prediction(thought="Born in Eastmere", logprobs=tokens(*parts))
    assert program._in_doubt(reply)
    assert program._query(TOWN, [], reply) == "Born in mere"
    assert not program._in_doubt(dspy.Prediction(thought="Born in", logprobs=tokens(*parts)))
