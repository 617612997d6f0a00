"""The commands retrieve, search and index, end to end over a generated data set."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ragbench.cli.main import cli
from ragbench.errors import ConfigError, DataError, KnobError, UnknownNameError
from ragbench.retrievers.store import IndexStore

WORLD = ["--size", "120", "--setting", "pooled"]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def run(*args: str) -> Result:
    return CliRunner().invoke(cli, args, catch_exceptions=False)


def test_retrieve_prints_a_table_and_writes_what_it_shows(tmp_path: Path) -> None:
    result = run("retrieve", *WORLD, "--retriever", "bm25,dense", "--k", "5,2")
    assert result.exit_code == 0
    data = json.loads((tmp_path / "runs" / "retrieve-synthetic-pooled-test.json").read_text())
    assert data["ks"] == [2, 5]
    assert data["questions_with_gold"] == len(data["gold"]) > 0
    bm25, dense = data["retrievers"]
    for row in (bm25, dense):
        gold, found = data["gold"], row["found"]
        mean = sum(len({*found[q][:2]} & {*pids}) / len(pids) for q, pids in gold.items())
        assert row["scores"]["recall@2"] == pytest.approx(mean / len(gold))
        assert f"{row['scores']['recall@2']:.3f}" in result.output
        assert len(row["latency_s"]) == len(gold)
    assert bm25["index_bytes"] > 0
    assert dense["card"]["index"]["vectors"] == "exact"


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        (["--retriever", "bm25,bm52"], UnknownNameError, "did you mean bm25"),
        (["--retriever", "bm25", "--retriever-set", "k9=1"], KnobError, "no knob 'k9'"),
        (["--retriever", "bm25(k1=1"], ConfigError, "brackets"),
    ],
)
def test_mistakes_are_named_before_work_is_done(
    args: list[str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        run("retrieve", *WORLD, *args)
    assert IndexStore().entries() == []


def test_search_shows_rank_score_and_text() -> None:
    run("index", "build", *WORLD)
    entry = IndexStore().entries()[0]
    assert entry.passages == 120
    result = run("search", "born in", *WORLD, "--k", "2")
    assert "|    1 |" in result.output
    assert "2 of 120 passages by bm25" in result.output
    assert "0 of 120 passages" in run("search", "zzzz", *WORLD).output
    assert IndexStore().entries() == [entry]


def test_index_build_list_info_drop() -> None:
    built = run("index", "build", *WORLD, "--retriever", "hybrid")
    keys = [line.split()[0] for line in built.output.splitlines()]
    assert sorted(key.partition("-")[0] for key in keys) == ["bm25", "dense"]
    assert "nothing to build" in run("index", "build", *WORLD, "--retriever", "hybrid").output
    listed = run("index", "list", "--check").output
    assert all(key in listed for key in keys)
    assert listed.count("whole") == 2
    with pytest.raises(ConfigError, match="--all"):
        run("index", "drop")
    with pytest.raises(DataError, match="no index is named"):
        run("index", "drop", "nothing")
    assert "dropped bm25" in run("index", "drop", "bm25").output
    run("index", "drop", "--all")
    assert "0 indexes" in run("index", "list").output
