"""Shards of a run: together they are the run, and what is not all of one run is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ragbench.errors import KnobError, RunError
from ragbench.experiments.config import make_config
from ragbench.experiments.records import CONFIG, RECORDS, read_card
from ragbench.experiments.runs import Evaluation, evaluate, merge, reopen
from tests.fake_server import FakeServer

#: Of a summary: what two runs of the same questions have in common.
SAME = ("n", "scores", "failures", "counts", "stop_reasons", "by_signature", "billed", "as_if")
Ask = Callable[..., Evaluation]


@pytest.fixture
def ask(shared: dict[str, Any], tmp_path: Path) -> Ask:
    def asked(out: str, **over: Any) -> Evaluation:
        return evaluate(make_config({**shared, "split": "all", "out": tmp_path / out, **over}))

    return asked


def test_shards_together_are_the_run(ask: Ask, server: FakeServer, tmp_path: Path) -> None:
    whole = ask("whole")
    parts = [ask(f"part{n}", shard=f"{n}/3").folder for n in (3, 1, 2)]
    assert [len(reopen(part).records) for part in parts] == [6, 7, 7]
    merge(parts, tmp_path / "merged")
    merged = reopen(tmp_path / "merged")
    assert merged.records.keys() == whole.records.keys()
    for qid, record in whole.records.items():
        assert merged.records[qid].answer == record.answer
    assert {n: getattr(merged.summary, n) for n in SAME} == {
        n: getattr(whole.summary, n) for n in SAME
    }
    assert merged.progress.complete
    card = tmp_path / "merged" / "config.json"
    card.write_text(card.read_text().replace('"questions": 20', '"questions": 21'))
    with pytest.raises(RunError, match="was changed after it was written"):
        reopen(tmp_path / "merged")
    card.write_text(card.read_text().replace('"questions": 21', '"questions": 20'))
    assert merged.progress.questions == 20
    lines = {
        line for part in parts for line in (part / RECORDS).read_bytes().splitlines(keepends=True)
    }
    assert set((tmp_path / "merged" / RECORDS).read_bytes().splitlines(keepends=True)) == lines
    before = len(server.hits)
    ask("merged")
    assert len(server.hits) == before  # it is the run, and whole


def test_what_a_shard_has_not_asked_is_asked_in_the_merged_run(
    ask: Ask, server: FakeServer, tmp_path: Path
) -> None:
    parts = [ask(f"part{n}", shard=f"{n}/2").folder for n in (1, 2)]
    lines = (parts[0] / RECORDS).read_bytes().splitlines(keepends=True)
    (parts[0] / RECORDS).write_bytes(b"".join(lines[:-2]) + lines[-2][:50])  # killed
    merge(parts, tmp_path / "merged")
    found = reopen(tmp_path / "merged")
    assert not found.progress.complete
    assert not found.corrupt
    before = len(server.hits)
    assert len(ask("merged").records) == 20
    assert len(server.hits) == before + 2


def test_a_missing_or_doubled_or_foreign_shard_is_refused(ask: Ask, tmp_path: Path) -> None:
    out = tmp_path / "merged"
    one, two = (ask(f"part{n}", shard=f"{n}/3").folder for n in (1, 2))
    with pytest.raises(RunError, match="shard 3/3 is missing; give all 3 shards"):
        merge([one, two], out)
    with pytest.raises(RunError, match="are both shard 1/3"):
        merge([one, shutil.copytree(one, tmp_path / "copy")], out)
    other = ask("other", shard="3/3", k=2).folder
    with pytest.raises(RunError, match=r"no shards of one run: set\.k=2, not 1"):
        merge([one, two, other], out)
    fourth = ask("fourth", shard="3/4").folder
    with pytest.raises(RunError, match="shard 3/4 beside shard 1/3"):
        merge([one, two, fourth], out)
    with pytest.raises(RunError, match="is a whole run, no shard"):
        merge([ask("whole", limit=1).folder], out)
    assert not out.exists()


@pytest.mark.parametrize("shard", ["x", "1/0", "1/3/5", "1/99999999"])
def test_a_shard_by_an_edited_name_is_refused(ask: Ask, tmp_path: Path, shard: str) -> None:
    part = ask("part", shard="1/2").folder
    card = json.loads((part / CONFIG).read_text())
    del card["sum"]
    (part / CONFIG).write_text(json.dumps({**card, "shard": shard}))
    with pytest.raises(RunError, match="shard is missing or wrong"):
        merge([part], tmp_path / "merged")


def test_a_question_in_two_shards_is_refused_and_nothing_is_left(ask: Ask, tmp_path: Path) -> None:
    parts = [ask(f"part{n}", shard=f"{n}/2").folder for n in (1, 2)]
    line = (parts[0] / RECORDS).read_bytes().splitlines(keepends=True)[0]
    with (parts[1] / RECORDS).open("ab") as file:
        file.write(line)
    with pytest.raises(RunError, match="both have"):
        merge(parts, tmp_path / "merged")
    assert not (tmp_path / "merged" / RECORDS).exists()
    assert not list((tmp_path / "merged").glob(".records*"))


def test_a_shard_is_continued_as_what_it_is(ask: Ask) -> None:
    assert read_card(ask("part", shard="2/4").folder).shard == "2/4"
    with pytest.raises(RunError, match="holds shard 2/4, not shard 1/4"):
        ask("part", shard="1/4")
    with pytest.raises(RunError, match="holds shard 2/4, not a whole run"):
        ask("part")


@pytest.mark.parametrize("shard", ["0/3", "4/3", "1", "1/0", "a/b"])
def test_a_shard_that_there_is_not_is_refused(shared: dict[str, Any], shard: str) -> None:
    with pytest.raises(KnobError, match="shard"):
        make_config({**shared, "shard": shard})


def test_shards_have_folders_that_no_whole_run_is_found_in(
    shared: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    part = make_config({**shared, "shard": "1/2"})
    assert part.folder().parent.parent == Path("runs/shards")
    assert part.folder().name == "1-of-2"
    evaluate(part)
    assert make_config(shared).folder() == Path("runs") / part.name()
