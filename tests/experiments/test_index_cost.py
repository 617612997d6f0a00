"""The cost of a program's own index: in the estimate, in the run card, and in the tables."""

import re
from pathlib import Path
from typing import Any

import pytest

from ragbench.experiments.compare.spending import index_cost, index_lines, whole_cost
from ragbench.experiments.estimates import estimate_run
from ragbench.experiments.report.tables import notes, run_table
from ragbench.experiments.runs import evaluate, ready, reopen
from ragbench.experiments.store import read_card
from ragbench.lms.calls import Limits, spending
from ragbench.retrievers import dense
from ragbench.retrievers.lm_index import base as lm_index
from tests.experiments.towns import World
from tests.retrievers.conftest import WordEmbedder


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "cache"))
    for module in (dense, lm_index):
        monkeypatch.setattr(module, "make_embedder", lambda spec, api_base="": WordEmbedder())
    monkeypatch.setattr("ragbench.retrievers.store._OPEN", {})
    return World(tmp_path, monkeypatch)


def test_the_estimate_names_what_the_index_still_takes(world: World, tmp_path: Path) -> None:
    knobs: dict[str, Any] = {"program": "linear_rag", "setting": "pooled", "limit": 1}
    config = world.config(**knobs, out=tmp_path / "run")
    estimate = estimate_run(ready(config))
    assert estimate.index is not None
    index = estimate.index
    assert (index.low.calls, index.high.calls) == (40, 80)  # a reply that is cut is asked twice
    assert estimate.lines()[-4] == "  the index, in addition"
    assert re.search(r"tokens  .*, likely about [\d,]+$", estimate.lines()[-2])
    assert world.lm.asked == []
    evaluate(config)
    kept = estimate_run(ready(world.config(**knobs, out=tmp_path / "again"))).index
    assert kept is not None
    assert kept.high == (0, 0, 0)
    assert kept.notes == ["40 replies are kept from before"]


def test_calls_that_depend_on_what_is_read_are_estimated_by_made_up_replies(world: World) -> None:
    found = {}
    for program in ("hippo_rag", "graph_rag", "raptor"):
        config = world.config(program=program, setting="pooled", limit=1)
        index = estimate_run(ready(config)).index
        assert index is not None
        found[program] = (index.low.calls, index.high.calls)
    assert found["hippo_rag"] == (80, 160)
    assert 40 <= found["graph_rag"][0] < found["graph_rag"][1] < 160
    assert 1 <= found["raptor"][0] < found["raptor"][1] < 40


def test_the_card_and_the_tables_show_the_index(world: World, tmp_path: Path) -> None:
    # The happy path of a run: an index by the LM beside a program that needs none.
    runs = []
    for program in ("hippo_rag", "vanilla"):
        config = world.config(program=program, setting="pooled", limit=2, out=tmp_path / program)
        runs.append(evaluate(config))
    card = read_card(tmp_path / "hippo_rag")
    assert card.index["index_calls"] == 80
    assert runs[0].prepared.calls == 80
    indexed, plain = (reopen(tmp_path / name) for name in ("hippo_rag", "vanilla"))
    cost, without = index_cost(indexed.card), index_cost(plain.card)
    assert cost is not None
    assert (cost.calls, without) == (80, None)
    lines = index_lines(indexed)
    assert lines[0].startswith("index: 80 calls (80 to 160 expected), ")
    found = re.search(r"([\d,]+) tokens \(([\d,]+) to ([\d,]+) expected\)", lines[0])
    assert found
    taken, least, most = (int(number.replace(",", "")) for number in found.groups())
    assert least <= taken <= most
    assert len(lines) == 1
    assert index_lines(plain) == []
    table = run_table([indexed, plain])
    assert "index $" in [column.heading for column in table.columns]
    assert [row.get("index_usd") for row in table.rows] == [cost.usd, None]
    assert "index $" not in [column.heading for column in run_table([plain]).columns]
    # Vectors of the test's embedder have no price, so the index has none.
    assert whole_cost(indexed) is None
    assert whole_cost(plain) == plain.summary.as_if.cost_usd


def test_an_index_that_a_limit_stops_shows_its_bill(world: World, tmp_path: Path) -> None:
    config = world.config(program="hippo_rag", setting="pooled", limit=1, out=tmp_path / "run")
    with spending(Limits(calls=20)):
        stopped = evaluate(config)
    assert stopped.stopped_by == "--max-calls 20"
    (line,) = (line for line in notes(stopped) if line.startswith("index so far: billed 20 calls"))
    assert not line.endswith(" 0.0000 $")
    assert len(world.lm.asked) == 20
    whole = evaluate(config)
    assert whole.prepared.calls == len(world.lm.asked) - whole.summary.billed.calls == 80


def test_replies_that_were_lost_are_told_with_the_table(world: World, tmp_path: Path) -> None:
    world.use(lambda asked: "I would rather not.")
    config = world.config(program="linear_rag", setting="pooled", limit=1, out=tmp_path / "run")
    found = evaluate(config)
    told = [line for line in index_lines(found) if line.startswith("the index lost")]
    assert told == [
        "the index lost unreadable_replies 40; the next run that makes it asks for them again"
    ]
