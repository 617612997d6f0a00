"""Folders that version 1 of the stored formats left still open: runs, compiled programs, a cache.

They were written by that version: a run each of ten programs (that of `ircot` with a question that
failed, that of `vanilla` scored by a judge), compiled programs of the optimizers that leave
different files, a sweep, a verdict and a cache of replies.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

import dspy
import pytest

from ragbench.errors import RunError
from ragbench.experiments.artifacts import Sidecar, load_artefact, read_sidecar
from ragbench.experiments.compare.paired import compare, with_scores
from ragbench.experiments.compare.verdicts import reread
from ragbench.experiments.doctor import examine, folders_under
from ragbench.experiments.runs import reopen
from ragbench.experiments.score import ScoreRequest, score_run, scored_records
from ragbench.lms import configure_cache
from ragbench.lms.local.build import extract
from ragbench.programs import PROGRAMS
from ragbench.programs.core import RAGProgram
from ragbench.retrievers import Corpus, make_retriever

V1 = Path(__file__).parent / "v1"
RUNS = sorted(path.parent.name for path in V1.glob("*/config.json"))
COMPILED = sorted(path.parent.name for path in V1.glob("*/sidecar.json"))
#: A compiled `ircot` with demonstrations of a call that it makes no more.
CHANGED_SINCE = "compiled-bootstrap"
#: Parts of a summary that mean what they meant.
SAME = ("n", "scores", "failures", "errors", "stop_reasons", "counts", "retrievals", "latency_s")


@pytest.fixture
def v1(tmp_path: Path) -> Path:
    return Path(shutil.copytree(V1, tmp_path / "v1"))


@pytest.mark.parametrize("name", RUNS)
def test_run_is_summed_up_as_it_was(name: str) -> None:
    found = reopen(V1 / name)
    kept = json.loads((V1 / name / "summary.json").read_text())
    summary = found.summary.to_dict()
    assert {key: summary[key] for key in SAME} == {key: kept[key] for key in SAME}
    for total in ("billed", "as_if"):
        assert {key: summary[total][key] for key in kept[total]} == kept[total]
    assert found.corrupt == ()
    assert found.card.program == found.card.identity["program"]


def test_a_record_is_stored_as_it_was() -> None:
    lines = (V1 / "vanilla" / "records.jsonl").read_text().splitlines()
    rows = {row["qid"]: row for row in map(json.loads, lines)}
    for qid, record in reopen(V1 / "vanilla").records.items():
        stored = json.loads(json.dumps(record.to_dict()))
        del rows[qid]["sum"]
        assert stored == {**stored, **rows[qid]}


@pytest.mark.parametrize("name", RUNS)
def test_doctor_finds_nothing_but_the_new_parts_of_a_summary(name: str, v1: Path) -> None:
    assert [f for f in examine(v1 / name, data=False) if f.path.name != "summary.json"] == []


def test_runs_are_compared_and_scored(v1: Path) -> None:
    vanilla = with_scores(reopen(v1 / "vanilla"))
    found = compare(vanilla, with_scores(reopen(v1 / "ircot")))
    assert set(found.scores) == {"em", "f1"}
    assert len(found.a.records) == 2
    judged = {r.qid: r.scores["judge"] for r in scored_records(v1 / "vanilla").values()}
    assert len(judged) == 2
    again = score_run(v1 / "vanilla", ScoreRequest())
    assert {r.qid: r.scores["judge"] for r in again.records} == judged
    assert "judge" in again.summary["judges"]


def test_verdict_and_sweep_are_read(v1: Path) -> None:
    made = reread(v1 / "verdict")
    assert set(made.arms) >= {"zero-shot", "form", "compiled"}
    assert len(folders_under(v1 / "sweep")) == 2
    assert {reopen(folder).card.program for folder in folders_under(v1 / "sweep")} == {
        "direct",
        "vanilla",
    }


def uncompiled(sidecar: Sidecar) -> RAGProgram:
    retriever = make_retriever("bm25", Corpus(()), setting="pooled")
    return PROGRAMS.get(sidecar.program)(retriever, **sidecar.knobs)


@pytest.mark.parametrize("name", [name for name in COMPILED if name != CHANGED_SINCE])
def test_compiled_program_loads(name: str) -> None:
    sidecar = read_sidecar(V1 / name)
    program = uncompiled(sidecar)
    assert load_artefact(V1 / name, program).program_sha256 == sidecar.program_sha256
    card = sidecar.predictors[0]
    predictor = dict(program.named_predictors())[card.name]
    assert len(predictor.demos) == card.n_demos


def test_demonstrations_of_a_call_that_is_made_no_more_are_refused_with_the_cure() -> None:
    program = uncompiled(read_sidecar(V1 / CHANGED_SINCE))
    before = program.dump_state()
    with pytest.raises(RunError, match=r"think, conclude, and ircot now has .*; compile again"):
        load_artefact(V1 / CHANGED_SINCE, program)
    assert program.dump_state() == before


def test_cached_replies_are_read(tmp_path: Path) -> None:
    with tarfile.open(V1 / "lm-cache.tar.gz") as archive:
        extract(archive, tmp_path, archive.getmembers())
    configure_cache(tmp_path / "lm")
    disk = dspy.cache.disk_cache
    replies = [disk.get(key) for key in disk]
    assert len(replies) == 3
