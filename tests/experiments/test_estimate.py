"""Estimates: what a run, its index and a judge really spend lies in what was printed before."""

import contextlib
import math
import random
import re
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ragbench.errors import LMUnavailableError
from ragbench.experiments.cells.cell import Cell, repeat_cells
from ragbench.experiments.cells.estimate import estimate_cells
from ragbench.experiments.compare.spending import index_cost, index_lines, whole_cost
from ragbench.experiments.config import RunConfig, make_config
from ragbench.experiments.estimates import (
    NOTHING,
    Estimate,
    EstimatedUsage,
    estimate_run,
    question_cost,
    run_pilot,
)
from ragbench.experiments.progress import ProgressListener
from ragbench.experiments.report.tables import notes, run_table
from ragbench.experiments.runs.context import RunContext, ready
from ragbench.experiments.runs.runner import evaluate
from ragbench.experiments.runs.summary import reopen
from ragbench.experiments.score.asking import JudgeSession
from ragbench.experiments.score.scoring import (
    JudgeRequest,
    ScoreRequest,
    estimate_scoring,
    score_run,
)
from ragbench.experiments.store import read_records
from ragbench.lms.calls import Limits, spending
from ragbench.optimizers.knn import use_bank
from ragbench.programs.wrappers import repair_form
from ragbench.record import total
from ragbench.retrievers import dense
from ragbench.retrievers.lm_index import base as lm_index
from ragbench.user_code import allow
from tests.experiments.scored_runs import four, make_run
from tests.experiments.towns import World
from tests.fake_server import FakeServer, Fault, Hit, plausible
from tests.fakes import ScriptedLM
from tests.retrievers.conftest import WordEmbedder
from tests.runs import holds


def wordy(hit: Hit) -> str:
    """Well-formed replies of very different lengths, the same for the same prompt."""
    chance = random.Random(zlib.crc32(hit.prompt.encode()))
    more = " and so on" * chance.choice([0, 0, 3, 40])
    return plausible(hit).replace("some ", f"some{more} {chance.random():.6f} ")


MODULE = """
import dspy

class Mine(dspy.Module):
    def forward(self, question):
        return dspy.Prediction(answer=question)
"""


@pytest.fixture
def config(server: FakeServer, tmp_path: Path) -> RunConfig:
    server.script = wordy
    return make_config(
        {"program": "vanilla", "lm": "openai/fake", "api_base": server.url, "limit": 4,
         "price": "in=1,out=2", "out": str(tmp_path / "run"), "cache": False, "size": 200}
    )  # fmt: skip


@pytest.mark.parametrize(
    ("program", "knobs"),
    [("ircot", {"max_steps": 3}), ("self_rag", {}), ("react", {"max_steps": 4})],
)
def test_estimate_before_any_question_bounds_what_is_spent(
    config: RunConfig, server: FakeServer, like: RunContext, program: str, knobs: dict[str, object]
) -> None:
    config = config.but(program=program, set=knobs)
    bench = ready(config, like=like)
    found = estimate_run(bench)
    assert server.hits == []
    assert found.low.calls == 4
    assert not any(line.startswith("  time") for line in found.lines())  # nothing was measured
    assert 0 < found.low.tokens < found.high.tokens
    assert any("--pilot 3" in line for line in found.lines())
    took = evaluate(config, like=bench).summary.as_if
    assert took.attempts == len(server.hits)
    spent = {"calls": took.calls, "tokens": took.all_tokens, "cost": took.cost_usd}
    assert holds(found, **spent), (found, spent)
    assert estimate_run(bench).high == NOTHING


def test_pilot_keeps_first_records_and_narrows_the_estimate(
    config: RunConfig, server: FakeServer, like: RunContext
) -> None:
    config = config.but(program="ircot", limit=40, size=400)
    bench = ready(config)
    before = estimate_run(bench)
    run_pilot(bench, 10)
    first = [example.qid for example in bench.examples[:10]]
    records = read_records(config.folder())
    assert sorted(records) == sorted(first)
    measured = estimate_run(bench)
    lines = measured.lines()
    assert "(10 finished before)" in lines[0]
    assert any(line.startswith("  time ") for line in lines)
    assert "  measured on 10 finished questions, 95 % interval" in lines
    assert measured.high.tokens < before.high.tokens / 50
    asked = len(server.hits)
    run = evaluate(config)
    rest = total([])
    for record in run.records.values():
        if record.qid not in first:
            rest += record.ledger.as_if
    assert rest.calls == len(server.hits) - asked
    assert holds(measured, calls=rest.calls, tokens=rest.all_tokens, cost=rest.cost_usd)


def test_pilot_of_a_cell_measures_those_that_differ_in_form_or_repeat(
    config: RunConfig, server: FakeServer
) -> None:
    cells = repeat_cells(Cell("", config), 2)
    cells.append(Cell("form", config.but(form=True, out=cells[0].folder.parent / "form")))
    cells.append(Cell("k", config.but(set={"k": 1}, out=cells[0].folder.parent / "k")))
    lines = list(estimate_cells(cells[:3], pilot=3))
    assert lines.count("  measured on 3 finished questions, 95 % interval") == 3
    assert len(server.hits) == 3
    assert lines[lines.index("in all, 3 cells") + 1] == "  calls   9"
    lines = list(estimate_cells(cells))  # another setting costs something else
    assert lines[lines.index("[4/4] k") + 2].startswith("  calls   4 to ")


def test_question_cost_of_failed_questions_is_not_measured(
    config: RunConfig, server: FakeServer, like: RunContext
) -> None:
    server.script = lambda hit: Fault("400")
    bench = ready(config.but(workers=1), like=like)
    with contextlib.suppress(LMUnavailableError):
        run_pilot(bench, 3)
    assert question_cost(bench).measured == []


def test_unread_call_limit_has_no_upper_bound(config: RunConfig, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(MODULE)
    allow(f"{file}:Mine")
    found = estimate_run(ready(config.but(program=f"{file}:Mine")))
    assert (found.low.calls, found.high.calls) == (0, math.inf)
    assert "  calls   at least 0; the most is unknown" in found.lines()


def test_an_embeddings_server_is_not_asked_either(
    config: RunConfig, server: FakeServer, like: RunContext
) -> None:
    """Also not by a program compiled by `knn`, which asks a copy of itself."""
    settings = {"embedder": "openai/small", "api_base": server.url}
    bench = ready(config.but(retriever="dense", retriever_set=settings), like=like)
    use_bank(bench.program, {"entries": [{"question": "Where is it?", "demos": {}}], "k": 1})
    found = estimate_run(replace(bench, program=repair_form(bench.program)))
    assert server.hits == []
    assert (found.low.calls, found.high.cost) == (4, math.inf)
    assert "  searches also call a server: dense" in found.lines()


def test_dry_runs_ask_and_write_nothing(server: FakeServer, tmp_path: Path, command: Any) -> None:
    words = "tune --only k --trials 2 --program vanilla --lm openai/fake --price in=1,out=2"
    where = ["--limit", 4, "--size", 200, "--api-base", server.url, "--out", tmp_path / "x"]
    code, text, _ = command(*words.split(), *where, "--dry-run")
    assert (code, server.hits, (tmp_path / "x").exists()) == (0, [], False)
    assert "calls   4 to 1,200" in text  # each reply may be asked for twice


def test_scoring_is_estimated_without_asking_and_leaves_the_run_alone(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", four())
    files = {path.name for path in folder.iterdir()}
    lm = ScriptedLM(lambda asked: {"verdict": "correct"}, name="judge")
    request = ScoreRequest(judge=JudgeRequest(JudgeSession(lm, 2)))
    claims = ScoreRequest(judge=JudgeRequest(JudgeSession(lm, 2), "grounding"))
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


def test_estimate_of_an_index_program_states_what_the_index_reads(indexing: World) -> None:
    lines = estimate_run(ready(indexed(indexing, "linear_rag"))).lines()
    assert re.search(r"the index is extra: an LM reads 40 passages", lines[-1])
    assert indexing.lm.asked == []


def test_index_after_three_passages_says_what_the_rest_takes(indexing: World) -> None:
    watch = ProgressListener()
    said: list[str] = []
    watch.say = said.append  # type: ignore[method-assign]
    evaluate(indexed(indexing, "linear_rag", workers=1), watch=watch)
    [line] = [line for line in said if " are left, about " in line]
    assert re.search(r"37 of 40 are left, about 37 calls, [\d,]+ tokens, ", line)


def test_the_card_and_the_tables_show_the_index(indexing: World) -> None:
    for program in ("hippo_rag", "vanilla"):
        evaluate(indexed(indexing, program, limit=2))
    run, plain = (reopen(indexing.folder / name) for name in ("hippo_rag", "vanilla"))
    cost = index_cost(run.card)
    assert (cost.calls, run.card.index["index_calls"], run.prepared.calls) == (80, 80, 80)
    assert index_cost(plain.card) is None
    (line,) = index_lines(run)
    assert line.startswith("index: 80 calls, ")
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


def test_estimate_without_a_known_price_has_no_amount() -> None:
    usage = EstimatedUsage(calls=2, tokens=30, cost=math.inf, seconds=0)
    lines = Estimate("compile", usage, usage).lines()
    assert lines[-1] == "  cost    unknown: the LM has no known price"
