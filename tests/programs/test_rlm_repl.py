"""RLM over a corpus in a sandbox: real code in the real sandbox, by scripted turns."""

import ast
from typing import Any

import dspy
import pytest

from ragbench.programs.rlm_repl.program import RLMRepl
from ragbench.signatures import ANSWER_STYLES
from tests.fakes import Asked, Reply, ScriptedLM, never_parses, rate_limited
from tests.programs.shelf import COUNTY, TEXTS, ask, ended, queries, shelf


def code(text: str) -> dict[str, str]:
    return {"reasoning": "look", "code": f"```python\n{text}\n```"}


def explore(*turns: str, padding: int = 0, **knobs: Any) -> tuple[dspy.Prediction, ScriptedLM, Any]:
    """The REPL over blocks of code; once they are used up, the last comes again."""
    left = list(turns)

    def script(asked: Asked) -> Reply:
        if asked.signature == "llm_query":
            return "Dunmoor"
        if asked.signature == "AnswerFromCode":
            return {"answer": "forced"}
        return code(left.pop(0) if len(left) > 1 else left[0])

    return ask(RLMRepl(shelf(padding=padding), **knobs), script, COUNTY)


def test_corpus_is_a_variable_and_never_in_the_prompt() -> None:
    answer, lm, _ = explore(
        "print(len(context), [p for p in context if 'county of Dunmoor' in p][0][:7])",
        "SUBMIT('Dunmoor')",
        padding=60,
        answer_style="free",
    )
    assert (*ended(answer), len(lm.asked)) == ("Dunmoor", "answered", 2)
    assert f"{len(TEXTS) + 60} Harwick" in lm.asked[1].prompt
    assert (answer.searches, answer.passages) == ([], [])
    told = lm.asked[0].prompt
    assert "Stone 30" not in told
    assert f"{len(TEXTS) + 60} passages, all that there are" in told
    assert "10,000 characters are shown" in told
    assert f"what it submits: {ANSWER_STYLES['free']}" in told


def test_llm_query_is_in_the_ledger_and_in_the_budget() -> None:
    answer, _lm, ledger = explore(
        "a = llm_query('Which county is Harwick in?')\nb = llm_query_batched(['x', 'y'])\n"
        "SUBMIT(a + str(len(b)))"
    )
    assert answer.answer == "Dunmoor2"
    asked = [("WriteCode", "reason"), *[("llm_query", "sub")] * 3]
    assert [(c.signature, c.role) for c in ledger.calls] == asked
    assert ledger.path.calls == 3  # the two of a batch run at once
    assert [s.observation for s in answer.steps if s.action == "sub"] == ["Dunmoor"] * 3


CAUGHT = "n = 0\nwhile n < 99:\n  try:\n    llm_query('x')\n  except Exception: pass\n  n = n + 1"
MANY = "for i in range(9): llm_query('x')"


@pytest.mark.parametrize(
    ("turns", "limit", "calls", "answer"),
    [
        ([CAUGHT], {"max_calls": 7}, 5, ("forced", "budget")),
        # 7 less this turn's and the one kept back
        ([MANY, "SUBMIT('a')"], {"max_calls": 7}, 5, ("forced", "budget")),
        ([MANY, "SUBMIT('a')"], {"max_sub_calls": 3}, 3, ("a", "answered")),
    ],
)
def test_budget_holds_inside_the_sandbox(turns: Any, limit: Any, calls: int, answer: Any) -> None:
    prediction, lm, _ = explore(*turns, **limit)
    assert lm.signatures.count("llm_query") == calls
    assert len(lm.asked) <= 7
    assert ended(prediction) == answer


def test_tools_search_and_read() -> None:
    answer, lm, _ = explore(
        "hits = search('Harwick county', 2)\nprint(read(hits[0]['pid']))",
        "print(read('no such'))",
        "search('c')",
        "SUBMIT(answer='Dunmoor')",
        variant="tools",
        k=2,
        max_retrievals=2,
    )
    assert answer.answer == "Dunmoor"
    assert queries(answer) == [COUNTY, "Harwick county"]
    assert "It has 900 inhabitants" in lm.asked[1].prompt
    assert "no passage 'no such' was found yet" in lm.asked[2].prompt
    assert "no search is left" in lm.asked[3].prompt
    assert {"search", "read"} <= {s.action for s in answer.steps}


def test_turn_limit_ends_in_a_forced_answer() -> None:
    answer, lm, _ = explore(*[f"print({n})" for n in range(9)], max_turns=4)
    assert ended(answer) == ("forced", "max_steps")
    assert lm.signatures == ["WriteCode"] * 4 + ["AnswerFromCode"]
    assert "print(3)" in lm.asked[-1].prompt


def test_loop_without_new_code_is_given_up() -> None:
    answer, lm, _ = ask(RLMRepl(shelf()), never_parses)
    assert (*ended(answer), len(lm.asked)) == ("noanswer", "parse_fallback", 4)
    answer, lm, _ = explore("print(1)")
    assert (*ended(answer), len(lm.asked)) == ("forced", "no_progress", 5)


def test_provider_error_in_the_sandbox_leaves_the_program() -> None:
    turn = code("try:\n  llm_query('x')\nexcept Exception: pass\nSUBMIT('hidden')")
    with pytest.raises(dspy.LMError):
        ask(RLMRepl(shelf()), lambda a: rate_limited() if a.signature == "llm_query" else turn)


def test_large_corpus_is_cut_to_what_a_search_finds_and_filled_up() -> None:
    answer, lm, _ = explore(
        "SUBMIT(str([p.split(' |')[0] for p in context]))", max_variable=8, padding=60
    )
    shown = ast.literal_eval(answer.answer)
    (search,) = answer.searches
    found = [pid for pid, _ in search.hits]
    assert shown[: len(found)] == found
    assert len(set(shown)) == 8 > len(found)
    assert f"8 of {len(TEXTS) + 60} passages, those nearest" in lm.asked[0].prompt
    assert answer.counts["corpus_cut"] == 1
