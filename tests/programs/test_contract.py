"""What every registered program and variant keeps to, whatever its LM does."""

import json
from dataclasses import asdict
from typing import Any, get_args

import dspy
import pytest

import ragbench.signatures
from ragbench.context import current, use
from ragbench.lms.adapters import make_adapter
from ragbench.programs import PROGRAMS
from ragbench.programs.core import StopReason
from ragbench.programs.core.program import RAGProgram, calls_of
from ragbench.programs.core.question_state import Questions
from ragbench.record import Ledger
from ragbench.signatures import ANSWER_STYLES, AnswerStyle
from tests import fakes
from tests.fakes import Asked, Reply, Script, ScriptedLM, plausible
from tests.programs.shelf import COUNTY, ask, shelf

#: Every variant; those that are no default one are slow.
ALL = [
    pytest.param(name, variant, marks=[pytest.mark.slow] if number else [])
    for name, program in PROGRAMS
    for number, variant in enumerate(program.variants)
]

#: Replies that keep each loop going for as long as it can, field by field.
_GOING: dict[str, Any] = {
    "done": False,
    "strategy": "reword",
    "score": 0.0,
    "confidence": 0.1,
    "mode": "decompose",
    "retrieve": True,
    "action": "TRAVERSE",
    "code": "print(1)",
    "fulfillment": "partial",
}


def never_stops(asked: Asked) -> Reply:
    """A script that always has another thought, query or sub-question, and never is done."""
    n = asked.number
    fresh = {
        "thought": f"Thought number {n} is about Harwick.",
        "query": f"town {n}",
        "queries": [f"town {n}", f"county {n}"],
        "missing": [],
        "steps": [f"Find town {n}", f"Find county {n}", f"Find road {n}", f"Find novel {n}"],
        "task": f"What about town {n}?",
        "follow_up": f"What about town {n}?",
        "notes": [f"Note number {n} is about Harwick."],
        "argument": f"town {n}",
        "arguments": [f"town {n}"],
        "sub_questions": [f"What about town {n}?", f"What about county {n}?"],
        "subtasks": [{"id": f"t{n}", "question": f"What about town {n}?"}],
        "new_plan": [{"id": f"t{n}", "question": f"What about town {n}?"}],
        "actions": [{"requirement_id": f"t{n}", "query": f"town {n}"}],
        "nodes": _chain(5),
        "bindings": [{"variable": "town", "value": f"town {n}"}],
        "node_id": "n0",
        "effort": "multi",
        "clues": [f"Something is known about town {n}"],
        "questions": [f"What about town {n}?"],
        "relevance": "irrelevant" if asked.signature == "IsRel" else "relevant",
        "claims": [{"statement": f"Claim {i} of {n}.", "evidence": [i]} for i in (1, 2)],
        "drop": [1],
    }
    return _filled(asked, {**_GOING, **_use(asked), **fresh})


def _use(asked: Asked) -> dict[str, str]:
    """A tool that looks something up, in place of an answer."""
    choices = get_args(asked.fields.get("tool"))
    if not choices:
        return {}
    if asked.inputs["steps_left"].startswith("0"):
        return {"answer": "Harwick", "tool": "finish"}
    return {"answer": "", "tool": "search" if "search" in choices else str(choices[0])}


def _look_up(id: str, query: str, *after: str, produces: list[str] | None = None) -> dict[str, Any]:
    """A look-up of a plan graph."""
    node = {"id": id, "query": query, "op": "bridge", "depends_on": list(after)}
    return {**node, "confidence": 0.1, "cost": 1, "produces": produces or []}


def _chain(n: int) -> list[dict[str, Any]]:
    """Look-ups that each wait for what the one before finds out."""
    later = [_look_up(f"n{i}", f"{{n{i - 1}}}", produces=["town"]) for i in range(2, n + 1)]
    return [_look_up("n1", "town", produces=["town"]), *later]


def names_unknown(asked: Asked) -> Reply:
    """A script that asks for nodes, tools, passages and ids that do not exist."""
    odd = {
        "tool": "teleport",
        "argument": "?",
        "arguments": ["?"],
        "node_id": "n99",
        "keep": [99],
        "citations": [0, 99],
        "claims": [{"statement": "Nothing.", "evidence": [0, 99]}],
        "drop": [0, 99],
        "facts": [{"statement": "Nothing.", "evidence": [99], "requirement_id": "r99"}],
        "subtasks": [{"id": "a", "question": "Who?", "depends_on": ["zz", "a"]}],
        "new_plan": [{"id": "a", "question": "Who?", "depends_on": ["zz"]}],
        "actions": [{"requirement_id": "zz", "query": "town"}],
        "nodes": [_look_up("n1", "county of {nowhere}", "zz", "n1"), _look_up("n2", "{n1}")],
        "bindings": [{"variable": "nothing", "value": "town"}],
        "sub_questions": ["What about {7}?"],
    }
    return _filled(asked, {**_GOING, **odd})


def _filled(asked: Asked, values: dict[str, Any]) -> dict[str, Any]:
    if "search" in get_args(asked.fields.get("next_step")):
        values = {"next_step": "search", **values}
    return {**plausible(asked), **{k: v for k, v in values.items() if k in asked.fields}}


SCRIPTS = [plausible, never_stops, fakes.never_parses, fakes.blank, names_unknown]


def make(name: str, variant: str, **knobs: Any) -> RAGProgram:
    return PROGRAMS.get(name)(shelf(), variant=variant, **knobs)


#: What a run tells of its questions: ids, and gold passages for the program that reads these.
ASKED = Questions({COUNTY: dspy.Example(qid="q1", gold_pids=["Salt Road", "Orla Venn", "Harwick"])})


def run(program: RAGProgram, script: Script) -> tuple[dspy.Prediction, Ledger]:
    with use(current().plus(ASKED)):
        prediction, _, ledger = ask(program, script, COUNTY)
    return prediction, ledger


def lm_calls(ledger: Ledger) -> int:
    """Calls of language models; an index of the program's own embeds queries as well."""
    return sum(call.kind == "lm" for call in ledger.calls)


def fingerprint(prediction: dspy.Prediction, ledger: Ledger) -> str:
    """All of a run but its times."""
    return json.dumps(
        {
            "answer": prediction.answer,
            "reason": prediction.stop_reason,
            "steps": [{**asdict(s), "calls": len(s.calls)} for s in prediction.steps],
            "searches": [[s.query, s.k, s.hits, s.cached] for s in prediction.searches],
            "counts": dict(prediction.counts),
            "calls": [sorted(c.signature for c in ledger.calls), ledger.path.calls],
        },
        default=str,
        sort_keys=True,
    )


#: Calls with the default knobs where the script answers and never needs a loop.
HAPPY = {
    "direct:default": 1, "vanilla:default": 1, "vanilla:naive_rag": 1, "multi_query:default": 2,
    "tree_rag:collapsed": 1, "tree_rag:traversal": 1, "tree_rag:hiro": 1, "raptor:traversal": 1,
    "graph_rag:official": 1, "graph_rag:arag": 1, "hippo_rag:official": 2, "hippo_rag:arag": 2,
    "light_rag:hybrid": 2, "light_rag:naive": 1, "linear_rag:official": 2, "linear_rag:arag": 2,
    "memo_rag:lite": 3, "memo_rag:no_memory": 2, "ra_isf:official": 7, "rq_rag:official": 6,
    "ma_rag:batched": 3, "adaptive_rag:gpt": 2, "faithful_rag:official": 4,
    "lookahead:bound": 2, "lookahead:engine": 2, "lookahead:rewrite": 2,
    "gold:default": 1, "main_rag:default": 11,
    "self_rag:combined": 7, "self_rag:per_passage": 21, "hyde:default": 9,
}  # fmt: skip

#: The most calls and searches with the default knobs, where no reply ever ends a loop.
MOST = {
    "a_rag:full": (16, 15), "a_rag:naive": (16, 15), "a_rag:no_read": (16, 15),
    "adaptive_rag:gpt": (12, 10), "flare:verbal": (21, 11), "flare:never": (11, 1),
    "ircot:spec": (6, 6), "ircot:paper": (11, 10), "ircot:flash": (6, 5),
    "lookahead:bound": (5, 6), "lookahead:engine": (2, 7), "lookahead:rewrite": (2, 2),
    "ma_rag:batched": (13, 4), "rag_enta:arag": (15, 4), "react:spec": (8, 7),
    "react:page": (8, 7), "react:tree_search": (19, 11), "reap:spec": (11, 10),
    "rlm:default": (22, 15), "self_ask:default": (12, 5), "search_o1:paper": (22, 10),
    "search_o1:no_reading": (12, 10),
}  # fmt: skip


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda s: s.__name__)
@pytest.mark.parametrize(("name", "variant"), ALL)
def test_ends_within_its_budget_with_an_answer(name: str, variant: str, script: Script) -> None:
    program = make(name, variant)
    prediction, ledger = run(program, script)
    assert prediction.answer.strip()
    assert prediction.stop_reason in get_args(StopReason)
    assert 1 <= lm_calls(ledger) <= program.knobs.max_calls
    assert 1 <= ledger.path.calls <= len(ledger.calls)
    made = [search for search in prediction.searches if not search.cached]
    assert len(made) <= program.knobs.max_retrievals
    of = f"{name}:{variant}"
    if script is plausible:
        assert lm_calls(ledger) == HAPPY.get(of, lm_calls(ledger))
    if script is never_stops and of in MOST:
        assert (lm_calls(ledger), len(made)) == MOST[of]
    if script is fakes.never_parses:
        assert prediction.counts["parse_fallback"] == lm_calls(ledger)
        says_so = name == "self_rag"  # itself, where no candidate has an answer
        assert prediction.answer == "noanswer"
        assert says_so or prediction.counts["blank_answer"] == 1
    assert all(step.action for step in prediction.steps)
    json.dumps([asdict(step) for step in prediction.steps])
    seen = {pid for search in prediction.searches for pid, _ in search.hits}
    assert {passage.pid for passage in prediction.passages} <= seen


@pytest.mark.parametrize("limit", [{"max_calls": 1}, {"max_retrievals": 0}])
@pytest.mark.parametrize(("name", "variant"), ALL)
def test_a_small_budget_is_kept(name: str, variant: str, limit: dict[str, int]) -> None:
    for script in (never_stops, fakes.never_parses):
        prediction, ledger = run(make(name, variant, **limit), script)
        assert prediction.answer.strip()
        assert lm_calls(ledger) <= limit.get("max_calls", 100)
        made = [search for search in prediction.searches if not search.cached]
        assert len(made) <= limit.get("max_retrievals", 100)


@pytest.mark.parametrize(("name", "variant"), ALL)
def test_the_same_replies_give_the_same_run(name: str, variant: str) -> None:
    def steady(asked: Asked) -> Reply:
        # Calls made at once arrive in any order: number them by what they say instead.
        number = sum(map(ord, asked.prompt)) % 1000
        return never_stops(Asked(**{**asked.__dict__, "number": number}))

    first, second = (fingerprint(*run(make(name, variant), steady)) for _ in range(2))
    assert first == second


@pytest.mark.parametrize(("name", "variant"), ALL)
def test_a_provider_error_leaves_the_program(name: str, variant: str) -> None:
    with pytest.raises(dspy.LMError):
        run(make(name, variant), lambda asked: fakes.rate_limited())


def narrow(asked: Asked) -> Reply:
    """A script of an LM whose window holds few characters beside the fixed part of a prompt."""
    return fakes.overflowing() if sum(map(len, asked.inputs.values())) > 900 else never_stops(asked)


@pytest.mark.parametrize(("name", "variant"), ALL)
def test_a_window_that_is_too_small_fails_no_question(name: str, variant: str) -> None:
    program = PROGRAMS.get(name)(shelf(words=450), variant=variant, max_calls=14)
    prediction, ledger = run(program, narrow)
    assert prediction.answer not in ("", "noanswer")
    refused = sum(call.error == "ContextWindowExceededError" for call in ledger.calls)
    assert refused == prediction.counts["context_cut"] + prediction.counts["context_overflow"]
    assert lm_calls(ledger) - refused <= program.knobs.max_calls
    assert prediction.counts["context_cut"] or name == "direct"  # which shows no passage


@pytest.mark.parametrize(("name", "variant"), ALL)
def test_the_final_answer_is_asked_for_in_the_style_of_the_knob(name: str, variant: str) -> None:
    style: AnswerStyle = "long"
    _, lm, _ = ask(make(name, variant, answer_style=style), never_stops, COUNTY)
    prompts = [asked.prompt for asked in lm.asked]
    assert any(ANSWER_STYLES[style] in prompt for prompt in prompts)
    assert not any(ANSWER_STYLES["brief"] in prompt for prompt in prompts)


@pytest.mark.parametrize(("name", "variant"), ALL)
def test_every_predictor_has_a_declared_signature_and_a_role(name: str, variant: str) -> None:
    program = make(name, variant)
    rows = calls_of(program)[: -len(program.other_calls()) or None]
    predictors = dict(program.named_predictors())
    paths = {path.removesuffix(".predict") for path in predictors}
    assert {row.predictor.removesuffix(".predict") for row in rows} == paths != set()
    assert all(row.role != "sub" for row in rows)
    for path, predictor in predictors.items():
        assert predictor.signature.__name__ in vars(ragbench.signatures), path


def test_default_programs_use_the_signatures_of_the_specification() -> None:
    used: dict[str, set[str]] = {}
    for name, program in PROGRAMS:
        used[name] = set()
        for _, predictor in make(name, next(iter(program.variants))).named_predictors():
            signature = getattr(ragbench.signatures, predictor.signature.__name__)
            used[name] |= {kind.__name__ for kind in signature.__mro__}
    wanted = {
        "RetrievalDecision", "IsRel", "IsSup", "PlannerAction", "FactExtract",
        "RecursiveDecompose",
    }  # fmt: skip
    assert wanted <= set().union(*used.values())
    assert {"IsRel", "IsSup", "RetrievalDecision"} <= used["self_rag"]
    assert "FactExtract" in used["reap"]


#: The first is answered as soon as may be, the second after all that a program can do.
TRAINSET = [
    dspy.Example(question=question, answer="some answer").with_inputs("question")
    for question in ("Who wrote Salt Road?", COUNTY)
]


def soon_or_late(asked: Asked) -> Reply:
    """A script under which a program goes its shortest and its longest ways."""
    return plausible(asked) if "Who wrote" in asked.prompt else never_stops(asked)


@pytest.mark.parametrize(("name", "variant"), ALL)
def test_bootstrapping_collects_a_demonstration_for_every_predictor_asked(
    name: str, variant: str
) -> None:
    program, lm = make(name, variant), ScriptedLM(soon_or_late)
    knobs: dict[str, Any] = {"max_bootstrapped_demos": 8, "max_labeled_demos": 0, "max_errors": 0}
    optimizer = dspy.BootstrapFewShot(metric=lambda *_: True, **knobs)
    with dspy.context(lm=lm, adapter=make_adapter("json", lm)):
        compiled = optimizer.compile(program, trainset=TRAINSET)
    asked = {row.predictor for row in calls_of(program) if row.signature in lm.signatures}
    assert asked
    for path, predictor in compiled.named_predictors():
        assert predictor.demos or path.removesuffix(".predict") not in asked
    again = make(name, variant)
    again.load_state(json.loads(json.dumps(compiled.dump_state())))
    assert again.dump_state() == compiled.dump_state()
