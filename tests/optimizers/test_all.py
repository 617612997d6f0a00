"""Every optimizer on every kind of program: it runs, keeps its budget and leaves JSON."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from ragbench.data.base import for_optimizer
from ragbench.ledger import open_ledger
from ragbench.optimizers import OPTIMIZERS
from ragbench.optimizers.base import PRESETS, measure
from ragbench.optimizers.task import Size, Task
from tests.optimizers.world import SMALL, TRAIN, VAL, compiled, program, scripted, task


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
    assert capfd.readouterr() == ("", "")
    assert (tmp_path / "optimizer.log").is_file()


@pytest.mark.parametrize("name", OPTIMIZERS.names())
def test_same_seed_same_program(name: str, tmp_path: Path) -> None:
    made = []
    for number in range(2):
        found = compiled(name, tmp_path / str(number), scripted(), seed=3)
        made.append(json.dumps(found.program.dump_state(), sort_keys=True))
    assert made[0] == made[1]


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
    found = OPTIMIZERS.get(name)(**knobs).compile(program(), job)
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
    seeds = (0, 1, 9)  # MIPROv2 takes 0 for none, and 9 then
    streams = {str(stream(name, seed, tmp_path / f"{seed}")) for seed in seeds}
    assert len(streams) == len(seeds)


@pytest.mark.parametrize("name", ["bootstrap", "knn", "simba", "copro", "infer_rules"])
def test_no_sample_of_one_seed_is_one_of_another(name: str, tmp_path: Path) -> None:
    drawn = []
    for seed in (0, 1):
        asked = stream(name, seed, tmp_path / f"{seed}")
        drawn.append({(prompt, sampled) for prompt, heat, sampled in asked if heat})
    assert all(drawn)
    assert drawn[0].isdisjoint(drawn[1])


@pytest.mark.parametrize("name", OPTIMIZERS.names())
def test_states_its_needs_and_presets(name: str) -> None:
    optimizer = OPTIMIZERS.get(name)
    assert optimizer.description
    assert optimizer.formula
    size = Size(2, 40, 40)
    spent = [optimizer(preset).estimate(size).runs for preset in PRESETS]
    assert [r.high for r in spent] == sorted(r.high for r in spent), "a preset spends less"
    assert all(r.low <= r.high for r in spent)
