"""RLM over a corpus in a sandbox: real code in the real sandbox, by scripted turns."""

import ast
from dataclasses import replace
from typing import Any

import dspy
import pytest

from ragbench.context import current, use
from ragbench.errors import UnknownNameError
from ragbench.experiments.runs.context import check_roles
from ragbench.programs import RLM
from ragbench.programs.rlm_repl.program import RLMRepl
from ragbench.signatures import ANSWER_STYLES, AnswerStyle
from tests.fakes import Asked, Reply, ScriptedLM, never_parses, rate_limited
from tests.programs.shelf import TEXTS, ask, shelf

QUESTION = "In which county was the author of Salt Road born?"


def code(text: str) -> dict[str, str]:
    return {"reasoning": "look", "code": f"```python\n{text}\n```"}


def explore(*turns: Any, padding: int = 0, **knobs: Any) -> tuple[dspy.Prediction, ScriptedLM, Any]:
    """The REPL over blocks of code; once they are used up, the last comes again."""
    left = list(turns)

    def script(asked: Asked) -> Reply:
        if asked.signature == "llm_query":
            return "Dunmoor"
        if asked.signature == "AnswerFromCode":
            return {"answer": "forced"}
        turn = left.pop(0) if len(left) > 1 else left[0]
        return code(turn) if isinstance(turn, str) else turn

    return ask(RLMRepl(shelf(padding=padding), **knobs), script, QUESTION)


def test_corpus_is_a_variable_and_never_in_the_prompt() -> None:
    answer, lm, _ = explore(
        "print(len(context), [p for p in context if 'county of Dunmoor' in p][0][:7])",
        "SUBMIT('Dunmoor')",
        padding=60,
    )
    assert (answer.answer, answer.stop_reason, len(lm.asked)) == ("Dunmoor", "answered", 2)
    assert f"{len(TEXTS) + 60} Harwick" in lm.asked[1].prompt
    assert "Stone 30" not in lm.asked[0].prompt
    assert (answer.searches, answer.passages) == ([], [])
    assert f"{len(TEXTS) + 60} passages, all that there are" in lm.asked[0].prompt
    assert "10,000 characters are shown" in lm.asked[0].prompt


def test_llm_query_is_in_the_ledger_and_in_the_budget() -> None:
    answer, _lm, ledger = explore(
        "a = llm_query('Which county is Harwick in?')\nb = llm_query_batched(['x', 'y'])\n"
        "SUBMIT(a + str(len(b)))"
    )
    assert answer.answer == "Dunmoor2"
    assert [(c.signature, c.role) for c in ledger.calls] == [
        ("WriteCode", "reason"),
        *[("llm_query", "sub")] * 3,
    ]
    assert ledger.path.calls == 3  # the two of a batch run at once
    assert [s.observation for s in answer.steps if s.action == "sub"] == ["Dunmoor"] * 3


def test_the_models_code_can_have_an_lm_of_its_own() -> None:
    program = RLMRepl(shelf())
    check_roles(program, ["reason", "answer", "sub"])
    with pytest.raises(UnknownNameError, match="sub"):
        check_roles(RLM(shelf()), ["sub"])
    own = ScriptedLM(lambda asked: "Dunmoor", name="own")
    with use(replace(current(), role_lms={"sub": own})):
        turn = code("SUBMIT(llm_query('Which county?'))")
        answer, usual, _ = ask(program, lambda asked: turn, QUESTION)
    assert answer.answer == "Dunmoor"
    assert (usual.signatures, own.signatures) == (["WriteCode"], ["llm_query"])


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
    assert f"what it submits: {ANSWER_STYLES[style]}" in lm.asked[0].prompt


def test_tools_search_and_read() -> None:
    answer, lm, _ = explore(
        "hits = search('Harwick county', 2)\nprint(read(hits[0]['pid']))",
        "print(read('no such'))",
        "SUBMIT(answer='Dunmoor')",
        variant="tools",
        k=2,
    )
    assert answer.answer == "Dunmoor"
    assert [s.query for s in answer.searches] == [QUESTION, "Harwick county"]
    assert "It has 900 inhabitants" in lm.asked[1].prompt
    assert "no passage 'no such' was found yet" in lm.asked[2].prompt
    assert {"search", "read"} <= {s.action for s in answer.steps}


def test_search_limit_reaches_the_code() -> None:
    answer, lm, _ = explore(
        "search('a')\nsearch('b')", "SUBMIT('x')", variant="tools", max_retrievals=2
    )
    assert "no search is left" in lm.asked[1].prompt
    assert (answer.answer, len(answer.searches)) == ("x", 2)


def test_turn_limit_ends_in_a_forced_answer() -> None:
    answer, lm, _ = explore(*[f"print({n})" for n in range(9)], max_turns=4)
    assert (answer.answer, answer.stop_reason) == ("forced", "max_steps")
    assert lm.signatures == ["WriteCode"] * 4 + ["AnswerFromCode"]
    assert "print(3)" in lm.asked[-1].prompt


@pytest.mark.parametrize(
    ("turn", "reason"), [("print(1)", "no_progress"), ("?", "parse_fallback")], ids=["same", "no"]
)
def test_loop_without_new_code_is_given_up(turn: str, reason: str) -> None:
    script: Any = turn if turn != "?" else "I would rather not."
    if turn == "?":
        answer, lm, _ = ask(RLMRepl(shelf()), never_parses)
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


def test_provider_error_in_the_sandbox_leaves_the_program() -> None:
    def script(asked: Asked) -> Reply:
        if asked.signature == "llm_query":
            return rate_limited()
        return code("try:\n  llm_query('x')\nexcept Exception: pass\nSUBMIT('hidden')")

    with pytest.raises(dspy.LMError):
        ask(RLMRepl(shelf()), script)


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
