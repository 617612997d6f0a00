"""What programs stand on: the state of a question, prompts, texts, probabilities of labels."""

import math
import threading
from collections import Counter
from types import SimpleNamespace
from typing import Any

import dspy
import pytest

from ragbench.errors import LMSetupError
from ragbench.lms.adapters import make_adapter
from ragbench.passages import Passage
from ragbench.programs.core import fuse, is_repeat, predict, render
from ragbench.programs.core.confidence import ask_probabilities, grader, label_probabilities
from ragbench.programs.core.question_state import Budget, BudgetSpentError
from ragbench.programs.core.text import answers_used, with_answers
from ragbench.programs.core.trace import MAX_QUERY_CHARS, Trace
from ragbench.signatures import AnswerFromContext, IsRel, IsUse, RetrievalDecision
from tests.fakes import ScriptedLM, overflowing
from tests.programs.shelf import shelf


def new_trace(*, calls: int = 10, searches: int = 10) -> Trace:
    return Trace("Who wrote Salt Road?", shelf(), Budget(calls, searches))


# -- searches and fan-out


def test_a_repeated_search_costs_nothing_and_a_long_query_is_cut() -> None:
    trace = new_trace(searches=2)
    first = trace.search("Salt Road", k=2)
    assert trace.search("Salt Road", k=2) == first
    assert [search.cached for search in trace.searches] == [False, True]
    trace.search("Salt Road " * 10_000, k=2)
    assert len(trace.searches[-1].query) == MAX_QUERY_CHARS
    with pytest.raises(BudgetSpentError):
        trace.search("Salt Road", k=3)


def test_a_first_search_that_can_give_every_passage_is_an_event() -> None:
    for k, counted in ((4, 0), (5, 1), (20, 1)):
        trace = new_trace()
        trace.search("Salt Road", k=k)
        trace.search("Harwick", k=20)  # a later one is the program's own way
        assert trace.counts["exhaustive_retrieval"] == counted


def test_fan_out_merges_logs_in_input_order_whatever_the_timing() -> None:
    trace, first_may_end = new_trace(), threading.Event()

    def item(name: str) -> str:
        if name == "a":
            assert first_may_end.wait(60)
        trace.step("think", thought=name)
        trace.search(name, k=1)
        first_may_end.set()
        return name

    assert trace.fan_out(item, ["a", "b"]) == ["a", "b"]
    assert [step.thought for step in trace.steps] == ["a", "b"]
    assert [search.query for search in trace.searches] == ["a", "b"]


def test_a_passage_is_shown_where_its_text_stands_in_a_prompt() -> None:
    trace = new_trace()
    orla, harwick = trace.search("Orla Venn", k=1)[0], trace.search("Harwick county", k=1)[0]
    eastmere = trace.search("Eastmere county", k=1)[0]
    trace.show({"context": render([orla], max_tokens=100), "question": harwick.text})
    assert trace.prediction("").in_context == [orla.pid]
    # What a tool or code printed, in whatever layout, in a text or a conversation.
    trace.show({"trajectory": "Step 1\nshowed: Harwick |\n'Harwick is a town in\\n the county'"})
    trace.show({"history": dspy.History(messages=[{"calls": [("search", {}, eastmere.text)]}])})
    assert trace.prediction("").in_context == [orla.pid, harwick.pid, eastmere.pid]


# -- replies that cannot be read, and prompts that are refused


def read(lm: ScriptedLM, trace: Trace, context: Any, *, last: bool = False) -> str:
    asked = {"context": context, "question": trace.question}
    with dspy.context(lm=lm, adapter=make_adapter("json", lm)):
        return trace.answer(predict(AnswerFromContext), last=last, **asked)


def test_what_cannot_be_cut_enough_takes_the_default_but_for_a_last_call() -> None:
    trace, lm = new_trace(), ScriptedLM(lambda asked: overflowing(), max_tokens=1)
    long = [f"[1] Title | {'word ' * 100}"] * 8
    assert read(lm, trace, long) == ""
    assert (trace.budget.calls, trace.counts["context_overflow"]) == (0, 1)
    assert trace.counts["parse_fallback"] == 0
    with pytest.raises(dspy.ContextWindowExceededError):
        read(lm, new_trace(), long, last=True)


# -- what was shown


def test_render_numbers_passages_and_cuts_the_one_that_crosses_the_limit() -> None:
    passages = [Passage(str(n), "Title", "word " * 40) for n in range(3)]
    lines = render(passages, max_tokens=100)
    assert [line[:4] for line in lines] == ["[1] ", "[2] "]
    assert lines[1].endswith(" ...")
    assert sum(map(len, lines)) <= 400 + len(" ...")
    assert len(render(passages, max_tokens=10)) == 1


def test_an_answer_notes_what_the_reader_was_shown() -> None:
    trace = new_trace()
    twins = [Passage("a", "A town", "It is old."), Passage("b", "A town", "It is old. It lies by")]
    context = [*render(twins, max_tokens=100), "[3] No passage | at all"]
    read(ScriptedLM(lambda asked: {"answer": "x"}), trace, context)
    (step,) = trace.steps
    assert (step.input, step.pids) == (trace.question, ("a", "b"))
    assert step.notes == {"context": ["[3] No passage | at all"]}


# -- texts and rankings

PARTS = {1: "Who wrote it?", 2: "Where was {1} born?"}


@pytest.mark.parametrize(
    ("text", "answers", "filled", "counted"),
    [
        *(
            (f"Where was {form} born?", {1: "Orla"}, "Where was Orla born?", {})
            for form in ("{1}", "{n1}", "#1")
        ),
        ("the {author} of it", {1: "Orla"}, "the {author} of it", {}),
        (PARTS[2], {1: "unknown"}, "Where was (Who wrote it) born?", {"unfilled_placeholder": 1}),
        (PARTS[2].replace("1", "7"), {}, "", {"bad_placeholder": 1}),
    ],
)
def test_placeholders(text: str, answers: Any, filled: str, counted: Any) -> None:
    counts: Counter[str] = Counter()
    assert with_answers(text, PARTS, answers, lambda event: counts.update([event])) == filled
    assert counts == counted
    assert bool(answers_used(text)) == (filled != text)


@pytest.mark.parametrize(
    ("text", "earlier", "repeats"),
    [
        ("Who directed the film Salt Road (1931 film)?",
         "Who directed the film Salt Road (1938 film)?", False),
        ("author of the old novel Salt Road by Orla", "author of the old novel Salt Road by Tam",
         False),
        ("Who directed Salt Road?", "Who is the mother of the person who directed Salt Road?",
         False),
        ("author of the novel salt road", "The author of the novel Salt Road", True),
        ("Which old town is bigger, A or B?", "What old town is bigger, A or B?", True),
    ],
)  # fmt: skip
def test_repeat_is_not_a_part_and_not_another_name(text: str, earlier: str, repeats: bool) -> None:
    assert is_repeat(text, earlier, 0.75) is repeats


def test_fusion_by_reciprocal_ranks_or_by_the_best_score() -> None:
    def fused(fusion: Any, *lists: dict[str, float]) -> list[tuple[str, Any]]:
        passages = [[Passage(pid, "", "text", score=s) for pid, s in one.items()] for one in lists]
        return [(p.pid, p.score) for p in fuse(passages, fusion=fusion)]

    ranks = [("b", 1 / 62 + 1 / 61), ("a", 1 / 61), ("c", 1 / 62)]
    assert fused("rrf", {"a": 9, "b": 8}, {"b": 1, "c": 1}) == ranks
    best = [("b", 3), ("a", -2), ("c", -2)]
    assert fused("max_score", {"a": -2, "b": -9}, {"b": 3, "c": -2}) == best


# -- probabilities of labels

BOOLEANS = (True, False)


def test_token_probabilities_are_read_at_the_place_of_the_label() -> None:
    def token(text: str, **alternatives: float) -> Any:
        options = [SimpleNamespace(token=t, logprob=math.log(p)) for t, p in alternatives.items()]
        return SimpleNamespace(token=text, logprob=-1.0, top_logprobs=options)

    written = token("false", false=0.6, true=0.3, no=0.1)
    content = [token('{"'), token("field"), token('": '), written, token("}")]
    reply = dspy.Prediction(logprobs=SimpleNamespace(content=content))
    found = label_probabilities(reply, "field", False, BOOLEANS)
    assert list(found.values()) == pytest.approx([1 / 3, 2 / 3])


def graded(said: dict[str, Any], source: Any) -> Any:
    lm = ScriptedLM(lambda asked: said)
    with dspy.context(lm=lm, adapter=make_adapter("json", lm)):
        predictor = grader(RetrievalDecision, source)
        return ask_probabilities(new_trace(), predictor, "retrieve", BOOLEANS, source=source)


def test_where_probabilities_come_from() -> None:
    for signature in (IsRel, IsUse):
        predictor = grader(signature, "logprob")
        assert predictor.config == {"logprobs": True, "top_logprobs": 20}
        assert "confidence" not in predictor.signature.output_fields
    verbal = grader(IsRel, "verbal").signature
    assert (verbal.__name__, list(verbal.output_fields)) == ("IsRel", ["relevance", "confidence"])
    with pytest.raises(LMSetupError, match="Set confidence_source to verbal"):
        graded({"retrieve": True, "confidence": 1.0}, "logprob")
    # A stated label is never less likely than by chance.
    stated = {"retrieve": False, "confidence": 0.0}
    assert graded(stated, "verbal") == {True: 0.5, False: 0.5}
    assert graded(stated, "label") == {True: 0.0, False: 1.0}
