"""RLM by decomposition, and over a corpus in the real sandbox, by scripted turns."""

import ast
from typing import Any

import dspy
import pytest

from ragbench.programs.rlm import RLM, full_tree
from ragbench.programs.rlm_repl.program import RLMRepl
from ragbench.signatures import ANSWER_STYLES
from tests.fakes import Asked, Reply, ScriptedLM, blank, never_parses, plausible, rate_limited
from tests.programs.shelf import COUNTY, TEXTS, ask, check, ended, queries, shelf


def direct(answer: str, mode: str = "direct") -> dict[str, Any]:
    return {"mode": mode, "answer": answer, "sub_questions": [], "combine": ""}


def split(*parts: str, combine: str = "compare them", answer: str = "") -> dict[str, Any]:
    return {**direct(answer, "decompose"), "sub_questions": list(parts), "combine": combine}


def always_splits(asked: Asked) -> Reply:
    if asked.signature == "RecursiveDecompose":
        return split(f"left of {asked.number}?", f"right of {asked.number}?", "more?", "yet more?")
    return {"answer": f"answer {asked.number}"}


def recurse(*decisions: dict[str, Any], read: str = "", combined: Any = (), **more: Any) -> Any:
    """A run of these decisions, with what is `read` at a leaf and the answers `combined`."""
    replies = {
        "RecursiveDecompose": list(decisions),
        "AnswerFromContext": [{"answer": read}] if read else [],
        "CombineNotes": [{"answer": answer} for answer in combined],
    }
    return check(RLM, replies, **{"question": COUNTY, "answer": "Dunmoor", **more})


def test_children_without_placeholders_run_at_once() -> None:
    parts = split("Where is Harwick?", "Where is Eastmere?")
    expected: Any = {"combined": ["Dunmoor"], "calls": 4, "path": 3, "sees": ["compare them"]}
    answer, lm = recurse(parts, direct("D"), direct("T"), **expected)
    assert "Orla Venn" in lm.asked[0].prompt  # the node's own search
    assert [n["id"] for n in answer.tree] == ["0", "0.1", "0.2"]
    assert [len(s.hits) > 0 for s in answer.searches] == [True] * 3


def test_two_hops_take_three_calls_where_the_last_answer_is_the_answer() -> None:
    first = split("Who wrote Salt Road?", "Where was {1} born?", combine="Last.", answer="unknown")
    # A refusal beside parts is no answer.
    recurse(first, direct("Orla Venn"), direct("Harwick"), answer="Harwick", calls=3)


def test_the_passages_are_read_where_no_child_answered() -> None:
    # Those that the children found, too.
    expected: Any = {"k": 1}
    expected["sees"] = ["Orla Venn |", "Harwick |", "Eastmere |"]
    parts = split("Dunmoor?", "Tollen?")
    unknown = direct("", "unknown")
    recurse(parts, unknown, direct("Not stated."), read="Dunmoor", **expected)


def test_child_equal_to_an_ancestor_is_refused() -> None:
    first = split(COUNTY.upper(), "Who wrote Salt Road?"), split("who wrote salt road", COUNTY)
    counts = {"cycle_refused": 3}
    _, lm = recurse(*first, read="Orla Venn", combined=["Dunmoor"], counts=counts)
    assert lm.signatures[2] == "AnswerFromContext"  # nothing left to split: read instead
    # One that becomes an ancestor by its placeholder, too.
    parts = split("Which town?", "Where is {1}?"), direct("Harwick")
    more: Any = {"question": "Where is Harwick?", "counts": {"cycle_refused": 1}}
    recurse(*parts, combined=["Dunmoor"], **more)


def test_memo_answers_a_question_asked_before() -> None:
    parts = split("Who wrote Salt Road?", "After {1}: where?"), direct("Orla Venn")
    again = split("who wrote SALT ROAD", "Where is Harwick?"), direct("Dunmoor")
    more: Any = {"combined": ["Harwick", "Dunmoor"]}
    for _ in range(2):  # it belongs to one question, not to the program
        recurse(*parts, *again, **more)
    asked_again = again[0], direct("Orla Venn"), again[1]
    recurse(*parts, *asked_again, memo=False, **more)


@pytest.mark.parametrize(("depth", "calls"), [(0, 1), (1, 4), (3, 22)])
def test_depth_limit_forces_leaves(depth: int, calls: int) -> None:
    program = RLM(shelf(), max_depth=depth, max_calls=100)
    answer, lm, ledger = ask(program, always_splits, COUNTY)
    assert len(lm.asked) == full_tree(2, depth) == calls
    assert max(node["depth"] for node in answer.tree) == depth
    assert ledger.path.calls == 2 * depth + 1


@pytest.mark.parametrize(
    ("knobs", "children"),
    [
        ({"strategy": "multi", "max_calls": 187}, 4),  # all that the script proposes
        ({"strategy": "adaptive"}, 2),  # 22 calls pay for a binary tree of depth 3
        ({"strategy": "adaptive", "max_depth": 1}, 4),
    ],
)
def test_strategies(knobs: dict[str, Any], children: int) -> None:
    answer, _, _ = ask(RLM(shelf(), **knobs), always_splits, COUNTY)
    assert sum(node["depth"] == 1 for node in answer.tree) == children


def test_a_decision_that_is_none_is_read_instead() -> None:
    for script in (never_parses, blank):
        answer, lm, _ = ask(RLM(shelf()), script)
        assert lm.signatures == ["RecursiveDecompose", "AnswerFromContext"]
        assert answer.answer == "noanswer"
    recurse(direct(COUNTY.lower()), read="Dunmoor", counts={"echoed_question": 1})
    answer, lm, _ = ask(RLM(shelf(), max_retrievals=0), plausible)
    assert (ended(answer)[1], lm.signatures) == ("budget", ["AnswerFromContext"])


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
    look = "print(len(context), [p for p in context if 'county of Dunmoor' in p][0][:7])"
    answer, lm, _ = explore(look, "SUBMIT('Dunmoor')", padding=60, answer_style="free")
    assert (*ended(answer), len(lm.asked)) == ("Dunmoor", "answered", 2)
    assert f"{len(TEXTS) + 60} Harwick" in lm.asked[1].prompt
    assert (answer.searches, answer.passages) == ([], [])
    told = lm.asked[0].prompt
    assert "Stone 30" not in told
    assert f"{len(TEXTS) + 60} passages, all that there are" in told
    assert "10,000 characters are shown" in told
    assert f"Format of a submitted answer: {ANSWER_STYLES['free']}" in told


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
    look = "hits = search('Harwick county', 2)\nprint(read(hits[0]['pid']))"
    turns = (look, "print(read('no such'))", "search('c')", "SUBMIT(answer='Dunmoor')")
    answer, lm, _ = explore(*turns, variant="tools", k=2, max_retrievals=2)
    assert answer.answer == "Dunmoor"
    assert queries(answer) == [COUNTY, "Harwick county"]
    assert "It has 900 inhabitants" in lm.asked[1].prompt
    assert "no passage 'no such' was found yet" in lm.asked[2].prompt
    assert "no search is left" in lm.asked[3].prompt
    assert {"search", "read"} <= {s.action for s in answer.steps}


def test_provider_error_in_the_sandbox_leaves_the_program() -> None:
    turn = code("try:\n  llm_query('x')\nexcept Exception: pass\nSUBMIT('hidden')")
    with pytest.raises(dspy.LMError):
        ask(RLMRepl(shelf()), lambda a: rate_limited() if a.signature == "llm_query" else turn)


def test_large_corpus_is_cut_to_what_a_search_finds_and_filled_up() -> None:
    titles = "SUBMIT(str([p.split(' |')[0] for p in context]))"
    answer, lm, _ = explore(titles, max_variable=8, padding=60)
    shown = ast.literal_eval(answer.answer)
    (search,) = answer.searches
    found = [pid for pid, _ in search.hits]
    assert shown[: len(found)] == found
    assert len(set(shown)) == 8 > len(found)
    assert f"8 of {len(TEXTS) + 60} passages, those nearest" in lm.asked[0].prompt
    assert answer.counts["corpus_cut"] == 1
