"""Every program can be compiled: bootstrapping finds each predictor and a demonstration for it."""

from pathlib import Path
from typing import Any

import dspy
import pytest

from ragbench.lms.adapters.lenient import make_adapter
from ragbench.programs import PROGRAMS
from ragbench.programs.core.program import RAGProgram
from tests.fakes import Asked, Reply, ScriptedLM, plausible
from tests.programs.shelf import shelf
from tests.programs.test_contract import ALL, never_stops

#: The first is answered from memory, the second at once, the third after all a program can do.
TRAINSET = [
    dspy.Example(question=question, answer="some answer").with_inputs("question")
    for question in (
        "Is Salt Road a novel?",
        "Who wrote Salt Road?",
        "In which county was the author of Salt Road born?",
    )
]


def succeeds(asked: Asked) -> Reply:
    """A script under which the three questions go all the ways of every program."""
    if "Is Salt Road" in asked.prompt:
        memory = {"retrieve": False, "effort": "none"}
        return {**_short(asked), **{k: v for k, v in memory.items() if k in asked.fields}}
    return _short(asked) if "Who wrote" in asked.prompt else _long(asked)


def _short(asked: Asked) -> dict[str, Any]:
    wanted = {
        "tool": "finish",
        "argument": "Orla Venn",
        "answer": "some answer",
        "action": "TRAVERSE",
        "confidence": 0.9,
        "code": "SUBMIT('some answer')",
    }
    return {**plausible(asked), **{k: v for k, v in wanted.items() if k in asked.fields}}


def _long(asked: Asked) -> dict[str, Any]:
    reply = never_stops(asked)
    assert isinstance(reply, dict)
    if asked.signature == "IsRel" and "Salt Road" not in asked.inputs["question"]:
        return {**reply, "relevance": "relevant"}  # of a sub-question
    if asked.signature == "CritiquedAnswer":  # no passage answers alone
        return {**reply, "relevance": "relevant", "answer": "unknown"}
    if "question_type" in asked.fields:
        return {**reply, "question_type": "bridge"}
    if "nodes" in asked.fields:
        first = {"id": "n1", "query": "author of Salt Road", "produces": ["author"]}
        second = {"id": "n2", "query": "birthplace of {author}", "depends_on": ["n1"]}
        nodes = [{**plausible(asked)["nodes"][0], **n} for n in (first, second)]
        return {**reply, "nodes": nodes}
    if "facts" in asked.fields and asked.fields["facts"] != list[str]:
        statement = f"Fact {asked.number} is about Harwick."
        fact = {"statement": statement, "evidence": [1], "fulfillment": "partial"}
        return {**reply, "facts": [fact]}
    if "action" in asked.fields:
        return {**reply, **_planned(asked.inputs["tree"])}
    if asked.signature == "CombineAnswers":  # so that the passages are read for a guess
        return {**reply, "answer": ""}
    if asked.signature == "AnswerWithHints" and "Salt Road born" in asked.prompt:
        return {**reply, "answer": "unknown"}
    return reply


def _planned(tree: str) -> dict[str, str]:
    split = "(part of n0)" in tree
    return {"action": "TRAVERSE" if split else "ROLLOUT", "node_id": "n0"}


def accept(example: dspy.Example, prediction: dspy.Prediction, trace: Any = None) -> bool:
    return bool(prediction.answer)


@pytest.mark.parametrize(("name", "variant"), ALL)
def test_bootstrapping_collects_a_demonstration_for_every_predictor(
    name: str, variant: str, tmp_path: Path
) -> None:
    program, lm = PROGRAMS.get(name)(shelf(), variant=variant), ScriptedLM(succeeds)
    optimizer = dspy.BootstrapFewShot(
        metric=accept, max_bootstrapped_demos=8, max_labeled_demos=0, max_errors=0
    )
    with dspy.context(lm=lm, adapter=make_adapter("json", lm)):
        compiled = optimizer.compile(program, trainset=TRAINSET)
    demos = {path: len(predictor.demos) for path, predictor in compiled.named_predictors()}
    assert demos
    assert [path for path, count in demos.items() if not count] == []

    compiled.save(tmp_path / "program.json")
    loaded = PROGRAMS.get(name)(shelf(), variant=variant)
    loaded.load(tmp_path / "program.json")
    assert prompts_of(loaded) == prompts_of(compiled)


def prompts_of(program: RAGProgram) -> list[str]:
    lm = ScriptedLM(_short)
    with dspy.context(lm=lm, adapter=make_adapter("json", lm)):
        program(question="Who wrote Salt Road?")
    return sorted(asked.prompt for asked in lm.asked)
