"""What a search over knobs really spends lies in the range that was printed before."""

from pathlib import Path
from typing import Any

import pytest

from ragbench.experiments.config import RunConfig, TuneConfig
from ragbench.experiments.estimates import Estimate
from ragbench.experiments.runs.context import billed_under
from ragbench.experiments.tune.study import estimate_tune, tune
from ragbench.record import Totals, total
from tests.cli.test_mistakes import run as command
from tests.experiments.towns import World
from tests.fake_server import FakeServer
from tests.runs import holds


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path, monkeypatch)
    made.use()
    return made


def asked(world: World, **over: Any) -> tuple[RunConfig, TuneConfig]:
    config = world.config(
        k=None, split="validation", limit=4, setting="pooled", out=world.folder / "tuned"
    )
    given = {"only": ("k",), "trials": 10, "objectives": ("f1", "tokens"), **over}
    return config, TuneConfig(**given)


def spent(world: World) -> Totals:
    return total(billed_under(world.folder / "tuned"))


def fits(found: Estimate, took: Totals, before: Totals) -> bool:
    return holds(
        found,
        calls=took.calls - before.calls,
        tokens=took.tokens - before.tokens,
        cost=(took.cost_usd or 0.0) - (before.cost_usd or 0.0),
    )


@pytest.mark.parametrize(
    "over",
    [
        {"space": {"k": "1:3"}},  # three combinations are soon used up
        {"objectives": ("f1",)},  # bad trials are given up
    ],
)
def test_what_is_spent_lies_in_the_range(world: World, over: dict[str, Any]) -> None:
    config, how = asked(world, **over)
    found = estimate_tune(config, how)
    assert world.lm.asked == []
    assert not (world.folder / "tuned").exists()
    tune(config, how, on_message=lambda line: None)
    took = spent(world)
    assert took.calls == len(world.lm.asked) >= 12
    assert found.high.calls <= 2 * 11 * 4  # and as given; each reply may be asked for twice
    assert fits(found, took, Totals()), (found, took)


def test_only_what_is_left_is_estimated(world: World) -> None:
    config, how = asked(world, trials=3)
    tune(config, how, on_message=lambda line: None)
    before = spent(world)
    assert estimate_tune(config, how).high.calls == 0
    more = how.model_copy(update={"trials": 9})
    found = estimate_tune(config, more)
    assert "3 done before" in found.title
    tune(config, more, on_message=lambda line: None)
    assert spent(world).calls > before.calls
    assert fits(found, spent(world), before), (found, spent(world), before)


def test_the_command_asks_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with FakeServer() as server:
        given = [
            "tune", "--program", "vanilla", "--lm", "openai/fake", "--api-base", server.url,
            "--limit", "4", "--price", "in=1,out=2", "--out", str(tmp_path / "t"), "--size", "200",
            "--only", "k", "--trials", "2",
        ]  # fmt: skip
        code, text, _ = command(capsys, *given, "--dry-run")
        assert (code, server.hits) == (0, [])
        assert "2 trials of 4 questions each" in text
        assert "calls   4 to 24" in text  # each reply may be asked for twice
        assert not (tmp_path / "t").exists()
