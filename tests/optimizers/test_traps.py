"""DSPy's optimizers mislead in known ways; each has a test that it does not happen here."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import dspy
import dspy.evaluate.evaluate as dspy_evaluate
import pytest

from ragbench.context import current, use
from ragbench.data.base import for_optimizer
from ragbench.errors import RagbenchError, RunError
from ragbench.ledger import open_ledger
from ragbench.lms.calls import CallRefusedError
from ragbench.optimizers import OPTIMIZERS
from ragbench.optimizers.base import measure
from ragbench.optimizers.demonstrations import fit_demos
from ragbench.optimizers.dspy_patches import logged_to
from ragbench.optimizers.scoring import feedback, full_metric, is_exact, make_scorer
from ragbench.passages import Passage
from ragbench.programs.core.program import NO_ANSWER
from ragbench.signatures.answering import AnswerFromContext
from ragbench.text_normalization import estimate_tokens
from ragbench.user_code import allow
from tests.fakes import Asked, ScriptedLM, plausible
from tests.optimizers.world import SMALL, VAL, compiled, even_towns, program, scripted, task, town

GOLD = dspy.Example(question="q", answers=["Ann Smith", "A. Smith"])


def said(answer: Any, **fields: Any) -> dspy.Prediction:
    return dspy.Prediction(answer=answer, **fields)


def demos_of(compiled: dspy.Module) -> list[dict[str, Any]]:
    return [dict(demo) for predictor in compiled.predictors() for demo in predictor.demos]


# -- metrics


def test_a_metric_makes_no_demo_of_a_near_miss_nor_of_a_truthy_object() -> None:
    metric = full_metric(make_scorer("f1"))
    near = said("Ann")
    assert 0 < float(metric(GOLD, near)) < 1
    assert not metric(GOLD, near, [])
    assert metric(GOLD, said("the Ann Smith."), [])
    assert not is_exact(dspy.Example(answers=[NO_ANSWER]), said(NO_ANSWER))
    for missing in (said(None), said("  "), said(NO_ANSWER), said(["Ann Smith"]), None):
        judged = metric(GOLD, missing, [])
        assert (float(judged), bool(judged)) == (0.0, False)


def test_failures_and_provider_errors_become_no_demos(tmp_path: Path) -> None:
    def script(asked: Asked) -> Any:
        return ValueError("broken") if town(asked) == 2 else even_towns(asked)

    found = compiled(
        "bootstrap", tmp_path, scripted(script), knobs={"bootstrapped": 10, "labeled": 0}
    )
    shown = demos_of(found.program)
    assert sorted(int(demo["answer"].split()[1]) for demo in shown) == [0, 4, 6, 8]
    assert all(demo["answer"] in demo["context"][0] for demo in shown)


# -- errors


@pytest.mark.parametrize("name", sorted(set(OPTIMIZERS.names()) - {"labeled"}))
def test_max_errors_never_aborts(name: str, tmp_path: Path) -> None:
    """DSPy gives up at the tenth error; here 60 % of the questions fail."""

    def script(asked: Asked) -> Any:
        return ValueError("broken") if town(asked) % 5 in (1, 2, 3) else even_towns(asked)

    with dspy.context(max_errors=1):
        found = compiled(name, tmp_path, scripted(script))
    assert found.program.predictors()


@pytest.mark.parametrize("name", sorted(set(OPTIMIZERS.names()) - {"labeled", "infer_rules"}))
def test_a_dead_lm_or_a_spent_budget_stops_the_compile_in_one_line(
    name: str, tmp_path: Path
) -> None:
    """Otherwise every candidate would score 0 and the first would win."""

    def script(asked: Asked) -> Any:
        refused = CallRefusedError("the budget of $1 is spent")
        return refused if asked.number > 4 else even_towns(asked)

    lm, knobs = scripted(script), SMALL[name] | BUSY.get(name, {})
    with pytest.raises(RunError, match=r"^[^\n]*budget of \$1[^\n]* same command[^\n]*$"):
        compiled(name, tmp_path, lm, knobs=knobs, train=VAL * 7, workers=1)
    assert len(lm.asked) == 5


#: Settings under which the LM is asked often enough to be found down.
BUSY: dict[str, dict[str, Any]] = {"gepa": {"runs": 80}, "bootstrap": {"bootstrapped": 30}}


def test_a_prompt_model_that_fails_loses_one_proposal_not_the_compile(tmp_path: Path) -> None:
    writer = scripted(lambda asked: "I would rather not say.", name="writer")
    found = compiled("mipro", tmp_path, prompt_lm=writer)
    lost = [text for text in found.left_out if "I would rather" in text]
    assert len(lost) >= SMALL["mipro"]["instructions"], "the writer counts what is left out"
    rules = compiled("infer_rules", tmp_path, prompt_lm=writer)
    base = program().predictors()[0].signature.instructions
    assert rules.program.predictors()[0].signature.instructions == base
    with pytest.raises(RunError, match="--prompt-lm") as caught:  # or it is one line with the cure
        compiled("copro", tmp_path, prompt_lm=writer)
    assert "\n" not in str(caught.value)


# -- data


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: compiled("simba", Path(), knobs={"minibatch": 11}), "minibatch=10"),
        (lambda: compiled("bootstrap", Path(), val=[]), "validation"),
        (lambda: OPTIMIZERS.get("bootstrap")(bootstraped=3), "bootstrapped"),
        (lambda: OPTIMIZERS.get("bootstrap")("lite"), "light"),
        (lambda: make_scorer("exact"), "em"),
    ],
)
def test_a_mistake_is_one_line(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(RagbenchError, match=words) as caught:
        make()
    assert "\n" not in str(caught.value)


# -- demonstrations


def test_what_is_searched_is_what_ships(tmp_path: Path) -> None:
    """A demonstration cut only after the search would ship a program that nobody scored."""
    lm = scripted()
    found = compiled(
        "random_search", tmp_path, lm, knobs={"candidates": 2, "demo_context_tokens": 60}
    )
    for demo in demos_of(found.program):
        assert sum(estimate_tokens(text) for text in demo.get("context", ())) <= 60
    searched = {asked.prompt for asked in lm.asked}
    for candidate in found.candidates:
        before = len(lm.asked)
        measure(candidate.program, VAL, task(tmp_path, lm))
        assert {asked.prompt for asked in lm.asked[before:]} <= searched


def test_trimming_keeps_order_numbers_and_the_proof() -> None:
    context = [f"[{i}] Place {i} | {'words ' * 60}" for i in range(1, 5)]
    context[2] = "[3] Town | Its mayor is Ann. " + "more " * 60
    demo = {"context": context, "question": "Who?", "answer": "Ann", "answers": ["Ann"], "x": 1}
    [cut] = fit_demos([demo], AnswerFromContext, max_tokens=130)
    assert [text[:3] for text in cut["context"]] == ["[1]", "[3]"]
    assert "Ann" in cut["context"][1]
    assert sum(estimate_tokens(text) for text in cut["context"]) <= 130
    assert set(cut) == {"context", "question", "answer"}
    assert demo["context"] == context, "the original was changed"
    [odd] = fit_demos([{**demo, "context": {"b", "a"}}], AnswerFromContext, max_tokens=99)
    assert odd["context"] == ["a", "b"]  # a set would not be JSON
    # DSPy would show "Not supplied for this particular example", which small models repeat.
    raw = for_optimizer(VAL)[0]
    assert fit_demos([raw], dspy.Signature("question -> reasoning, answer"), max_tokens=99) == []
    assert fit_demos([raw], dspy.Signature("passage -> answer"), max_tokens=99) == []


LOOPS = ["react", "ircot", "self_ask", "search_o1", "reap", "rlm_repl"]


def going_on(asked: Asked) -> dict[str, Any]:
    """Right for even towns, and never done before the last step."""
    return {**even_towns(asked), "answer": f"Ann {town(asked)}"}


@pytest.mark.parametrize("shape", LOOPS)
def test_a_demonstration_of_a_loop_shows_what_was_asked_at_its_step(
    shape: str, tmp_path: Path
) -> None:
    """A loop adds to the list of notes that it passed on; the trace of DSPy holds the same list."""
    lm = scripted(going_on)
    knobs = {"bootstrapped": 5, "labeled": 0, "demo_context_tokens": 100_000}
    found = compiled("bootstrap", tmp_path, lm, knobs=knobs, start=program(shape), workers=1)
    asked = {call.prompt for call in lm.asked}
    shown = found.program.reset_copy().named_predictors()
    for (_, predictor), (_, with_demos) in zip(
        shown, found.program.named_predictors(), strict=True
    ):
        for demo in with_demos.demos:
            inputs = {name: demo[name] for name in predictor.signature.input_fields}
            with dspy.context(lm=lm):
                predictor(**inputs)
            assert lm.asked[-1].prompt in asked


def test_steps_of_a_loop_take_turns_or_are_drawn_as_dspy_draws_them(tmp_path: Path) -> None:
    def left(name: str, **knobs: Any) -> list[int]:
        lm = scripted(going_on)
        found = compiled(name, tmp_path, lm, knobs=knobs, start=program("react"))
        act = dict(found.program.named_predictors())["act"]
        return [int(demo["steps_left"]) for demo in act.demos]

    turns = left("bootstrap", bootstrapped=5, labeled=0)
    first = turns[0]
    assert turns == [first, first - 2, first - 1, first, first - 2]
    own = tmp_path / "own.py"
    own.write_text("from dspy import BootstrapFewShot as Own\n")
    allow(f"{own}:Own")
    drawn = left(f"{own}:Own", max_bootstrapped_demos=5, max_labeled_demos=0)
    assert left("bootstrap", bootstrapped=5, labeled=0, loop_steps="coin") == drawn


# -- copies


def test_rules_stay_with_their_candidate(tmp_path: Path) -> None:
    """DSPy writes them into a class that all candidates, and all other programs, share."""
    before = AnswerFromContext.instructions
    found = compiled("infer_rules", tmp_path, knobs={"candidates": 3})
    assert AnswerFromContext.instructions == before
    texts = {c.program.predictors()[0].signature.instructions for c in found.candidates}
    assert len(texts) == 3
    assert all(text.startswith(before) for text in texts)


def test_simba_ships_what_is_best_on_validation_not_on_the_questions_it_learnt(
    tmp_path: Path,
) -> None:
    """DSPy's choice is by training questions: here demonstrations help those alone."""

    def script(asked: Asked) -> Any:
        reply, number = even_towns(asked), town(asked)
        learnt = "Be careful" in asked.prompt or asked.prompt.count("Who is the mayor") > 1
        if "answer" in reply:
            right = (learnt or asked.number % 2) if number < 10 else not learnt
            reply["answer"] = f"Ann {number}" if right else "somebody else"
        return {k: {"answer": "Be careful."} if "advice" in k else v for k, v in reply.items()}

    lm = scripted(script)
    found = compiled("simba", tmp_path, lm, workers=1)
    assert (found.candidates[0].score, found.candidates[-1].score) == (1.0, 0.0)
    assert measure(found.program, VAL, task(tmp_path, lm)).mean == 1.0


# -- settings


def test_workers_are_passed(tmp_path: Path) -> None:
    """DSPy's default is 8 threads, or 1 for bootstrapping, whatever was asked for."""
    meet = threading.Barrier(3)

    def script(asked: Asked) -> Any:
        if asked.number <= 3:
            meet.wait(30)
        return even_towns(asked)

    compiled("random_search", tmp_path, scripted(script), workers=3, knobs={"candidates": 1})
    assert not meet.broken


def test_stragglers_are_not_asked_twice(tmp_path: Path) -> None:
    original = dspy_evaluate.ParallelExecutor
    with logged_to(tmp_path / "log"):
        assert dspy_evaluate.ParallelExecutor(num_threads=2).timeout == 0
        assert dspy.predict.parallel.ParallelExecutor(timeout=7).timeout == 0
    assert dspy_evaluate.ParallelExecutor is original


def test_the_teacher_answers_training_questions_for_every_role(tmp_path: Path) -> None:
    teacher, student = scripted(name="teacher"), scripted(name="student")
    role = scripted(name="role")
    with use(replace(current(), role_lms={"answer": role})), open_ledger() as ledger:
        compiled("bootstrap", tmp_path, student, teacher=teacher, knobs={})
    assert {call.model for call in ledger.calls} == {teacher.model}
    assert not role.asked
    assert not student.asked


def test_the_prompt_model_alone_writes_instructions(tmp_path: Path) -> None:
    writer, student = scripted(name="writer"), scripted(name="student")
    for name in ("mipro", "copro", "gepa", "infer_rules"):
        compiled(name, tmp_path, student, prompt_lm=writer)
        if name == "mipro":
            prompts = [asked.prompt for asked in writer.asked]
            described = [p for p in prompts if "`program_description` (str): Describe" in p]
            assert len(described) == len(set(described)) > 0, "one description of the program"
    assert any("Missed hop" in asked.prompt for asked in writer.asked)  # GEPA's feedback
    assert not [asked for asked in writer.asked if asked.signature == "AnswerFromContext"]
    assert {asked.signature for asked in student.asked} == {"AnswerFromContext"}


# -- GEPA's feedback


@pytest.mark.parametrize(
    ("answer", "titles", "words"),
    [
        ("Ann 10", ["Town 10"], "Right"),
        ("", ["Town 10"], "No answer was given"),
        ("The mayor is Ann 10 of Town 10", ["Town 10", "River 10"], "Wrong form"),
        ("Bob", ["Town 10"], "Missed hop: no search found the passage 'River 10'"),
        ("Bob", ["Town 10", "River 10"], "Wrong: 'Bob' was answered, expected 'Ann 10'"),
    ],
)
def test_feedback_names_what_went_wrong(answer: str, titles: list[str], words: str) -> None:
    passages = [Passage(title, title, f"{title} is a place.") for title in titles]
    prediction = said(answer, passages=passages)
    assert words in feedback(VAL[0], prediction)
    unread = said("no", counts={"parse_fallback": 2})
    assert "2 replies could not be read" in feedback(VAL[0], unread)


#: A question of two hops, of which the first is answered by `Town 10`.
TWO_HOPS = dspy.Example(
    question="Who is the mayor of the town on River 10?",
    answers=["Ann 10"],
    support=[("River 10", 0), ("Town 10", 0)],
    decomposition=[{"question": "q1", "answer": "Town 10"}, {"question": "q2", "answer": "Ann 10"}],
)


@pytest.mark.parametrize(
    ("inputs", "outputs", "words", "absent"),
    [
        (
            {"context": "River 10 flows by Town 10."},
            {"answer": "a river"},
            "its input states it",
            "",
        ),
        ({"question": "q"}, {"query": "mayor"}, "its input lacks it too", "Wrong form"),
        ({"question": "q"}, {"query": "Town 10 mayor"}, "returned query 'Town 10 mayor'", "fact"),
        ({"context": "x"}, {"answer": "It is Ann 10 of Town 10"}, "Wrong form", "This step"),
    ],
)
def test_feedback_of_a_step_is_about_the_step_and_has_the_final_score_once(
    inputs: dict[str, Any], outputs: dict[str, Any], words: str, absent: str
) -> None:
    result = said("It is Ann 10 of Town 10", passages=[Passage("River 10", "River 10", "...")])
    step = (None, inputs, dspy.Prediction(**outputs))
    metric = full_metric(make_scorer("f1"), [TWO_HOPS])
    judged = metric(TWO_HOPS, result, [step], "step", [step])
    assert words in judged.feedback
    assert not absent or absent not in judged.feedback
    assert judged.feedback.count("scored 0.44") == ("This step" in judged.feedback)
    assert "no search found the passage 'Town 10'" in judged.feedback
    assert judged.score == metric(TWO_HOPS, result).score


def test_a_better_instruction_is_found(tmp_path: Path) -> None:
    """The LM answers odd towns only when it is told to be careful."""

    def script(asked: Asked) -> dict[str, Any]:
        reply = plausible(asked)
        known = town(asked) % 2 == 0 or "Be careful" in asked.prompt
        if "answer" in reply:
            reply["answer"] = f"Ann {town(asked)}" if known else "somebody else"
        return {k: "Be careful." if "instruction" in k else v for k, v in reply.items()}

    for name in ("mipro", "copro", "gepa"):
        lm = ScriptedLM(script)
        found = compiled(name, tmp_path, lm)
        assert "Be careful" in found.program.predictors()[0].signature.instructions, name
        assert measure(found.program, VAL, task(tmp_path, lm)).mean == 1.0
