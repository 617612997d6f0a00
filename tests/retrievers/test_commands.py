"""The command retrieve, end to end over a generated data set."""

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
    run("retrieve", "--build", *WORLD)
    entry = IndexStore().entries()[0]
    assert entry.passages == 120
    result = run("retrieve", "born in", *WORLD, "--k", "2")
    assert "|    1 |" in result.output
    assert "2 of 120 passages by bm25" in result.output
    assert "0 of 120 passages" in run("retrieve", "zzzz", *WORLD).output
    assert IndexStore().entries() == [entry]


def test_indexes_are_built_listed_and_deleted() -> None:
    built = run("retrieve", "--build", *WORLD, "--retriever", "hybrid")
    keys = [line.split()[0] for line in built.output.splitlines()]
    assert sorted(key.partition("-")[0] for key in keys) == ["bm25", "dense"]
    assert "nothing to build" in run("retrieve", "--build", *WORLD, "--retriever", "hybrid").output
    listed = run("list", "indexes").output
    assert all(key in listed for key in keys)
    with pytest.raises(DataError, match="no index is named"):
        run("list", "indexes", "--delete", "nothing")
    assert "deleted bm25" in run("list", "indexes", "--delete", "bm25").output
    run("list", "indexes", "--delete", "all")
    assert "0 indexes" in run("list", "indexes").output


def test_retrieve_with_a_query_refuses_options_of_questions() -> None:
    for words in (["--split", "train"], ["--out", "x.json"], ["--k", "2,5"], ["--build"]):
        assert run("retrieve", "born in", *WORLD, *words).exit_code == 2, words


QRELS = [{"id": f"q{n}", "question": f"Who is {n}?", "answer": "x", "gold": [f"p{n}"]}
         for n in range(3)]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ("q0 Q0 p0 1 2.5 bm\nq0 Q0 p1 2 1.5 bm\nq1 Q0 p0 1 2 bm\nq1 Q0 p1 2 1 bm\n", "r.txt"),
        ("q0\tQ0\tp1\t9\t1.5\tbm\n\nq0\tQ0\tp0\t8\t2.5\tbm\nq1 0 p0 1 2 x\nq1 0 p1 2 1 x", "r.run"),
        ('{"q0": {"p1": 1, "p0": 2}, "q1": {"p1": 1.0, "p0": 2}, "other": {"p9": 1}}', "r.json"),
    ],
)
def test_rankings_of_another_system_are_measured(content: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "q.json").write_text(json.dumps(QRELS))
    corpus = [{"id": f"p{n}", "text": f"Text {n}."} for n in range(3)]
    (tmp_path / "c.json").write_text(json.dumps(corpus))
    (tmp_path / name).write_text(content)
    data = ["--data-file", "q.json", "--corpus-file", "c.json", "--k", "1,2", "--out", "out.json"]
    result = run("retrieve", *data, "--run", name)
    assert result.exit_code == 0, result.output
    [row] = json.loads((tmp_path / "out.json").read_text())["retrievers"]
    assert row["found"] == {"q0": ["p0", "p1"], "q1": ["p0", "p1"], "q2": []}
    assert row["scores"]["recall@1"] == pytest.approx(1 / 3)
    assert row["scores"]["mrr@2"] == pytest.approx(1.5 / 3)
    both = run("retrieve", *data, "--run", name, "--retriever", "bm25")
    assert both.exit_code == 0, both.output
    assert len(json.loads((tmp_path / "out.json").read_text())["retrievers"]) == 2


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("q0 p0 1.5\n", "line 1: has 3 columns, not those of a TREC run"),
        ("q0 Q0 p0 1 high bm\n", "the score 'high' is not a number"),
        ("x Q0 p0 1 1 bm\n", "its ids, such as 'x', must be theirs, such as 'q0'"),
        ("q0 Q0 zz 1 1 bm\n", "ranks no passage of the corpus; its ids, such as 'zz'"),
    ],
)
def test_rankings_that_cannot_be_read_are_one_line(content: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "q.json").write_text(json.dumps(QRELS))
    (tmp_path / "c.json").write_text(json.dumps([{"id": f"p{n}", "text": "x"} for n in range(3)]))
    (tmp_path / "r.txt").write_text(content)
    with pytest.raises(DataError, match=says):
        run("retrieve", "--data-file", "q.json", "--corpus-file", "c.json", "--run", "r.txt")
