"""RLM: recursion by scripted conversations, and the REPL with real code in the real sandbox."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

import dspy
import pytest

from ragbench.context import current, use
from ragbench.errors import UnknownNameError
from ragbench.experiments.runs.context import check_roles
from ragbench.programs.rlm.program import RLM
from ragbench.programs.rlm.tree import full_tree
from ragbench.signatures import ANSWER_STYLES, AnswerStyle
from tests.fakes import Asked, Reply, ScriptedLM, blank, never_parses, plausible, rate_limited
from tests.programs.shelf import TEXTS, ask, converse, shelf

QUESTION = "In which county was the author of Salt Road born?"


def direct(answer: str) -> dict[str, Any]:
    return {"mode": "direct", "answer": answer, "sub_questions": [], "combine": ""}


UNKNOWN = {"mode": "unknown", "answer": "", "sub_questions": [], "combine": ""}


def split(*parts: str, combine: str = "compare them") -> dict[str, Any]:
    return {"mode": "decompose", "answer": "", "sub_questions": list(parts), "combine": combine}


def always_splits(asked: Asked) -> Reply:
    if asked.signature == "RecursiveDecompose":
        return split(f"left of {asked.number}?", f"right of {asked.number}?", "more?", "yet more?")
    return {"answer": f"answer {asked.number}"}


# -- decompose


def test_direct_answer_is_one_call() -> None:
    answer, lm, _ = converse(RLM(shelf()), QUESTION, RecursiveDecompose=[direct("Dunmoor")])
    assert (answer.answer, answer.stop_reason, len(lm.asked)) == ("Dunmoor", "answered", 1)
    assert "Orla Venn" in lm.asked[0].prompt  # the node's own search


def test_children_without_placeholders_run_at_once() -> None:
    answer, lm, ledger = converse(
        RLM(shelf()),
        QUESTION,
        RecursiveDecompose=[
            split("Where is Harwick?", "Where is Eastmere?"),
            direct("D"),
            direct("T"),
        ],
        SynthesizeAnswer=[{"answer": "Dunmoor"}],
    )
    assert (answer.answer, len(lm.asked), ledger.path.calls) == ("Dunmoor", 4, 3)
    assert "compare them" in lm.asked[-1].prompt
    assert [n["id"] for n in answer.tree] == ["0", "0.1", "0.2"]
    assert [len(s.hits) > 0 for s in answer.searches] == [True] * 3


def test_placeholders_are_filled_in_order() -> None:
    answer, lm, ledger = converse(
        RLM(shelf()),
        QUESTION,
        RecursiveDecompose=[
            split("Who wrote Salt Road?", "Where was {1} born?"),
            direct("Orla Venn"),
            direct("Harwick"),
        ],
        SynthesizeAnswer=[{"answer": "Dunmoor"}],
    )
    assert [n["question"] for n in answer.tree][1:] == [
        "Who wrote Salt Road?",
        "Where was Orla Venn born?",
    ]
    assert ledger.path.calls == len(lm.asked) == 4


@pytest.mark.parametrize(
    ("part", "filled", "event"),
    [
        ("Where was {7} born?", "Where was born?", "bad_placeholder"),
        ("Where was {2} born?", "Where was born?", "bad_placeholder"),
        ("Where was {0} born?", "Where was born?", "bad_placeholder"),
        ("Where was {1} born?", "Where was (Who wrote it) born?", "unfilled_placeholder"),
    ],
)
def test_placeholder_without_an_answer(part: str, filled: str, event: str) -> None:
    answer, _, _ = converse(
        RLM(shelf()),
        QUESTION,
        RecursiveDecompose=[split("Who wrote it?", part), direct("unknown"), direct("x")],
        SynthesizeAnswer=[{"answer": "Dunmoor"}],
    )
    assert answer.tree[2]["question"] == filled
    assert answer.counts[event] == 1


def test_parallel_children_read_a_placeholder_as_the_question_it_points_to() -> None:
    answer, _, ledger = converse(
        RLM(shelf(), sequential_children=False),
        QUESTION,
        RecursiveDecompose=[
            split("Who wrote it?", "Where was {1} born?"),
            direct("x"),
            direct("y"),
        ],
        SynthesizeAnswer=[{"answer": "Dunmoor"}],
    )
    assert answer.tree[2]["question"] == "Where was (Who wrote it) born?"
    assert ledger.path.calls == 3


def test_two_hops_take_three_calls_where_the_last_answer_is_the_answer() -> None:
    answer, lm, _ = converse(
        RLM(shelf()),
        QUESTION,
        RecursiveDecompose=[
            split("Who wrote Salt Road?", "In which county was {1} born?", combine="Last."),
            direct("Orla Venn"),
            direct("Dunmoor"),
        ],
    )
    assert (answer.answer, len(lm.asked)) == ("Dunmoor", 3)


def test_a_comparison_takes_four_calls() -> None:
    answer, lm, _ = converse(
        RLM(shelf()),
        "Is Harwick bigger than Eastmere?",
        RecursiveDecompose=[
            split("How many live in Harwick?", "How many live in Eastmere?"),
            direct("900"),
            direct("4,000"),
        ],
        SynthesizeAnswer=[{"answer": "no"}],
    )
    assert (answer.answer, len(lm.asked)) == ("no", 4)


def test_the_passages_are_read_where_no_child_answered() -> None:
    answer, lm, _ = converse(
        RLM(shelf()),
        QUESTION,
        RecursiveDecompose=[split("Who?", "Where?"), UNKNOWN, direct("Not stated.")],
        AnswerFromContext=[{"answer": "Dunmoor"}],
    )
    assert (answer.answer, answer.counts["no_child_answered"]) == ("Dunmoor", 1)
    assert "Orla Venn | " in lm.asked[-1].inputs["context"]


def test_where_no_child_answered_the_passages_that_they_found_are_read_too() -> None:
    _, lm, _ = converse(
        RLM(shelf(), k=1),
        QUESTION,
        RecursiveDecompose=[split("Dunmoor?", "Tollen?"), UNKNOWN, UNKNOWN],
        AnswerFromContext=[{"answer": "Dunmoor"}],
    )
    read = lm.asked[-1].inputs["context"]
    assert [title in read for title in ("Orla Venn |", "Harwick |", "Eastmere |")] == [True] * 3


def test_a_question_that_cannot_be_split_is_read_at_the_root() -> None:
    answer, lm, _ = converse(
        RLM(shelf()),
        QUESTION,
        RecursiveDecompose=[UNKNOWN],
        AnswerFromContext=[{"answer": "Dunmoor"}],
    )
    assert (answer.answer, len(lm.asked)) == ("Dunmoor", 2)


def test_a_refusal_beside_sub_questions_is_no_answer() -> None:
    first = {**split("Who wrote Salt Road?", "Where was {1} born?", combine="last")}
    answer, _, _ = converse(
        RLM(shelf()),
        QUESTION,
        RecursiveDecompose=[{**first, "answer": "unknown"}, direct("Orla Venn"), direct("Harwick")],
    )
    assert answer.answer == "Harwick"


def test_a_split_without_a_combination_is_kept() -> None:
    first = split("How many live in Harwick?", "How many live in Eastmere?")
    del first["combine"]
    answer, _, _ = converse(
        RLM(shelf()),
        "Is Harwick bigger than Eastmere?",
        RecursiveDecompose=[first, direct("900"), direct("4,000")],
        SynthesizeAnswer=[{"answer": "no"}],
    )
    assert (answer.answer, answer.counts["partial_reply"]) == ("no", 1)


def test_without_memo_a_question_is_asked_each_time() -> None:
    answer, _, _ = converse(
        RLM(shelf(), memo=False),
        QUESTION,
        RecursiveDecompose=[
            split("Who wrote Salt Road?", "After {1}: where?"),
            direct("Orla Venn"),
            split("who wrote SALT ROAD", "Where is Harwick?"),
            direct("Venn"),
            direct("Venn"),  # the two are asked at once
        ],
        SynthesizeAnswer=[{"answer": "Harwick"}, {"answer": "Dunmoor"}],
    )
    assert answer.counts["memo_hit"] == 0
    assert [n["answer"] for n in answer.tree if "SALT" in n["question"]] == ["Venn"]


def test_memo_answers_a_question_asked_before() -> None:
    answer, lm, _ = converse(
        RLM(shelf()),
        QUESTION,
        RecursiveDecompose=[
            split("Who wrote Salt Road?", "After {1}: where?"),
            direct("Orla Venn"),
            split("who wrote SALT ROAD", "Where is Harwick?"),
            direct("Dunmoor"),
        ],
        SynthesizeAnswer=[{"answer": "Harwick"}, {"answer": "Dunmoor"}],
    )
    assert answer.counts["memo_hit"] == 1
    assert [n["answer"] for n in answer.tree if "SALT" in n["question"]] == ["Orla Venn"]
    program = RLM(shelf())
    for _ in range(2):  # it belongs to one question, not to the program
        _, lm, _ = converse(program, QUESTION, RecursiveDecompose=[direct("Dunmoor")])
        assert len(lm.asked) == 1


def test_child_equal_to_an_ancestor_is_refused() -> None:
    answer, lm, _ = converse(
        RLM(shelf()),
        QUESTION,
        RecursiveDecompose=[
            split(QUESTION.upper(), "Who wrote Salt Road?"),
            split("who wrote salt road", QUESTION),
        ],
        AnswerFromContext=[{"answer": "Orla Venn"}],
        SynthesizeAnswer=[{"answer": "Dunmoor"}],
    )
    assert answer.counts["cycle_refused"] == 3
    assert lm.signatures[2] == "AnswerFromContext"  # nothing left to split: read instead


def test_child_that_becomes_an_ancestor_by_its_placeholder_is_refused() -> None:
    answer, _, _ = converse(
        RLM(shelf()),
        "Where is Harwick?",
        RecursiveDecompose=[split("Which town?", "Where is {1}?"), direct("Harwick")],
        SynthesizeAnswer=[{"answer": "Dunmoor"}],
    )
    assert answer.counts["cycle_refused"] == 1
    assert answer.tree[2]["status"] == "open"


@pytest.mark.parametrize(("depth", "calls"), [(0, 1), (1, 4), (2, 10), (3, 22), (4, 46)])
def test_depth_limit_forces_leaves(depth: int, calls: int) -> None:
    program = RLM(shelf(), max_depth=depth, max_calls=100)
    answer, lm, ledger = ask(program, always_splits, QUESTION)
    assert len(lm.asked) == full_tree(2, depth) == calls
    assert max(node["depth"] for node in answer.tree) == depth
    assert ledger.path.calls == 2 * depth + 1


def test_default_worst_case_is_22_calls() -> None:
    answer, lm, _ = ask(RLM(shelf()), always_splits, QUESTION)
    assert (len(lm.asked), answer.stop_reason) == (22, "answered")


@pytest.mark.parametrize("max_calls", range(2, 24))
@pytest.mark.parametrize("strategy", ["binary", "multi", "adaptive"])
def test_never_more_calls_than_allowed_and_the_same_each_time(
    max_calls: int, strategy: str
) -> None:
    program = RLM(shelf(), max_calls=max_calls, strategy=strategy)
    runs = []
    for _ in range(2):
        answer, lm, _ = ask(program, always_splits, QUESTION)
        assert len(lm.asked) <= max_calls
        assert answer.answer
        runs.append([(n["id"], n["question"].split(" of ")[0]) for n in answer.tree])
    assert runs[0] == runs[1]


def test_strategies() -> None:
    def children(**knobs: Any) -> int:
        answer, _, _ = ask(RLM(shelf(), **knobs), always_splits, QUESTION)
        return sum(node["depth"] == 1 for node in answer.tree)

    assert children(strategy="binary") == 2
    assert children(strategy="multi", max_calls=187) == 4  # all that the script proposes
    assert children(strategy="multi", max_children=3, max_calls=187) == 3
    assert children(strategy="adaptive") == 2  # 22 calls pay for a binary tree of depth 3
    assert children(strategy="adaptive", max_depth=1) == 4
    assert (full_tree(2, 3), full_tree(5, 3), full_tree(3, 0)) == (22, 187, 1)


@pytest.mark.parametrize("script", [never_parses, blank])
def test_unreadable_decision_is_read_instead(script: Any) -> None:
    answer, lm, _ = ask(RLM(shelf()), script)
    assert lm.signatures == ["RecursiveDecompose", "AnswerFromContext"]
    assert answer.answer == "noanswer"


def test_question_said_again_is_no_answer() -> None:
    answer, _, _ = converse(
        RLM(shelf()),
        QUESTION,
        RecursiveDecompose=[direct(QUESTION.lower())],
        AnswerFromContext=[{"answer": "Dunmoor"}],
    )
    assert (answer.answer, answer.counts["echoed_question"]) == ("Dunmoor", 1)


def test_no_search_allowed() -> None:
    answer, lm, _ = ask(RLM(shelf(), max_retrievals=0), plausible)
    assert (answer.stop_reason, lm.signatures) == ("budget", ["AnswerFromContext"])
    answer, lm, _ = ask(RLM(shelf(), max_retrievals=5), always_splits)
    assert len(answer.searches) <= 5


# -- repl


def code(text: str) -> dict[str, str]:
    return {"reasoning": "look", "code": f"```python\n{text}\n```"}


def explore(
    *turns: Any, variant: str = "repl_corpus", padding: int = 0, **knobs: Any
) -> tuple[dspy.Prediction, ScriptedLM, Any]:
    """The REPL over blocks of code; once they are used up, the last comes again."""
    left = list(turns)

    def script(asked: Asked) -> Reply:
        if asked.signature == "llm_query":
            return "Dunmoor"
        if asked.signature == "RLMExtract":
            return {"answer": "forced"}
        turn = left.pop(0) if len(left) > 1 else left[0]
        return code(turn) if isinstance(turn, str) else turn

    return ask(RLM(shelf(padding=padding), variant=variant, **knobs), script, QUESTION)


def test_corpus_is_a_variable_and_never_in_the_prompt() -> None:
    answer, lm, _ = explore(
        "print(len(context), [p for p in context if 'county of Dunmoor' in p][0][:7])",
        "SUBMIT('Dunmoor')",
        padding=60,
    )
    assert (answer.answer, answer.stop_reason, len(lm.asked)) == ("Dunmoor", "answered", 2)
    assert f"{len(TEXTS) + 60} Harwick" in lm.asked[1].prompt
    assert "Stone 30" not in lm.asked[0].prompt  # only the ends of the variable are shown
    assert (answer.searches, answer.passages) == ([], [])
    assert "You have not interacted" not in lm.asked[0].prompt
    assert f"{len(TEXTS) + 60} passages, all that there are" in lm.asked[0].prompt
    assert "10,000 characters are shown" in lm.asked[0].prompt
    assert "dspy.Predict" not in lm.asked[0].prompt  # no sub-agents are offered


def test_llm_query_is_in_the_ledger_and_in_the_budget() -> None:
    answer, _lm, ledger = explore(
        "a = llm_query('Which county is Harwick in?')\nb = llm_query_batched(['x', 'y'])\n"
        "SUBMIT(a + str(len(b)))"
    )
    assert answer.answer == "Dunmoor2"
    assert [(c.signature, c.role) for c in ledger.calls] == [
        ("RLMAction", "reason"),
        *[("llm_query", "sub")] * 3,
    ]
    assert ledger.path.calls == 3  # the two of a batch run at once
    assert [s.observation for s in answer.steps if s.action == "sub"] == ["Dunmoor"] * 3


def test_the_models_code_can_have_an_lm_of_its_own() -> None:
    program = RLM(shelf(), variant="repl_corpus")
    check_roles(program, ["reason", "answer", "sub"])
    with pytest.raises(UnknownNameError, match="sub"):
        check_roles(RLM(shelf()), ["sub"])
    own = ScriptedLM(lambda asked: "Dunmoor", name="own")
    with use(replace(current(), role_lms={"sub": own})):
        turn = code("SUBMIT(llm_query('Which county?'))")
        answer, usual, _ = ask(program, lambda asked: turn, QUESTION)
    assert answer.answer == "Dunmoor"
    assert (usual.signatures, own.signatures) == (["RLMAction"], ["llm_query"])


def test_budget_holds_inside_the_sandbox() -> None:
    answer, lm, _ = explore(
        "n = 0\nwhile n < 99:\n  try:\n    llm_query('x')\n  except Exception: pass\n  n = n + 1",
        max_calls=7,
    )
    assert (len(lm.asked), answer.answer, answer.stop_reason) == (7, "forced", "budget")
    answer, lm, _ = explore("print(llm_query_batched(['x'] * 9))", "SUBMIT('a')", max_calls=7)
    assert lm.signatures.count("llm_query") == 5  # 7 less this turn's and the one kept back
    answer, lm, _ = explore("for i in range(9): llm_query('x')", "SUBMIT('a')", max_sub_calls=3)
    assert (lm.signatures.count("llm_query"), answer.answer) == (3, "a")


@pytest.mark.parametrize("style", ["brief", "free"])
def test_a_turn_is_told_what_form_of_answer_to_submit(style: AnswerStyle) -> None:
    _, lm, _ = explore("SUBMIT('a')", answer_style=style)
    assert f"- {{answer}}: {ANSWER_STYLES[style]}" in lm.asked[0].prompt


def test_long_prompt_is_refused() -> None:
    answer, lm, _ = explore("llm_query('x' * 50_000)", "SUBMIT('a')", context_tokens=100)
    assert lm.signatures == ["RLMAction", "RLMAction"]
    assert "at most 400 characters" in lm.asked[0].prompt
    assert "400 characters" in lm.asked[1].prompt
    assert answer.answer == "a"


def test_tools_search_and_read() -> None:
    answer, lm, _ = explore(
        "hits = search('Harwick county', 2)\nprint(read(hits[0]['pid']))",
        "print(read('no such'))",
        "SUBMIT(answer='Dunmoor')",
        variant="repl_tools",
        k=2,
    )
    assert answer.answer == "Dunmoor"
    assert [s.query for s in answer.searches] == [QUESTION, "Harwick county"]
    assert "It has 900 inhabitants" in lm.asked[1].prompt
    assert "no passage 'no such' was found yet" in lm.asked[2].prompt
    assert {"search", "read"} <= {s.action for s in answer.steps}


def test_search_limit_reaches_the_code() -> None:
    answer, lm, _ = explore(
        "search('a')\nsearch('b')", "SUBMIT('x')", variant="repl_tools", max_retrievals=2
    )
    assert "no search is left" in lm.asked[1].prompt
    assert (answer.answer, len(answer.searches)) == ("x", 2)


def test_turn_limit_ends_in_a_forced_answer() -> None:
    answer, lm, _ = explore(*[f"print({n})" for n in range(9)], max_turns=4)
    assert (answer.answer, answer.stop_reason) == ("forced", "max_steps")
    assert lm.signatures == ["RLMAction"] * 4 + ["RLMExtract"]
    assert "print(3)" in lm.asked[-1].prompt


@pytest.mark.parametrize(
    ("turn", "reason"), [("print(1)", "no_progress"), ("?", "parse_fallback")], ids=["same", "no"]
)
def test_loop_without_new_code_is_given_up(turn: str, reason: str) -> None:
    script: Any = turn if turn != "?" else "I would rather not."
    if turn == "?":
        answer, lm, _ = ask(RLM(shelf(), variant="repl_corpus"), never_parses)
        assert answer.answer == "noanswer"
    else:
        answer, lm, _ = explore(script)
        assert answer.answer == "forced"
    assert answer.stop_reason == reason
    assert len(lm.asked) <= 5


def test_failing_code_goes_on() -> None:
    answer, lm, _ = explore(
        "1 / 0",
        "def f(:",
        "open('/etc/passwd')",
        "x = []\nwhile True: x.append('a' * 1_000_000)",
        "SUBMIT(len(context))",
    )
    assert answer.answer == str(len(TEXTS))
    for number, said in enumerate(
        ["ZeroDivisionError", "Expected a parameter", "Permission", "were lost"]
    ):
        assert said in lm.asked[number + 1].prompt


def test_blank_submission_is_forced() -> None:
    answer, _, _ = explore("SUBMIT('  ')")
    assert (answer.answer, answer.stop_reason) == ("forced", "no_progress")


def test_provider_error_in_the_sandbox_leaves_the_program() -> None:
    def script(asked: Asked) -> Reply:
        if asked.signature == "llm_query":
            return rate_limited()
        return code("try:\n  llm_query('x')\nexcept Exception: pass\nSUBMIT('hidden')")

    with pytest.raises(dspy.LMError):
        ask(RLM(shelf(), variant="repl_corpus"), script)


def test_large_corpus_is_cut_to_what_a_search_finds_and_filled_up() -> None:
    answer, lm, _ = explore(
        "SUBMIT(str([p.split(' |')[0] for p in context]))", max_variable=8, padding=60
    )
    shown = ast.literal_eval(answer.answer)
    found = [pid for pid, _ in answer.searches[0].hits]
    assert shown[: len(found)] == found
    assert len(set(shown)) == 8 > len(found)
    assert f"8 of {len(TEXTS) + 60} passages, those nearest" in lm.asked[0].prompt
    assert answer.counts["corpus_cut"] == 1
    assert len(answer.searches) == 1


@pytest.mark.parametrize("variant", ["repl_corpus", "repl_tools"])
def test_predictors_are_found_and_saved(variant: str, tmp_path: Any) -> None:
    program = RLM(shelf(), variant=variant)
    assert set(dict(program.named_predictors())) == {"repl.generate_action", "repl.extract"}
    program.save(tmp_path / "p.json")
    RLM(shelf(), variant=variant).load(tmp_path / "p.json")
    assert program.deepcopy().retriever is program.retriever
