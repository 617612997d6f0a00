"""The files of a run: what is read is not written, and what is gone or linked is not written to."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ragbench.errors import RunError
from ragbench.experiments.compare.paired import compare, with_scores
from ragbench.experiments.doctor import examine
from ragbench.experiments.records.compile_log import CallJournal, read_calls
from ragbench.experiments.records.files import read_object, write_json
from ragbench.experiments.records.jsonl import RECORDS
from ragbench.experiments.records.prompts import PROMPTS, read_prompts
from ragbench.experiments.records.record_writer import RecordWriter
from ragbench.experiments.runs import reopen
from ragbench.experiments.runs.runner import run
from ragbench.experiments.score import ScoreRequest, judge_of, score_run
from ragbench.ledger import file_call
from ragbench.record import Call, Record
from tests.experiments.scored_runs import answered, four, make_run
from tests.experiments.test_runner import MakeBench, bench, world
from tests.experiments.test_treatments import FULL_CARD

__all__ = ["bench", "world"]


def states(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        path.name: (path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.iterdir()
        if path.is_file()
    }


def test_reading_and_comparing_write_nothing(tmp_path: Path) -> None:
    a = make_run(tmp_path / "a", four(), **FULL_CARD)
    b = make_run(tmp_path / "b", four(), **FULL_CARD)
    before = states(a)
    for folder in (a, b):
        folder.chmod(0o555)
    try:
        found = compare(with_scores(reopen(a)), with_scores(reopen(b)))
    finally:
        for folder in (a, b):
            folder.chmod(0o755)
    assert found.scores["em"].mean_a == found.scores["em"].mean_b == 0.25
    assert states(a) == before


@pytest.mark.parametrize("content", [b"{", b"[1]", b"\xff", b"", b'{"a": ' * 5000])
def test_a_damaged_json_file_is_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(RunError, match="cannot read") as caught:
        read_object(path)
    assert "\n" not in str(caught.value)


def test_a_link_is_replaced_not_followed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("mine")
    run = tmp_path / "run"
    run.mkdir()
    (run / "summary.json").symlink_to(other)
    (run / RECORDS).symlink_to(other)
    write_json(run / "summary.json", {"n": 1})
    with pytest.raises(RunError, match="cannot write"), RecordWriter(run):
        pass
    assert other.read_text() == "mine"
    assert json.loads((run / "summary.json").read_text()) == {"n": 1}


def test_modes_follow_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_json(tmp_path / "a.json", {})
        with RecordWriter(tmp_path) as writer:
            writer.write(answered("q1", "Norway"))
    finally:
        os.umask(before)
    assert {p.stat().st_mode & 0o777 for p in tmp_path.iterdir()} == {0o640}


def test_a_file_that_is_removed_meanwhile_ends_the_run(bench: MakeBench) -> None:
    made = bench(workers=1)
    done: list[Record] = []

    def remove(record: Record, *_: int) -> None:
        done.append(record)
        (made.config.folder() / RECORDS).unlink()

    with pytest.raises(
        RunError, match=r"was removed .* billed by this command until then: 2 calls"
    ):
        run(made, on_record=remove)
    assert len(done) == 1


def test_steps_name_their_calls_and_prompts_are_kept_once(bench: MakeBench) -> None:
    made = bench(workers=2, program="ircot")
    result = run(made)
    ids = set()
    for record in result.records.values():
        named = [place for step in record.steps for place in step.calls]
        assert sorted(named) == list(range(len(record.ledger.calls)))
        for call in record.ledger.calls:
            assert call.reply
            ids |= {*call.prompt, call.reply}
    texts = read_prompts(result.folder, ids)
    assert set(texts) == ids
    for record in result.records.values():
        assert any(record.question in text for text in texts.values())
    assert len((result.folder / PROMPTS).read_bytes().splitlines()) == len(ids)
    assert examine(result.folder, data=False) == []


def test_prompts_can_be_left_out(bench: MakeBench) -> None:
    result = run(bench(prompts=False))
    assert not (result.folder / PROMPTS).exists()
    assert not any(c.prompt for r in result.records.values() for c in r.ledger.calls)


def test_an_edited_score_or_sidecar_is_noticed(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", four(), **FULL_CARD)
    score_run(folder, ScoreRequest())
    assert [f for f in examine(folder, data=False) if "scores" in f.path.name] == []
    path = folder / "scores.json"
    path.write_text(path.read_text().replace('"mean": 0.25', '"mean": 0.75', 1))
    assert any("was changed after" in finding.problem for finding in examine(folder, data=False))
    with pytest.raises(RunError, match=r"scores.json was changed after it was written"):
        judge_of(folder, "judge")
    write_json(tmp_path / "sidecar.json", {"program": "ircot"}, sealed=True)
    sealed = (tmp_path / "sidecar.json").read_text()
    assert read_object(tmp_path / "sidecar.json")["program"] == "ircot"
    (tmp_path / "sidecar.json").write_text(sealed.replace("ircot", "react"))
    with pytest.raises(RunError, match="was changed"):
        read_object(tmp_path / "sidecar.json")


def test_a_changed_line_of_a_compile_is_noticed_and_a_torn_one_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    for _ in range(2):
        journal = CallJournal(path)
        with journal.open():
            file_call(Call("m", prompt_tokens=12))
    assert (journal.attempt, journal.billed().prompt_tokens) == (2, 24)
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    assert len(read_calls(path)) == 1
    with CallJournal(path).open():
        pass
    assert len(read_calls(path)) == 1
    path.write_bytes(whole.replace(b'"prompt_tokens": 12', b'"prompt_tokens": 13', 1))
    with pytest.raises(RunError, match="what was billed is not known"):
        read_calls(path)
