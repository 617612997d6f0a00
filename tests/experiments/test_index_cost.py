"""The cost of a program's own index: in the estimate, in the run card, and in the tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ragbench.experiments.compare import index_cost, index_lines, pays_from, whole_cost
from ragbench.experiments.estimates import estimate_run
from ragbench.experiments.records import read_card
from ragbench.experiments.report.tables import WITH_INDEX, run_table
from ragbench.experiments.runs import evaluate, ready, reopen
from ragbench.retrievers import dense
from ragbench.retrievers.graph import base as graph
from tests.experiments.towns import World
from tests.retrievers.conftest import WordEmbedder


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "cache"))
    for module in (dense, graph):
        monkeypatch.setattr(module, "make_embedder", lambda spec, api_base="": WordEmbedder())
    monkeypatch.setattr(graph, "_BUILT", {})
    return World(tmp_path, monkeypatch)


def test_questions_from_which_an_index_pays() -> None:
    # 10 dollars of index, 0.5 saved per question: 20 questions are even, 21 are less.
    assert pays_from(10, 0.5, 1.0) == 21
    assert pays_from(10, 1.0, 1.0) is None
    assert pays_from(10, 1.5, 1.0) is None


def test_the_estimate_names_what_the_index_still_takes(world: World, tmp_path: Path) -> None:
    knobs: dict[str, Any] = {"program": "linear_rag", "setting": "pooled", "limit": 1}
    config = world.config(**knobs, out=tmp_path / "run")
    (line,) = (note for note in estimate_run(ready(config)).notes if "index" in note)
    assert line.startswith("the index, in addition: 40 calls, ")
    assert "$" in line
    assert world.lm.asked == []
    evaluate(config)
    again = world.config(**knobs, out=tmp_path / "again")
    (line,) = (note for note in estimate_run(ready(again)).notes if "index" in note)
    assert "0 calls" in line
    assert "40 replies are kept" in line


def test_estimates_of_the_others_say_what_is_not_known(world: World) -> None:
    found = {}
    for program in ("hippo_rag", "graph_rag"):
        config = world.config(program=program, setting="pooled", limit=1)
        (found[program],) = (n for n in estimate_run(ready(config)).notes if "index" in n)
    assert "80 calls" in found["hippo_rag"]
    assert "80 calls" in found["graph_rag"]
    assert found["graph_rag"].endswith("several passages describe, and community")


def test_the_card_and_the_tables_show_the_index(world: World, tmp_path: Path) -> None:
    # The happy path of a run: an index by the LM beside a program that needs none.
    runs = []
    for program in ("hippo_rag", "vanilla"):
        config = world.config(program=program, setting="pooled", limit=2, out=tmp_path / program)
        runs.append(evaluate(config))
    card = read_card(tmp_path / "hippo_rag")
    assert card.index["index_calls"] == 80
    assert card.preparation is not None
    assert sum(call.kind == "lm" for call in card.preparation.calls) == 80
    indexed, plain = (reopen(tmp_path / name) for name in ("hippo_rag", "vanilla"))
    cost, without = index_cost(indexed.card), index_cost(plain.card)
    assert cost is not None
    assert (cost.calls, without) == (80, None)
    lines = index_lines(indexed, [("hippo_rag", indexed), ("vanilla", plain)])
    assert lines[0].startswith("index: 80 calls, ")
    assert lines[1] == "the index pays against vanilla, in tokens: never"
    assert len(lines) == 2
    assert index_lines(plain, [("hippo_rag", indexed)]) == []
    table = run_table([indexed, plain])
    assert WITH_INDEX in [str(column.header) for column in table.columns]
    assert WITH_INDEX not in [str(column.header) for column in run_table([plain]).columns]
    # Vectors of the test's embedder have no price, so the index has none.
    assert whole_cost(indexed) is None
    assert whole_cost(plain) == plain.summary.as_if.cost_usd


def test_an_index_is_kept_in_the_card_of_a_run_that_continues(world: World, tmp_path: Path) -> None:
    config = world.config(program="linear_rag", setting="pooled", limit=1, out=tmp_path / "run")
    evaluate(config)
    before = read_card(tmp_path / "run").index
    asked = len(world.lm.asked)
    evaluate(config)
    assert len(world.lm.asked) == asked
    assert read_card(tmp_path / "run").index == before != {}


def test_the_pattern_renames_the_system_in_tables(world: World, tmp_path: Path) -> None:
    config = world.config(
        program="linear_rag", set={"entities": "regex"}, setting="pooled", limit=1,
        out=tmp_path / "run",
    )  # fmt: skip
    evaluate(config)
    assert read_card(tmp_path / "run").system == "linear_rag[regex entities]"
    table = run_table([reopen(tmp_path / "run")])
    assert str(next(iter(table.columns[0].cells))).startswith("linear_rag[regex entities]")


def test_where_every_question_has_an_index_of_its_own_it_grows_with_them(
    world: World, tmp_path: Path
) -> None:
    runs = {}
    for program in ("linear_rag", "vanilla", "rag_enta"):
        config = world.config(
            program=program, setting="distractor", limit=2, out=tmp_path / program
        )
        runs[program] = evaluate(config)
    indexed = runs.pop("linear_rag")
    cost = index_cost(indexed.card)
    assert cost is not None
    each = (indexed.summary.as_if.tokens + cost.tokens) / 2
    assert runs["vanilla"].summary.as_if.tokens / 2 < each
    assert each < runs["rag_enta"].summary.as_if.tokens / 2
    assert index_lines(indexed, list(runs.items()))[1:] == [
        "the index pays against vanilla, in tokens: never, for every question has one of its own",
        "the index pays against rag_enta, in tokens: always, for every question has one of its own",
    ]
