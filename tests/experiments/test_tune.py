"""Tuning: its space, its front, its estimate, and that a kill changes nothing."""

import re
from itertools import permutations
from pathlib import Path
from typing import Any

import dspy
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from ragbench.cli.printing import show
from ragbench.errors import ConfigError, DataError, KnobError
from ragbench.experiments.artifacts import read_sidecar
from ragbench.experiments.cells.cell import read_experiment
from ragbench.experiments.cells.tune import Point, TuneResult, estimate_tune, tune
from ragbench.experiments.cells.tune_space import make_space
from ragbench.experiments.config import RunConfig, TuneConfig
from ragbench.experiments.report.tuned import tuned_report
from ragbench.experiments.runs.compiled import compiled_fields
from ragbench.experiments.runs.context import billed_under
from ragbench.experiments.runs.runner import evaluate
from ragbench.experiments.store import read_card
from ragbench.programs import PROGRAMS
from ragbench.programs.external import keep_module, load_program
from ragbench.record import total
from tests.experiments.towns import Killed, World, killed_at, town
from tests.fakes import Asked, Reply, plausible


def by_passages(asked: Asked) -> Reply:
    """More passages answer more questions, up to a point, and cost more."""
    shown = asked.prompt.rpartition("[[ ## context ## ]]")[2].count("lies on river")
    right = shown > town(asked) % 4
    return {**plausible(asked), "answer": f"Town {town(asked)}" if right else "elsewhere"}


@pytest.fixture
def world(world: World) -> World:
    world.use(by_passages)
    return world


def asked(
    world: World, run: dict[str, Any] | None = None, **how: Any
) -> tuple[RunConfig, TuneConfig]:
    fixed = {"k": None, "split": "validation", "setting": "pooled", "out": world.folder / "tuned"}
    given = {"only": ("k",), "trials": 8, "objective": ("f1", "tokens"), **how}
    return world.config(**{**fixed, **(run or {})}), TuneConfig(**given)


def values(point: Point) -> tuple[float, ...]:
    return tuple(mean.mean for mean in point.means.values())


def search(world: World, run: dict[str, Any] | None = None, **how: Any) -> TuneResult:
    return tune(*asked(world, run, **how))


def test_the_front_is_not_dominated_loads_and_is_held_out(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    tuned = search(world)
    points = [values(point) for point in tuned.front]
    assert len(points) >= 2
    for (f1, tokens), (other_f1, other_tokens) in permutations(points, 2):
        assert f1 > other_f1 or tokens < other_tokens
    assert points == sorted(points, reverse=True)
    every = read_experiment(world.folder / "tuned", "tune")
    for cell in every.cells:  # no other trial is better on both
        spent = cell.summary["as_if"]
        cost = (spent["prompt_tokens"] + spent["completion_tokens"]) / cell.summary["n"]
        score = cell.summary["scores"]["f1"] - 1e-9
        assert any(f1 >= score and tokens <= cost + 1e-9 for f1, tokens in points)
    assert len(every.cells) <= tuned.trials + 1 == 9
    show(tuned_report(tuned))
    out = capsys.readouterr().out
    assert "optimistic" in out
    for point in tuned.front:
        ends = point.means["f1"].interval
        assert f"{point.means['f1'].mean:.4g} [{ends.low:.4g}, {ends.high:.4g}]" in out


def test_a_point_of_the_front_is_a_program_and_refuses_the_questions_of_the_search(
    world: World,
) -> None:
    first = search(world, trials=4).front[0]
    folder = world.folder / "tuned" / "front" / "00"
    fields = compiled_fields(folder)
    assert fields["set"]["k"] == first.settings["k"]
    over = {"set": fields["set"], "k": None, "setting": "pooled", "compiled": folder}
    done = evaluate(world.config(**over, out=world.folder / "test", limit=4))
    assert len(done.records) == 4
    with pytest.raises(DataError, match="used to compile"):
        evaluate(world.config(**over, out=world.folder / "seen", split="validation"))
    sidecar = read_sidecar(folder)
    assert (sidecar.scores["n"], sidecar.cost["as_if"]["all"]["calls"] % 8) == (8, 0)


def test_killed_anywhere_it_comes_to_the_same_front(world: World, tmp_path: Path) -> None:
    def front(run: dict[str, Any]) -> list[tuple[Any, Any]]:
        points = search(world, {"workers": 1, **run}, trials=4).front
        return [(dict(point.settings), values(point)) for point in points]

    quiet = front({"out": tmp_path / "quiet"})
    for call in (3, 14):
        world.use(killed_at(call, by_passages), cache=False)
        with pytest.raises(Killed):
            front({})
    world.use(by_passages, cache=False)
    assert front({}) == quiet
    again = world.use(by_passages, cache=False)
    assert (front({}), again.asked) == (quiet, [])


@pytest.mark.parametrize(
    ("run", "how", "error", "words"),
    [
        ({"split": "test"}, {}, DataError, "leave out --split test"),
        ({"set": {"k": 3}}, {}, ConfigError, "fixed by --set"),
        ({}, {"space": {"k": "1:1000"}}, KnobError, "not allowed"),
    ],
)
def test_what_cannot_be_searched_is_refused(
    run: dict[str, Any], how: dict[str, Any], error: type[Exception], words: str, world: World
) -> None:
    with pytest.raises(error, match=words):
        search(world, run, **how)
    assert world.lm.asked == []


def test_the_space_comes_from_types_and_bounds() -> None:
    space = make_space(PROGRAMS.get("self_rag"), {"select": "best"}, narrowed={"k": "2,4"})
    assert space["gate"] == CategoricalDistribution(["ask", "always", "never"])
    assert space["threshold"] == FloatDistribution(0, 1)
    assert space["k"] == CategoricalDistribution([2, 4])
    steps = make_space(PROGRAMS.get("react"), {}, narrowed={})["max_steps"]
    assert steps == IntDistribution(1, 28, log=True)
    assert not {"variant", "max_calls", "max_retrievals", "select"} & set(space)


def test_tune_draws_settings_of_the_retriever_that_eval_asks_for(
    world: World, command: Any
) -> None:
    space = {"retriever.k1": "0.5:2.0", "k": "1,3", "temperature": "0.1,0.5"}
    config, how = asked(world, trials=3, only=(), space=space, objective=("tokens",))
    tuned = tune(config, how)
    cards = [read_card(path) for path in (world.folder / "tuned" / "cells").iterdir()]
    drawn = [card.identity["retriever_set"] for card in cards if card.identity["retriever_set"]]
    assert all(0.5 <= settings["k1"] <= 2.0 for settings in drawn)
    assert len(drawn) == 3 + 1  # and as given
    front = tuned.folder / "front"
    number, point = next((n, p) for n, p in enumerate(tuned.front) if p.settings)
    given = [
        "eval", "--compiled", front / f"{number:02d}", "--dataset", "jsonl", "--data-file",
        world.folder / "questions.jsonl", "--setting", "pooled", "--adapter", "chat", "--dry-run",
    ]  # fmt: skip
    code, _, err = command(*given)
    k1, temperature = point.settings["retriever.k1"], point.settings["temperature"]
    options = ["--retriever-set", f"k1={k1}", "--temperature", str(temperature)]
    assert (code, " ".join(options) in err) == (2, True), err
    for named in (options, ["--retriever", "dense", "--temperature", "0"]):
        err = command(*given, *named, "--lm", config.lm)[2]
        assert "would run it with the defaults" not in err, err


class Echo(dspy.Module):
    """A module that searches for nothing and asks no LM."""

    def forward(self, question: str) -> dspy.Prediction:
        return dspy.Prediction(answer=question)


def test_a_knob_that_a_module_does_not_read_is_not_searched() -> None:
    program = load_program(keep_module(Echo))
    with pytest.raises(ConfigError, match=r"no knob of .*Echo is left to search"):
        make_space(program, {}, narrowed={})
    with pytest.raises(KnobError, match="read k='2,4': the module itself decides"):
        make_space(program, {}, narrowed={"k": "2,4"})


# Three combinations are soon used up.
def test_what_is_spent_lies_in_the_estimate(world: World) -> None:
    spent = 0
    for trials in (2, 6):
        config, how = asked(world, {"limit": 4}, trials=trials, space={"k": "1:3"})
        [*_, calls] = [line for line in estimate_tune(config, how) if line.startswith("  calls ")]
        low, high = (int(end.replace(",", "")) for end in re.findall(r"\d[\d,]*", calls))
        assert len(world.lm.asked) == spent
        tune(config, how)
        took = len(world.lm.asked) - spent
        assert low <= took <= high
        spent += took
    assert total(billed_under(world.folder / "tuned")).calls == spent
    assert low == 0
