"""The programs that grade or match single passages: self_rag, crag, faithful_rag, rq_rag."""

from typing import Any

import pytest

from ragbench.errors import KnobError
from ragbench.passages import Passage
from ragbench.programs.self_rag.program import SelfRAG
from ragbench.programs.workflow.crag import CRAG, strips_of
from ragbench.programs.workflow.faithful_rag import FaithfulRAG, pieces_of
from ragbench.programs.workflow.rq_rag import RQRAG
from ragbench.signatures import QUERY_ACTIONS
from tests.fakes import Asked, Reply
from tests.programs.shelf import COUNTY, TOWN, ask, check, ended, queries, rules, shelf, shown, step

HARWICK: Any = [{"answer": "Harwick"}]


# -- self_rag


def of(asked: Asked, *titles: str) -> bool:
    """Whether the passage the call shows is one of these."""
    text = asked.inputs.get("passage") or asked.inputs.get("context", "")
    return any(f"{title} |" in text for title in titles)


def graded(knobs: Any = None, **replies: Any) -> Any:
    """Prediction, LM and ledger where each signature is answered by its rule."""
    gate = {"retrieve": True, "confidence": 0.9}
    usual = {"RetrievalDecision": gate, "DirectAnswer": {"answer": "memory"}}
    script = rules(**{**usual, "IsUse": {"utility": 5, "confidence": 1}, **replies})
    return ask(SelfRAG(shelf(), **(knobs or {})), script, TOWN)


def critique(answer: str, **said: Any) -> dict[str, Any]:
    return {"relevance": "relevant", "answer": answer, "support": "full", **said}


def notes_of(prediction: Any) -> list[Any]:
    return [step.notes for step in prediction.steps if step.action == "critique"]


def test_combined_grades_the_first_candidates_and_how_useful_each_answer_is() -> None:
    def grade(asked: Asked) -> Reply:
        if of(asked, "Orla Venn"):
            return critique("Harwick", support="partial")
        if of(asked, "Tam Quill"):
            return critique("Not stated in the passage.")  # a refusal is no answer
        return critique("Eastmere", relevance="irrelevant", support="none")

    prediction, lm, ledger = graded({"num_candidates": 4}, CritiquedAnswer=grade)
    assert ended(prediction) == ("Harwick", "answered")
    # Usefulness plus twice the support plus half the relevance; of a refusal nothing is graded.
    scores = [note.get("score") for note in notes_of(prediction)]
    assert (scores.count(5.0), scores.count(6.5), scores.count(None)) == (len(scores) - 2, 1, 1)
    asked = lm.signatures
    assert (asked.count("CritiquedAnswer"), asked.count("IsUse")) == (len(scores), len(scores) - 1)
    assert (len(scores), ledger.path.calls) == (min(4, len(prediction.passages)), 3)
    # In the order of the paper, and no confidence that is not used.
    assert list(lm.asked[0].fields) == ["retrieve"]
    assert list(lm.asked[1].fields) == ["relevance", "answer", "support"]


VERBAL = {"confidence_source": "verbal"}


@pytest.mark.parametrize(
    ("knobs", "said", "calls", "reason"),
    [
        ({}, {"retrieve": False}, 2, "direct"),
        ({"gate": "never"}, {}, 1, "direct"),
        ({"gate": "always"}, {}, 6, "answered"),
        # above a probability of 0.2
        (VERBAL, {"retrieve": False, "confidence": 0.7}, 7, "answered"),
        (VERBAL, {"retrieve": False, "confidence": 0.9}, 2, "direct"),
        (VERBAL, {"retrieve": True, "confidence": 0}, 7, "answered"),
    ],
)
def test_the_gate(knobs: Any, said: Any, calls: int, reason: str) -> None:
    read = {"CritiquedAnswer": critique("Harwick")}
    prediction, lm, _ = graded({"k": 3, **knobs}, RetrievalDecision=said, **read)
    answer = "memory" if reason == "direct" else "Harwick"
    assert (*ended(prediction), len(lm.asked)) == (answer, reason, calls)


def test_grades_that_cannot_be_read_take_the_defaults_and_the_answer_is_kept() -> None:
    replies: Any = {"CritiquedAnswer": {"answer": "Harwick", "support": "rather"}}
    replies |= {"RetrievalDecision": "Perhaps?", "IsUse": "Very."}
    prediction, _, _ = graded({"k": 3}, **replies)
    assert prediction.answer == "Harwick"
    assert (prediction.counts["parse_fallback"], prediction.counts["partial_reply"]) == (4, 3)
    expected = {"relevance": "relevant", "support": "partial", "utility": 3, "score": 4.5}
    assert notes_of(prediction)[0] == expected


@pytest.mark.parametrize(
    ("variant", "relevance", "count"),
    [
        ("combined", "irrelevant", "no_relevant_passage"),
        ("per_passage", "irrelevant", "no_relevant_passage"),
        ("combined", "relevant", "no_passage_answered"),
    ],
)
def test_without_an_answer_from_a_passage_memory_is_not_asked(
    variant: str, relevance: str, count: str
) -> None:
    none = critique("", relevance=relevance, support="none")
    replies = {"CritiquedAnswer": none, "IsRel": {"relevance": relevance}}
    prediction, lm, _ = graded({"variant": variant, "k": 3}, **replies)
    assert (*ended(prediction), prediction.counts[count]) == ("noanswer", "no_answer", 1)
    assert len(lm.asked) == 1 + 3


def test_an_answer_with_less_support_than_asked_for_is_none() -> None:
    weak: Any = {"CritiquedAnswer": critique("Harwick", support="partial")}
    prediction, _, _ = graded({"support_threshold": "full"}, **weak)
    assert ended(prediction) == ("noanswer", "no_answer")
    prediction, _, _ = graded({"support_threshold": "partial"}, **weak)
    assert prediction.answer == "Harwick"


def test_per_passage_answers_from_the_relevant_passages_and_counts_probabilities() -> None:
    def relevance(asked: Asked) -> Reply:
        said = "relevant" if of(asked, "Orla Venn", "Salt Road") else "irrelevant"
        return {"relevance": said, "confidence": 0.8}

    def answer(asked: Asked) -> Reply:
        return {"answer": "Harwick" if of(asked, "Orla Venn") else "Unknown"}

    published = {"w_utility": 0.5, "w_support": 1, "w_relevance": 1, "signed_utility": True}
    knobs = {"variant": "per_passage", **published, **VERBAL}
    said: Any = {"IsSup": {"support": "full", "confidence": 0.6}, "IsUse": {"utility": 4}}
    prediction, lm, ledger = graded(knobs, IsRel=relevance, AnswerFromContext=answer, **said)
    assert prediction.answer == "Harwick"
    assert lm.signatures.count("AnswerFromContext") == 2
    assert lm.signatures.count("IsUse") == lm.signatures.count("IsSup") == 1  # of no refusal
    assert ledger.path.calls == 4  # gate, relevance, answer, then support and usefulness at once
    # Relevance 0.8; support 0.6 + 0.5 * 0.2; usefulness of 4 is 0.5, by half.
    assert notes_of(prediction)[0]["score"] == pytest.approx(0.8 + 0.7 + 0.25)


def next_sentence(asked: Asked) -> Reply:
    """The next fact of the chain from Salt Road to its author's county, from the right passage."""
    said = asked.inputs["thoughts"]
    nothing = {"relevance": "irrelevant", "sentence": "", "support": "none", "utility": 1}
    for title, sentence, answer in (
        ("Salt Road", "Salt Road is by Orla Venn.", ""),
        ("Orla Venn", "Orla Venn was born in Harwick.", ""),
        ("Harwick", "Harwick is in Dunmoor.", "Dunmoor"),
    ):
        if sentence not in said:
            if of(asked, title):
                return {"relevance": "relevant", "sentence": sentence, "support": "full",
                        "utility": 5 if answer else 3, "answer": answer}  # fmt: skip
            return {**nothing, "answer": ""}
    raise AssertionError("the answer was given")


def long_form(**replies: Any) -> Any:
    decides = {"retrieve": True}
    script = rules(**{"SegmentDecision": decides, "CritiquedSentence": next_sentence, **replies})
    return ask(SelfRAG(shelf(), variant="beam", k=4, depth=4), script, COUNTY)


def test_beam_follows_a_chain_of_facts_over_passages_to_the_answer() -> None:
    prediction, lm, _ = long_form()
    assert ended(prediction) == ("Dunmoor", "answered")
    first, second = "Salt Road is by Orla Venn.", "Orla Venn was born in Harwick."
    searched = [COUNTY, f"{COUNTY} {first}", "is by Orla Venn.", f"{COUNTY} {second}", "Harwick."]
    assert queries(prediction) == searched
    assert [p.pid for p in prediction.passages[:3]] == ["Salt Road", "Orla Venn", "Harwick"]
    assert lm.signatures.count("SegmentDecision") == 3


@pytest.mark.parametrize("support", ["none", "partial"])
def test_beam_drops_unsupported_sentences_and_answers_from_the_others(support: str) -> None:
    def written(asked: Asked) -> Reply:
        return {"relevance": "relevant", "sentence": f"Fact {asked.number}.", "support": support,
                "utility": 2, "answer": ""}  # fmt: skip

    replies: Any = {"CritiquedSentence": written, "SynthesizeAnswer": {"answer": "Dunmoor"}}
    prediction, lm, _ = long_form(**replies)
    if support == "none":
        assert ended(prediction) == ("noanswer", "no_progress")
    else:
        assert ended(prediction) == ("Dunmoor", "max_steps")
        assert shown(lm, "SynthesizeAnswer")["notes"].count("Fact") == 4
        assert lm.signatures.count("SegmentDecision") == 1 + 3 * 2  # two paths after the first


def test_beam_reads_the_next_passages_if_no_sentence_is_supported() -> None:
    def last_of_two(asked: Asked) -> Reply:
        support = "none" if asked.number == 1 else "full"
        return {"relevance": "relevant", "sentence": "Dunmoor is a county.", "support": support,
                "utility": 5, "answer": "Dunmoor"}  # fmt: skip

    program = SelfRAG(shelf(), variant="beam", k=1, depth=2, gate="always")
    prediction, lm, _ = ask(program, rules(CritiquedSentence=last_of_two), COUNTY)
    assert ended(prediction) == ("Dunmoor", "answered")
    assert len({asked.inputs["passage"] for asked in lm.asked}) == 2


# -- crag

SECOND = "Eastmere county"


def grade(grade: str, confidence: float = 1.0) -> dict[str, Any]:
    return {"grade": grade, "confidence": confidence}


YES, PART, NO = "answer", "part", "nothing"


def corrected(grades: list[Any], *strips: list[int], query: str = "", **more: Any) -> Any:
    """A run of these grades, strips kept and keywords, which answers Harwick, and its action."""
    replies = {"SelectStrips": [{"keep": kept} for kept in strips], "GradePassage": grades}
    replies["KeywordQuery"] = [{"query": query}] if query else []
    given = {"k": len(grades), "external_k": 1, **more}
    prediction, lm = check(CRAG, {**replies, "AnswerFromContext": HARWICK}, **given)
    return prediction, lm, step(prediction, "evaluate").observation


def test_strips_are_of_three_sentences_or_fifty_words() -> None:
    sentences = tuple(f"Sentence {n}." for n in range(7))
    passage = Passage("1", "T", " ".join(sentences), sentences)
    threes = ["Sentence 3. Sentence 4. Sentence 5.", "Sentence 6."]
    assert strips_of(passage, "sentences")[1:] == threes
    long = Passage("2", "T", " ".join(map(str, range(120))))
    assert [len(strip.split()) for strip in strips_of(long, "words")] == [50, 50, 20]


def test_one_relevant_passage_is_correct_and_all_are_refined() -> None:
    grades = [grade(YES), grade(NO)]
    prediction, _, action = corrected(grades, [1], [], searched=[TOWN], hides=["[2]"])
    assert action == "correct"
    # Both passages are graded at once, so either may get the first reply.
    assert sorted(step(prediction, "evaluate").notes["scores"]) == [-1.0, 1.0]


def test_none_good_discards_them_and_searches_the_keywords_of_the_question_alone() -> None:
    seen: Any = {"sees": ["Eastmere is a town"], "searched": [TOWN, SECOND]}
    _, lm, _ = corrected([grade(NO, 0.97)] * 2, [1], query=SECOND, **seen)
    assert "Salt Road" not in shown(lm, "AnswerFromContext")["context"]
    assert list(shown(lm, "KeywordQuery")) == ["question"]


@pytest.mark.parametrize("grades", [[grade(NO, 0.9)], [grade(PART)]])
def test_crag_without_an_answer_but_with_a_part_reads_both_searches(grades: Any) -> None:
    prediction, _, action = corrected(grades, [1], [1], query=SECOND, sees=["[2] Eastmere"])
    assert (action, len(prediction.searches)) == ("ambiguous", 2)


@pytest.mark.parametrize("only", ["correct", "incorrect", "ambiguous"])
def test_an_action_can_be_fixed_and_a_second_source_left_out(only: str) -> None:
    knobs: Any = {"only": only, "refine": False, "rewrite": False}
    prediction, _, action = corrected([grade(NO, 0.9)], **knobs)
    assert (action, len(prediction.searches)) == (only, 1 if only == "correct" else 2)
    if only == "incorrect":
        corrected([grade(NO, 0.9)], external="none", hides=["[1]"], **knobs)


def test_a_reranker_can_be_the_evaluator(monkeypatch: pytest.MonkeyPatch) -> None:
    class Reranker:
        def score(self, query: str, passages: list[Passage]) -> list[float]:
            return [0.5 if p.pid == "Orla Venn" else -0.5 for p in passages]

    module = "ragbench.programs.workflow.crag"
    monkeypatch.setattr(f"{module}.make_reranker", lambda spec: Reranker())
    knobs = {"k": 2, "evaluator": "maxsim", "refine": False, "lower": -1, "upper": 0.4}
    prediction, _, action = corrected([], external="none", calls=1, **knobs)
    assert (action, step(prediction, "evaluate").notes["scores"]) == ("correct", [0.5, -0.5])
    monkeypatch.undo()
    with pytest.raises(KnobError, match="grades nothing"):
        CRAG(shelf(), evaluator="none")


# -- faithful_rag

MEMORY = {
    "RecallFacts": [{"facts": ["Orla Venn wrote it.", "orla venn wrote it"]}],
    "RecallPassage": [{"passage": "Salt Road is by Orla Venn, born in Eastmere."}],
    "SplitFacts": [{"facts": ["Orla Venn was born in Harwick.", "Salt Road is a novel."]}],
}


def test_pieces_are_whole_sentences_after_the_title_with_no_brackets_but_those_of_dates() -> None:
    sentences = ("One two (three).", "Four five.", "Six seven eight nine ten (1911).", "Four.")
    passage = Passage("1", "T", " ".join(sentences), sentences)
    dated = "T | Six seven eight nine ten (1911)."
    assert pieces_of(passage, words=5) == ["T | One two. Four five.", dated, "T | Four."]
    assert pieces_of(Passage("2", "T", "(All of it.)", ("(All of it.)",)), words=5) == []


def test_pieces_near_to_what_is_remembered_stand_beside_the_passages() -> None:
    knobs = {"k": 2, "piece_words": 5, "sent_topk": 1, "chunk_topk": 2}
    replies = {**MEMORY, "AnswerFaithfully": HARWICK}
    sees = ["She was born in Harwick.", "[1]"]
    prediction, lm = check(FaithfulRAG, replies, calls=4, sees=sees, **knobs)
    aligned = step(prediction, "align").observation.splitlines()
    assert (len(aligned), "Orla Venn | She was born in Harwick." in aligned) == (2, True)
    assert lm.asked[1].inputs["facts"].startswith('["Orla Venn wrote it."]')


def test_the_best_pieces_of_all_facts_are_pooled_by_score() -> None:
    facts: Any = {"SplitFacts": [{"facts": ["a caravan", "She was born in Harwick."]}]}
    replies = {**MEMORY, **facts, "AnswerFaithfully": HARWICK}
    prediction, _ = check(FaithfulRAG, replies, k=2, piece_words=5, chunk_topk=1)
    assert step(prediction, "align").observation == "Orla Venn | She was born in Harwick."


def test_nothing_remembered_and_no_alignment_leave_the_passages() -> None:
    nothing: Any = {"RecallFacts": [{"facts": []}]}
    answer = {"AnswerFaithfully": HARWICK}
    _, lm = check(FaithfulRAG, {**nothing, **answer})
    assert lm.asked[-1].inputs["notes"] == "[]"
    check(FaithfulRAG, answer, calls=1, align=False)


# -- rq_rag

PAIR, TOWNS = ("rewrite", "decompose"), "Harwick inhabitants"
QUERIES = {"rewrite": TOWNS, "decompose": "Tam Quill writer", "disambiguate": "Orla Venn"}
KINDS = {QUERY_ACTIONS[kind]: query for kind, query in QUERIES.items()}


def sure(text: str, confidence: float) -> dict[str, Any]:
    return {"answer": text, "confidence": confidence}


def refined(answers: dict[str, dict[str, Any]], **knobs: Any) -> Any:
    """A run that writes the queries above by kind, and answers by the passage shown last."""

    def answer(asked: Asked) -> Reply:
        read = [title for title in answers if f"] {title} |" in asked.inputs["context"]]
        return answers[read[-1]] if read else sure("Tollen", 0.2)

    def refine(asked: Asked) -> Reply:
        return {"query": KINDS[asked.inputs["kind"].partition("\n")[0]]}

    script = rules(RefineQuery=refine, AnswerWithConfidence=answer)
    return ask(RQRAG(shelf(), k=1, **knobs), script, TOWN)


def test_each_action_grows_a_node_from_a_root_that_has_read_nothing() -> None:
    answers = {"Harwick": sure("Harwick", 0.9), "Tam Quill": sure("Eastmere", 0.5)}
    prediction, lm, ledger = refined(answers, actions=PAIR)
    assert ended(prediction) == ("Harwick", "answered")
    assert sorted(queries(prediction)) == [TOWNS, "Tam Quill writer"]
    assert (len(ledger.calls), ledger.path.calls) == (2 * 2, 2)
    assert shown(lm, "RefineQuery")["context"] == "[]"
    heat = {asked.signature: asked.request.config.temperature for asked in lm.asked}
    assert heat == {"RefineQuery": 1.0, "AnswerWithConfidence": 0.0}


@pytest.mark.parametrize(("select", "wanted"), [("confidence", "Harwick"), ("vote", "Eastmere")])
def test_a_vote_sums_the_confidence_of_equal_answers(select: str, wanted: str) -> None:
    answers = {"Orla Venn": sure("Eastmere", 0.4), "Tam Quill": sure("the Eastmere", 0.4)}
    prediction, _, _ = refined({**answers, "Harwick": sure("Harwick", 0.6)}, select=select)
    assert prediction.answer.removeprefix("the ") == wanted


@pytest.mark.parametrize(("width", "calls"), [(0, 2 * (2 + 4)), (1, 2 * (2 + 2))])
def test_a_beam_bounds_the_nodes_that_grow(width: int, calls: int) -> None:
    answers = {"Harwick": sure("Harwick", 0.9), "Tam Quill": sure("no", 0.5)}
    _, lm, _ = refined(answers, depth=2, actions=PAIR, beam_width=width)
    assert len(lm.asked) == calls
