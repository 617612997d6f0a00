"""Estimates: what a run, its index and a judge really spend lies in what was printed before."""

import random
import re
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ragbench.experiments.compare.spending import index_cost, index_lines, whole_cost
from ragbench.experiments.config import RunConfig, make_config
from ragbench.experiments.estimates import estimate_run
from ragbench.experiments.report.tables import notes, run_table
from ragbench.experiments.runs.context import RunContext, ready
from ragbench.experiments.runs.runner import evaluate
from ragbench.experiments.runs.summary import reopen
from ragbench.experiments.score.asking import Asking
from ragbench.experiments.score.scoring import (
    JudgeRequest,
    ScoreRequest,
    estimate_scoring,
    score_run,
)
from ragbench.lms.calls import Limits, spending
from ragbench.optimizers.knn import use_bank
from ragbench.programs.wrappers import repair_form
from ragbench.retrievers import dense
from ragbench.retrievers.lm_index import base as lm_index
from tests.experiments.scored_runs import four, make_run
from tests.experiments.towns import World
from tests.fake_server import FakeServer, Hit, plausible
from tests.fakes import ScriptedLM
from tests.retrievers.conftest import WordEmbedder
from tests.runs import holds


def wordy(hit: Hit) -> str:
    """Well-formed replies of very different lengths, the same for the same prompt."""
    chance = random.Random(zlib.crc32(hit.prompt.encode()))
    more = " and so on" * chance.choice([0, 0, 3, 40])
    return plausible(hit).replace("some ", f"some{more} {chance.random():.6f} ")


@pytest.fixture
def config(server: FakeServer, tmp_path: Path) -> RunConfig:
    server.script = wordy
    return make_config(
        {"program": "vanilla", "lm": "openai/fake", "api_base": server.url, "limit": 4,
         "price": "in=1,out=2", "out": str(tmp_path / "run"), "cache": False, "size": 200}
    )  # fmt: skip


@pytest.mark.parametrize(
    ("program", "knobs"),
    [("vanilla", {}), ("ircot", {"max_steps": 3}), ("self_rag", {}), ("react", {"max_steps": 4}),
     ("planner", {}), ("reap", {})],
)  # fmt: skip
def test_spending_lies_in_the_range_of_what_is_left(
    config: RunConfig, server: FakeServer, like: RunContext, program: str, knobs: dict[str, object]
) -> None:
    config = config.but(program=program, set=knobs)
    bench = ready(config, like=like)
    found = estimate_run(bench)
    assert server.hits == []
    ends = zip(found.low, found.likely, found.high, strict=True)
    assert all(0 < low <= likely <= high for low, likely, high in ends)
    assert f"likely about {found.likely.tokens:,.0f}" in found.lines()[2]
    evaluate(config.but(limit=3), like=bench)
    assert estimate_run(bench).low.calls == found.low.calls / 4
    summary = evaluate(config, like=bench).summary
    took = summary.as_if
    assert (took.attempts, summary.failed) == (len(server.hits), 0)
    spent = {"calls": took.calls, "tokens": took.tokens, "cost": took.cost_usd}
    assert holds(found, **spent), (found, spent)
    assert estimate_run(bench).high.calls == 0


def test_an_embeddings_server_is_not_asked_either(
    config: RunConfig, server: FakeServer, like: RunContext
) -> None:
    """Also not by a program compiled by `knn`, which asks a copy of itself."""
    settings = {"embedder": "openai/small", "api_base": server.url}
    bench = ready(config.but(retriever="dense", retriever_set=settings), like=like)
    use_bank(bench.program, {"entries": [{"question": "Where is it?", "demos": {}}], "k": 1})
    found = estimate_run(replace(bench, program=repair_form(bench.program)))
    assert server.hits == []
    assert (found.low.calls, found.high.calls) == (4, 8)
    assert any("searches also ask a server, at most" in line for line in found.lines())


def test_dry_runs_ask_and_write_nothing(server: FakeServer, tmp_path: Path, command: Any) -> None:
    words = "tune --only k --trials 2 --program vanilla --lm openai/fake --price in=1,out=2"
    where = ["--limit", 4, "--size", 200, "--api-base", server.url, "--out", tmp_path / "x"]
    code, text, _ = command(*words.split(), *where, "--dry-run")
    assert (code, server.hits, (tmp_path / "x").exists()) == (0, [], False)
    assert "calls   4 to 24" in text  # each reply may be asked for twice


def test_scoring_is_estimated_without_asking_and_leaves_the_run_alone(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", four())
    files = {path.name for path in folder.iterdir()}
    lm = ScriptedLM(lambda asked: {"verdict": "correct"}, name="judge")
    request = ScoreRequest(judge=JudgeRequest(Asking(lm, 2)))
    claims = ScoreRequest(judge=JudgeRequest(Asking(lm, 2), "grounding"))
    for each, calls in ((request, 3), (claims, 3)):
        found = estimate_scoring(folder, each)
        assert (found.low.calls, found.high.calls) == (calls, 2 * calls)
    assert lm.asked == []
    assert {path.name for path in folder.iterdir()} <= files | {".lock"}
    found = estimate_scoring(folder, request)
    took = score_run(folder, request).summary["judges"]["judge"]["as_if"]
    tokens = took["prompt_tokens"] + took["completion_tokens"]
    assert holds(found, calls=took["calls"], tokens=tokens, cost=took["cost_usd"])
    assert estimate_scoring(folder, request).high.calls == 0


# -- indexes ---------------------------------------------------------------------------------------


@pytest.fixture
def indexing(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    for place in (dense, lm_index):
        monkeypatch.setattr(place, "make_embedder", lambda spec, api_base="": WordEmbedder())
    monkeypatch.setattr("ragbench.retrievers.store._OPEN", {})
    return world


def indexed(world: World, program: str, **over: Any) -> RunConfig:
    given = {"setting": "pooled", "limit": 1, "out": world.folder / program, **over}
    return world.config(program=program, **given)


def test_the_estimate_names_what_the_index_still_takes(indexing: World) -> None:
    config = indexed(indexing, "linear_rag")
    estimate = estimate_run(ready(config))
    index = estimate.index
    assert (index.low.calls, index.high.calls) == (40, 80)  # a reply that is cut is asked twice
    assert estimate.lines()[-4] == "  the index, in addition"
    assert re.search(r"tokens  .*, likely about [\d,]+$", estimate.lines()[-2])
    assert indexing.lm.asked == []
    evaluate(config)
    kept = estimate_run(ready(config.but(out=indexing.folder / "again"))).index
    assert (kept.high, kept.notes) == ((0, 0, 0), ["40 replies are kept from before"])


@pytest.mark.parametrize(
    ("program", "least", "most"),
    [("hippo_rag", 80, 160), ("graph_rag", 40, 160), ("raptor", 1, 40)],
)
def test_calls_that_depend_on_what_is_read_are_estimated_by_made_up_replies(
    program: str, least: int, most: int, indexing: World
) -> None:
    index = estimate_run(ready(indexed(indexing, program))).index
    assert least <= index.low.calls < index.high.calls <= most


def test_the_card_and_the_tables_show_the_index(indexing: World) -> None:
    for program in ("hippo_rag", "vanilla"):
        evaluate(indexed(indexing, program, limit=2))
    run, plain = (reopen(indexing.folder / name) for name in ("hippo_rag", "vanilla"))
    cost = index_cost(run.card)
    assert (cost.calls, run.card.index["index_calls"], run.prepared.calls) == (80, 80, 80)
    assert index_cost(plain.card) is None
    (line,) = index_lines(run)
    assert line.startswith("index: 80 calls (80 to 160 expected), ")
    found = re.search(r"([\d,]+) tokens \(([\d,]+) to ([\d,]+) expected\)", line)
    taken, least, most = (int(number.replace(",", "")) for number in found.groups())
    assert least <= taken <= most
    assert index_lines(plain) == []
    table = run_table([run, plain])
    assert "index $" in [column.heading for column in table.columns]
    assert [row.get("index_usd") for row in table.rows] == [cost.usd, None]
    assert "index $" not in [column.heading for column in run_table([plain]).columns]
    # Vectors of the test's embedder have no price, so the index has none.
    assert (whole_cost(run), whole_cost(plain)) == (None, plain.summary.as_if.cost_usd)


def test_a_stopped_index_shows_its_bill_and_lost_replies_are_told(indexing: World) -> None:
    config = indexed(indexing, "hippo_rag")
    with spending(Limits(calls=20)):
        stopped = evaluate(config)
    assert stopped.stopped_by == "--max-calls 20"
    (line,) = (line for line in notes(stopped) if line.startswith("index so far: billed 20 calls"))
    assert not line.endswith(" 0.0000 $")
    assert len(indexing.lm.asked) == 20
    whole = evaluate(config)
    assert whole.prepared.calls == len(indexing.lm.asked) - whole.summary.billed.calls == 80
    indexing.use(lambda asked: "I would rather not.", name="another")
    lost = evaluate(indexed(indexing, "linear_rag"))
    said = "the index lost unreadable_replies 40; the next run that makes it asks for them again"
    assert said in index_lines(lost)
