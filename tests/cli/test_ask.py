"""`ragbench ask`: one question, the split's own, or a conversation piped in."""

import io
from pathlib import Path
from typing import Any

import pytest

from ragbench.experiments.runs import context as setup
from ragbench.experiments.runs.summary import reopen
from tests.fakes import Asked, Reply, ScriptedLM, plausible

QUESTION = "Who is it?"


def reply(asked: Asked) -> Reply:
    """A planner's plan of two hops, a binding, a cited answer; anything else as it comes."""
    told: dict[str, Any] = {
        "nodes": [
            {"id": "n1", "query": "mayor town", "confidence": 0.9, "produces": ["who"]},
            {"id": "n2", "query": "birthplace of {who}", "depends_on": ["n1"], "confidence": 0.9},
        ],
        "bindings": [{"variable": "who", "value": "Ada"}],
        "citations": ["n1.1"],
        "tool": "finish",
        "argument": "Oslo",
        "answer": "Oslo",
    }
    return {**plausible(asked), **{k: v for k, v in told.items() if k in asked.fields}}


@pytest.fixture(autouse=True)
def lms(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, ScriptedLM]:
    """LM spec -> the scripted LM made for it."""
    made: dict[str, ScriptedLM] = {}

    def make_lm(spec: str, *_: Any, **__: Any) -> ScriptedLM:
        price = "in=10,out=20" if spec == "dear" else "in=1,out=2"
        return made.setdefault(spec, ScriptedLM(reply, name=spec, price=price))

    monkeypatch.setattr(setup, "make_lm", make_lm)
    monkeypatch.setattr(setup, "configure_cache", lambda: None)
    monkeypatch.chdir(tmp_path)
    return made


def test_a_question_shows_steps_evidence_and_citations(command: Any) -> None:
    out = command("ask", QUESTION, "--program", "lookahead", "--size", "100")[1]
    lines = [
        f"question  {QUESTION}", "birthplace of Ada", "answer    Oslo  (answered)", " (cited)",
        "3 calls (path 3)",
    ]  # fmt: skip
    assert [line for line in lines if line not in out] == []
    assert "gold" not in out
    assert out.endswith("\n\nOslo\n")  # the answer alone, to be seen and to be cut off


def test_questions_are_read_line_by_line(
    command: Any, monkeypatch: pytest.MonkeyPatch, lms: dict[str, ScriptedLM]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{QUESTION}\n\nWhere is it?\n"))
    args = ["--size", "100", "--lm", "first", "--program", "vanilla"]
    code, out, err = command("ask", *args)
    assert (code, err) == (0, "")
    assert out.count("question  ") == 2
    assert lms["first"].signatures == ["AnswerFromContext"] * 2


def test_lm_for_a_role_answers_and_is_priced_by_itself(
    command: Any, lms: dict[str, ScriptedLM], tmp_path: Path
) -> None:
    args = "eval --program lookahead --size 100 --limit 2 --lm cheap --lm-for plan=dear --out run"
    code, _, err = command(*args.split())
    assert code == 0, err
    for record in reopen(tmp_path / "run").records.values():
        asked = {(call.role, call.model.partition("/")[2]) for call in record.ledger.calls}
        assert asked == {("plan", "dear"), ("extract", "cheap"), ("answer", "cheap")}
        for call in record.ledger.calls:
            per = (10, 20) if call.role == "plan" else (1, 2)
            cost = call.prompt_tokens * per[0] + call.completion_tokens * per[1]
            assert call.cost_usd == pytest.approx(cost / 1e6)


def silent(asked: Asked) -> Reply:
    """Search once, then end every loop without an answer; a reader says that it is not stated."""
    told: dict[str, Any] = {"next_step": "answer", "answer": "", "follow_up": "", "query": ""}
    if "next_step" not in asked.fields:
        told["answer"] = "not stated"
    told |= {"thought": "The passages do not state it."}
    return {**plausible(asked), **{k: v for k, v in told.items() if k in asked.fields}}


@pytest.mark.parametrize("program", ["vanilla", "ircot", "self_ask", "search_o1"])
def test_ask_without_a_stated_answer_exits_3_and_asks_no_further(
    program: str, command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm = ScriptedLM(silent)
    monkeypatch.setattr(setup, "make_lm", lambda *_, **__: lm)
    code, out, err = command("ask", QUESTION, "--size", "100", "--program", program)
    assert (code, err) == (3, "")
    assert "does not state the answer. Nearest passages:" in out
    assert "(no_answer)" in out
    assert len(lm.asked) == 1


def test_ask_with_on_missing_guess_asks_for_a_guess(command: Any, lms: Any) -> None:
    args = ["--size", "100", "--lm", "first", "--program", "vanilla", "--set", "on_missing=guess"]
    assert command("ask", QUESTION, *args)[0] == 0
    assert "give a best guess" in lms["first"].asked[0].prompt
