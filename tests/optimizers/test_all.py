"""Every optimizer on every kind of program; the bank of knn."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import dspy
import pytest

from ragbench.data.base import for_optimizer
from ragbench.errors import RunError
from ragbench.ledger import open_ledger
from ragbench.optimizers import OPTIMIZERS
from ragbench.optimizers.base import PRESETS, measure
from ragbench.optimizers.knn import BANK, KNN, use_bank
from ragbench.optimizers.task import Size, Task
from tests.optimizers.world import SMALL, TRAIN, VAL, program, scripted, task, town


@pytest.mark.parametrize(
    ("name", "shape"),
    [(name, "self_rag") for name in OPTIMIZERS.names()]
    + [(name, shape) for name in ("bootstrap", "mipro") for shape in ("vanilla", "react")],
)
def test_runs_within_its_stated_budget_and_prints_nothing(
    name: str, shape: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    start = program(shape)
    before = start.dump_state()
    optimizer = OPTIMIZERS.get(name)(**SMALL[name])
    job = task(tmp_path, scripted())
    kind = type(start)
    runs = patch.object(kind, "forward", autospec=True, side_effect=kind.forward)
    with runs as forward, open_ledger() as ledger:
        found = optimizer.compile(start, job)
    budget = optimizer.estimate(Size(len(start.predictors()), len(TRAIN), len(VAL)))
    by_writer = sum(call.kind == "lm" and not call.role for call in ledger.calls)
    assert budget.runs.low <= forward.call_count <= budget.runs.high
    assert budget.prompt_calls.low <= by_writer <= budget.prompt_calls.high
    assert start.dump_state() == before, "the program that was given changed"
    json.dumps(found.program.dump_state())
    assert isinstance(found.program, type(start))
    assert measure(found.program, VAL, job).failed == 0
    scores = [candidate.score for candidate in found.candidates]
    assert scores == sorted(scores, reverse=True)
    assert scores or name in ("bootstrap", "knn", "labeled")
    for each in (found.program, *(candidate.program for candidate in found.candidates)):
        assert not {"candidate_programs", "detailed_results"} & each.__dict__.keys()
        assert each.retriever is start.retriever
        assert all(predictor.lm is None for predictor in each.predictors())
    assert capfd.readouterr() == ("", "")
    assert (tmp_path / "optimizer.log").is_file()


#: Settings under which every random number of an optimizer comes to a call.
SAMPLING = {
    "bootstrap": {"rounds": 3, "bootstrapped": 64},
    "knn": {"rounds": 2},
    "labeled": {"labeled": 3},
}


def stream(name: str, seed: int, folder: Path) -> list[Any]:
    """All that the LMs of one compile are asked, with temperature and sampling seed, in order."""
    lm = scripted(seed=0)
    knobs = {**SMALL[name], **SAMPLING.get(name, {})}
    job = task(folder, lm, seed=seed, workers=1)
    start = program("direct" if name == "labeled" else "vanilla")
    found = OPTIMIZERS.get(name)(**knobs).compile(start, job)
    asked = [(a.prompt, a.request.config.temperature, a.request.config.seed) for a in lm.asked]
    return asked or [found.program.dump_state()]


#: Those with random numbers of their own; the others' only seed is the order of their examples.
DRAWING = {"copro", "gepa", "infer_rules", "mipro", "optuna", "simba"}


@pytest.mark.parametrize("name", OPTIMIZERS.names())
def test_two_seeds_give_two_streams_and_0_is_a_seed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name in DRAWING:
        monkeypatch.setattr(Task, "trainset", property(lambda task: for_optimizer(task.train)))
    seeds = (0, 1, 9) if name == "mipro" else (0, 1)  # MIPROv2 takes 0 for none, and 9 then
    streams = [stream(name, seed, tmp_path / f"{seed}") for seed in seeds]
    assert len(set(map(str, streams))) == len(seeds)
    if name in ("bootstrap", "knn", "simba", "copro", "infer_rules"):
        drawn = [{(prompt, seed) for prompt, heat, seed in asked if heat} for asked in streams]
        assert all(drawn)
        assert drawn[0].isdisjoint(drawn[1]), "a sample of one seed is one of another"


@pytest.mark.parametrize("name", OPTIMIZERS.names())
def test_states_its_needs_and_presets(name: str) -> None:
    optimizer = OPTIMIZERS.get(name)
    assert optimizer.description
    assert optimizer.formula
    size = Size(2, 40, 40)
    spent = [optimizer(preset).estimate(size).runs for preset in PRESETS]
    assert [r.high for r in spent] == sorted(r.high for r in spent), "a preset spends less"


# -- knn

BANK_OF_THREE: dict[str, Any] = {
    "k": 2,
    "entries": [
        {"question": q, "demos": {"answer": [{"question": q, "answer": a}]}}
        for q, a in [
            ("Who is the mayor of Paris?", "Anne"),
            ("Who is the mayor of Rome?", "Roberto"),
            ("Which river crosses Berlin?", "Spree"),
        ]
    ],
}


def prompt_of(loaded: dspy.Module, question: str) -> str:
    lm = scripted(lambda asked: {"answer": "x"})
    with dspy.context(lm=lm):
        loaded(question=question)
    [asked] = lm.asked
    return asked.prompt


def test_knn_puts_the_nearest_examples_next_to_the_question() -> None:
    made = program()
    use_bank(made, BANK_OF_THREE)
    shown = prompt_of(made, "Who was the mayor of Rome?")
    assert "Spree" not in shown
    assert shown.index("Anne") < shown.index("Roberto") < shown.index("Who was the mayor")
    assert "Spree" in prompt_of(made, "Which river crosses Prague?")
    assert [predictor.demos for predictor in made.predictors()] == [[]]
    copied = made.deepcopy()
    copied.answer.signature = copied.answer.signature.with_instructions("Be brief.")
    prompt = prompt_of(copied, "Xyzzy?")  # a copy asks itself
    assert "Anne" in prompt
    assert "Be brief." in prompt


def test_the_bank_holds_right_answers_alone_never_the_question_asked_and_survives_json(
    tmp_path: Path,
) -> None:
    lm = scripted()
    found = OPTIMIZERS.get("knn")().compile(program("self_rag"), task(tmp_path, lm))
    bank = found.files[BANK]
    even = {e.question for i, e in enumerate(TRAIN) if i % 2 == 0}
    assert {entry["question"] for entry in bank["entries"]} == even
    loaded = program("self_rag")
    KNN.attach(loaded, json.loads(json.dumps(found.files)))
    before = len(lm.asked)
    first = measure(found.program, VAL, task(tmp_path, lm))
    middle = len(lm.asked)
    assert measure(loaded, VAL, task(tmp_path, lm)) == first
    prompts = [asked.prompt for asked in lm.asked]
    assert sorted(prompts[before:middle]) == sorted(prompts[middle:])
    assert first.failed == 0
    assert not [a for a in lm.asked if a.prompt.count(f"Town {town(a)}?") > 1]


@pytest.mark.parametrize("files", [{}, {BANK: {"k": 2, "entries": [3]}}])
def test_knn_if_the_bank_is_damaged_has_a_one_line_error(files: dict[str, Any]) -> None:
    with pytest.raises(RunError, match="compile again") as caught:
        KNN.attach(program(), files)
    assert "\n" not in str(caught.value)
