"""The runner: one record per question whatever happens, nothing asked twice, totals that add up."""

import json
import threading
from collections.abc import Callable
from pathlib import Path

import dspy
import pytest

from ragbench.data import DataSpec, load_dataset
from ragbench.errors import RunError
from ragbench.experiments.config import make_config
from ragbench.experiments.runs import Progress, reopen
from ragbench.experiments.runs.context import RunContext
from ragbench.experiments.runs.runner import run
from ragbench.experiments.runs.summary import summarize
from ragbench.lms.adapters import make_adapter
from ragbench.programs import PROGRAMS
from ragbench.record import Record
from ragbench.retrievers.factory import make_retriever
from tests.fakes import Asked, Reply, ScriptedLM, plausible
from tests.runs import query, record_rows

MakeBench = Callable[..., RunContext]


def script(asked: Asked) -> Reply:
    return {**plausible(asked), "answer": "Oslo"} if "answer" in asked.fields else plausible(asked)


@pytest.fixture(scope="module")
def world() -> object:
    return load_dataset(DataSpec(size=200))


@pytest.fixture
def bench(tmp_path: Path, world: object) -> MakeBench:
    def make(
        reply: Callable[[Asked], Reply] = script, lm: ScriptedLM | None = None, **over: object
    ) -> RunContext:
        config = make_config(
            {"program": "vanilla", "limit": 6, "out": str(tmp_path / "run"), **over}
        )
        lm = lm or ScriptedLM(reply)
        retriever = make_retriever("bm25", world.corpus, setting=world.setting)  # type: ignore[attr-defined]
        program = PROGRAMS.get(config.program)(retriever, **config.set)
        examples = world.splits["test"][: config.data.limit]  # type: ignore[attr-defined]
        return RunContext(
            config, world, examples, retriever, program, lm, {}, make_adapter("auto", lm)
        )  # type: ignore[arg-type]

    return make


def test_every_question_leaves_one_record_and_none_is_asked_again(bench: MakeBench) -> None:
    result = run(bench())
    assert len(result.records) == 6
    for limit, asked in ((6, 0), (9, 3)):
        again = bench(limit=limit)
        assert len(run(again).records) == limit
        assert len(again.lm.asked) == asked  # type: ignore[attr-defined]
        assert len(record_rows(result.folder)) == limit


def test_failure_is_recorded_scored_zero_and_asked_again(bench: MakeBench) -> None:
    lock, seen = threading.Lock(), []

    def flaky(asked: Asked) -> Reply:
        with lock:
            seen.append(asked)
            broken = len(seen) == 2
        return RuntimeError("boom") if broken else script(asked)

    result = run(bench(flaky))
    failed = [r for r in result.records.values() if r.failure]
    assert len(failed) == 1
    assert failed[0].answer is None
    assert failed[0].scores == {"em": 0.0, "f1": 0.0}
    assert failed[0].failure.boundary == "provider"
    assert summarize(result.records).failures == {"provider": 1}
    retry = bench()
    assert all(r.failure is None for r in run(retry).records.values())
    assert len(retry.lm.asked) == 1  # type: ignore[attr-defined]


def test_cached_rerun_bills_nothing_and_shows_the_same_as_if_totals(
    bench: MakeBench, tmp_path: Path
) -> None:
    lm = ScriptedLM(script, cache=True, name="scripted/cached-rerun", price="in=1,out=2")
    first = summarize(run(bench(lm=lm)).records)
    second = summarize(run(bench(lm=lm, out=str(tmp_path / "again"))).records)
    assert first.billed == first.as_if == second.as_if
    assert first.as_if.cost_usd > 0
    assert second.billed.calls == 0
    assert second.billed.cost_usd == 0
    unknown = run(bench(lm=ScriptedLM(script, price=None), out=str(tmp_path / "unpriced")))
    assert unknown.summary.as_if.cost_usd is None


def test_folder_of_another_config_is_refused(bench: MakeBench) -> None:
    run(bench())
    with pytest.raises(RunError, match=r"holds a run with .*seed"):
        run(bench(seed=7))


def test_summary_can_be_rebuilt_from_the_records(bench: MakeBench) -> None:
    result = run(bench())
    before = summarize(result.records)
    rebuilt = reopen(result.folder)
    n = len(result.records)
    assert rebuilt.progress == Progress(answered=n, failed=0, cut_off=0, questions=n)
    assert rebuilt.summary == before
    kept = json.loads((result.folder / "summary.json").read_text())
    assert kept == rebuilt.stored()
    assert kept.pop("intervals").keys() == before.scores.keys()
    assert kept.pop("progress")["not_asked"] == 0
    assert kept == before.to_dict()


def test_a_record_changed_by_hand_is_told_and_its_question_asked_again(
    bench: MakeBench, caplog: pytest.LogCaptureFixture
) -> None:
    folder = run(bench()).folder
    query(folder, "UPDATE records SET value = replace(value, 'Oslo', 'Rome') WHERE id = 1")
    again = bench()
    result = run(again)
    assert "was damaged or changed after it was written" in caplog.text
    assert len(again.lm.asked) == 1  # type: ignore[attr-defined]
    assert len(result.records) == 6


def test_records_do_not_depend_on_the_number_of_workers(bench: MakeBench, tmp_path: Path) -> None:
    def stripped(records: dict[str, Record]) -> dict[str, dict[str, object]]:
        timed = {"latency_s", "ledger", "searches"}
        rows = {qid: record.to_dict() for qid, record in records.items()}
        for row in rows.values():  # which calls: places in the ledger, which is in order of time
            row["steps"] = [{**step, "calls": len(step.get("calls", ()))} for step in row["steps"]]
        return {q: {k: v for k, v in row.items() if k not in timed} for q, row in rows.items()}

    one = run(bench(workers=1, program="self_rag")).records
    many = run(bench(workers=8, program="self_rag", out=str(tmp_path / "many"))).records
    assert stripped(one) == stripped(many)


def test_no_setting_of_dspy_leaks_out_of_a_run(bench: MakeBench) -> None:
    run(bench())
    assert dspy.settings.lm is None
