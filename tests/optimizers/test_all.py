"""Every optimizer on every kind of program: it runs, keeps its budget and leaves JSON."""

from __future__ import annotations

import json
from pathlib import Path

import dspy
import pytest

from ragbench.ledger import open_ledger
from ragbench.optimizers import OPTIMIZERS
from ragbench.optimizers.base import PRESETS, Size, measure
from ragbench.programs.base import predictors_of
from tests.optimizers.world import SMALL, TRAIN, VAL, counted_runs, program, scripted, task

SHAPES = ["vanilla", "ircot", "self_rag", "react", "a_rag"]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", OPTIMIZERS.names())
def test_runs_within_its_stated_budget(name: str, shape: str, tmp_path: Path) -> None:
    start = program(shape)
    before = start.dump_state()
    optimizer = OPTIMIZERS.get(name)(**SMALL[name])
    job = task(tmp_path, scripted())
    with counted_runs(type(start)) as runs, open_ledger() as ledger:
        found = optimizer.compile(start, job)
    budget = optimizer.estimate(Size(len(start.predictors()), len(TRAIN), len(VAL)))
    by_writer = sum(call.kind == "lm" and not call.role for call in ledger.calls)
    assert budget.runs.low <= runs["all"] <= budget.runs.high
    assert budget.prompt_calls.low <= by_writer <= budget.prompt_calls.high
    assert start.dump_state() == before, "the program that was given changed"
    json.dumps(found.program.dump_state())
    assert type(found.program) is type(start)
    assert measure(found.program, VAL, job).failed == 0


@pytest.mark.parametrize("shape", SHAPES)
def test_every_predictor_that_was_asked_shows_demonstrations(shape: str, tmp_path: Path) -> None:
    lm = scripted()
    found = OPTIMIZERS.get("bootstrap")().compile(program(shape), task(tmp_path, lm))
    asked = {
        row.predictor for row in predictors_of(found.program) if row.signature in lm.signatures
    }
    assert asked
    for name, predictor in found.program.named_predictors():
        assert predictor.demos or name.removesuffix(".predict") not in asked
    before = len(lm.asked)
    with dspy.context(lm=lm):
        found.program(question=VAL[0].question)
    assert all(one.prompt.count("mayor of Town") > 1 for one in lm.asked[before:])


@pytest.mark.parametrize("name", OPTIMIZERS.names())
def test_prints_nothing(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    OPTIMIZERS.get(name)(**SMALL[name]).compile(program(), task(tmp_path))
    assert capfd.readouterr() == ("", "")
    assert (tmp_path / "optimizer.log").is_file()


@pytest.mark.parametrize("name", OPTIMIZERS.names())
def test_same_seed_same_program(name: str, tmp_path: Path) -> None:
    made = []
    for number in range(2):
        found = OPTIMIZERS.get(name)(**SMALL[name]).compile(
            program("self_rag"), task(tmp_path / str(number), scripted(), seed=3)
        )
        made.append(json.dumps(found.program.dump_state(), sort_keys=True))
    assert made[0] == made[1]


@pytest.mark.parametrize("name", ["bootstrap", "labeled", "random_search", "mipro", "knn"])
def test_seeds_differ_and_0_is_a_seed(name: str, tmp_path: Path) -> None:
    if name not in OPTIMIZERS.names():
        pytest.skip(f"{name} is not there")
    knobs = {**SMALL[name], **({"labeled": 3} if name == "labeled" else {})}
    made = set()
    for seed in (0, 1, 9):
        found = OPTIMIZERS.get(name)(**knobs).compile(
            program(), task(tmp_path / str(seed), seed=seed)
        )
        tried = [candidate.program.dump_state() for candidate in found.candidates]
        made.add(json.dumps([found.program.dump_state(), tried, found.files], sort_keys=True))
    assert len(made) == 3


@pytest.mark.parametrize("name", OPTIMIZERS.names())
def test_states_its_needs_and_presets(name: str) -> None:
    optimizer = OPTIMIZERS.get(name)
    assert optimizer.name == name
    assert optimizer.description
    assert optimizer.formula
    size = Size(2, 40, 40)
    spent = [optimizer(preset).estimate(size).runs for preset in PRESETS]
    assert [r.high for r in spent] == sorted(r.high for r in spent), "a preset spends less"
    assert all(r.low <= r.high for r in spent)
