"""Hub data sets: the parquet schemas of the hub, from local files, through the same parsers."""

import hashlib
import json
import time
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import pytest

from ragbench.data import DataSettings, load_dataset
from ragbench.errors import DataError
from ragbench.paths import cache_root
from tests.cli.test_mistakes import run

READ = datasets.load_dataset
DOWNLOAD = huggingface_hub.hf_hub_download


@pytest.fixture(autouse=True)
def away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of the test's own; the hub does not answer."""

    def nothing(*args: Any, **settings: Any) -> None:
        raise ConnectionError("nobody is there")

    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", nothing)
    monkeypatch.setattr(datasets, "load_dataset", nothing)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Puts rows by split into parquet files, and single files by "repository/file", on the hub."""

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)

    def serve(files: dict[str, Path] | None = None, **splits: list[dict[str, Any]]) -> None:
        parts = {name: str(tmp_path / f"{name}.parquet") for name in splits}
        for name, rows in splits.items():
            datasets.Dataset.from_list(rows).to_parquet(parts[name])
        local = READ("parquet", data_files=parts, cache_dir=str(tmp_path / "hub"))
        monkeypatch.setattr(datasets, "load_dataset", lambda repo, config: local)
        came = lambda repo, name, **_: (files or {})[f"{repo}/{name}"]  # noqa: E731
        monkeypatch.setattr(huggingface_hub, "hf_hub_download", came)

    return serve


def columns(record: dict[str, Any]) -> dict[str, Any]:
    """An official record in the shape that the hub gives it."""
    titles, ids = zip(*record["supporting_facts"], strict=True)
    names, sentences = zip(*record["context"], strict=True)
    return {
        "id": record["_id"],
        **{key: record[key] for key in ("question", "answer", "type", "level")},
        "supporting_facts": {"title": list(titles), "sent_id": list(ids)},
        "context": {"title": list(names), "sentences": list(sentences)},
    }


def by_id(data):
    return {e.qid: dict(e.items()) for part in data.splits.values() for e in part}


@pytest.mark.parametrize("name", ["hotpotqa", "2wikimultihopqa"])
def test_hub_rows_become_the_examples_of_the_official_file(name, hub, write, hotpot):
    hub(train=[columns(r) for r in hotpot])
    from_hub = load_dataset(DataSettings(dataset=name, hub=True))
    from_file = load_dataset(DataSettings(dataset=name, data_file=write(hotpot)))
    assert from_hub.digest == from_file.digest


def test_the_official_evaluation_part_is_the_test_split(hub, hotpot):
    rows = [columns(r) for r in hotpot]
    rows[9]["question"] = rows[0]["question"]  # the train part repeats a held-out question
    hub(train=rows[4:], validation=rows[:4], test=[{**rows[0], "answer": ""}])
    data = load_dataset(DataSettings(dataset="hotpotqa", hub=True))
    assert {e.qid for e in data.splits["test"]} == {"h0", "h1", "h2", "h3"}
    assert {len(data.splits["train"]), len(data.splits["validation"])} == {3, 2}
    assert data.card["duplicates_dropped"] == 1


def test_graphrag_bench_comes_whole_from_the_hub(hub, write):
    """Ids repeat from novel to novel: the source tells them apart."""
    row = {"question": "What is a cell?", "answer": "A thing.", "question_type": "Fact Retrieval"}
    rows = [{**row, "id": "N-1", "source": name} for name in ("Novel-1", "Novel-2")]
    rows[1]["question"] = "What is a ship?"
    corpus = write([{"corpus_name": "Novel-1", "context": "A cell is a thing."}])
    hub(
        {"GraphRAG-Bench/GraphRAG-Bench/Datasets/Corpus/novel.json": corpus},
        train=[*rows, {**row, "id": "N-2", "source": "Novel-2", "question": "Who?"}],
    )
    data = load_dataset(DataSettings(dataset="graphrag_bench", hub=True, hub_config="novel"))
    assert by_id(data).keys() == {"Novel-1::N-1", "Novel-2::N-1", "N-2"}
    assert len(data.corpus) == 1


def test_any_repository_of_the_hub_with_its_fields_named(hub, write):
    rows = [{"nr": i, "text": f"Question {i}?", "gold": {"value": i}} for i in range(9)]
    hub(train=rows[:4], validation=rows[4:6], test=rows[6:])
    fields = {"id": "nr", "question": "text", "answer": "gold.value"}
    corpus = write([{"title": "T", "text": "X."}], "corpus.json")
    spec = DataSettings(
        dataset="jsonl", hub=True, hub_repo="me/mine", field=fields, corpus_file=corpus
    )
    data = load_dataset(spec)
    sizes = {name: len(part) for name, part in data.splits.items()}
    assert sizes == {"train": 4, "validation": 2, "test": 3}
    assert by_id(data)["7"]["answers"] == ["7"]
    with pytest.raises(DataError, match="there are nr, text, gold: give --field question"):
        load_dataset(spec.but(field={"question": "query"}))


def test_get_fetches_once_records_what_came_and_notices_a_change(hub, hotpot, capsys, monkeypatch):
    hub(train=[columns(r) for r in hotpot[4:]], validation=[columns(r) for r in hotpot[:4]])
    first = run(capsys, "fetch", "hotpotqa")
    assert first[0] == 0, first
    monkeypatch.setattr(datasets, "load_dataset", None)
    folder = cache_root() / "data" / "hotpotqa--hotpot_qa" / "distractor"
    parts = [folder / "train.parquet", folder / "validation.parquet"]
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}" for path in parts]
    assert (folder / "SHA256SUMS").read_text().splitlines() == sums
    assert all(str(path) in first[1] for path in parts)
    # From now on the hub is not needed, for a second `get` and for reading.
    assert run(capsys, "fetch", "hotpotqa")[:2] == first[:2]
    spec = DataSettings(dataset="hotpotqa", hub=True)
    assert {e.qid for e in load_dataset(spec).splits["test"]} == {"h0", "h1", "h2", "h3"}
    parts[1].write_bytes(parts[1].read_bytes().replace(b"Maker 0", b"Maker 9"))
    with pytest.raises(DataError, match=r"validation\.parquet differs from the downloaded file"):
        load_dataset(spec)
    assert run(capsys, "fetch", "hotpotqa")[0] == 2


def test_without_a_network_get_says_what_to_put_where_and_takes_it_from_there(hotpot, capsys):
    code, _, err = run(capsys, "fetch", "2wikimultihopqa")
    assert (code, len(err.splitlines())) == (2, 1)
    folder = cache_root() / "data" / "framolfese--2WikiMultihopQA" / "default"
    assert f"put its files (train.json, dev.json) into {folder}" in err
    folder.mkdir()
    for name, rows in (("train", hotpot[4:]), ("dev", hotpot[:4])):
        (folder / f"{name}.json").write_text(json.dumps(rows))
    code, out, _ = run(capsys, "fetch", "2wikimultihopqa")
    assert (code, out.count("as recorded")) == (0, 2)
    data = load_dataset(DataSettings(dataset="2wikimultihopqa", hub=True))
    assert {e.qid for e in data.splits["test"]} == {"h0", "h1", "h2", "h3"}


@pytest.mark.parametrize("name", ["hotpotqa", "arag"])
def test_a_hub_out_of_reach_is_said_at_once(name, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(datasets, "load_dataset", READ)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", DOWNLOAD)
    start = time.monotonic()
    with pytest.raises(DataError, match=r"cannot be downloaded .*refused.*--data-file PATH"):
        load_dataset(DataSettings(dataset=name, hub=True))
    assert time.monotonic() - start < 5  # its own client tries for half a minute
