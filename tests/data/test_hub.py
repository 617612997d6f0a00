"""Hub data sets: the parquet schemas of the hub, from local files, through the same parsers."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import httpx
import huggingface_hub
import pytest

from ragbench.data import DataSpec, hub, load_dataset
from ragbench.errors import DataError

READ = datasets.load_dataset


@pytest.fixture
def parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Puts rows by split into parquet files and lets the hub's place be taken by them."""

    caches: list[Any] = []  # a cache of its own each time: files are written again

    def serve(**splits: list[dict[str, Any]]) -> None:
        files = {}
        for split, rows in splits.items():
            files[split] = str(tmp_path / f"{split}.parquet")
            datasets.Dataset.from_list(rows).to_parquet(files[split])
        local = READ("parquet", data_files=files, cache_dir=str(tmp_path / f"c{len(caches)}"))
        caches.append(local)
        monkeypatch.setattr(datasets, "load_dataset", lambda repo, config: local)
        monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda *a, **k: None)

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
def test_hub_rows_become_the_examples_of_the_official_file(name, parquet, write, hotpot):
    parquet(train=[columns(r) for r in hotpot])
    from_hub = load_dataset(DataSpec(name, hub=True))
    from_file = load_dataset(DataSpec(name, data_file=write(hotpot)))
    assert from_hub.digest == from_file.digest


def test_evidences_in_columns_and_in_lists(parquet, hotpot):
    triples = [["Thing 0", "maker", "Maker 0"], ["Maker 0", "town", "Town 0"]]
    fact, relation, entity = (list(column) for column in zip(*triples, strict=True))
    for evidences in (triples, {"fact": fact, "relation": relation, "entity": entity}):
        parquet(train=[{**columns(r), "evidences": evidences} for r in hotpot])
        data = load_dataset(DataSpec("2wikimultihopqa", hub=True))
        assert by_id(data)["h0"]["evidences"] == triples


def test_musique_from_the_hub(parquet, write, musique):
    parquet(train=musique)
    from_hub = load_dataset(DataSpec("musique", hub=True))
    assert from_hub.digest == load_dataset(DataSpec("musique", data_file=write(musique))).digest


def test_the_official_evaluation_part_is_the_test_split(parquet, hotpot):
    rows = [columns(r) for r in hotpot]
    rows[9]["question"] = rows[0]["question"]  # the train part repeats a held-out question
    parquet(train=rows[4:], validation=rows[:4], test=[{**rows[0], "answer": ""}])
    data = load_dataset(DataSpec("hotpotqa", hub=True))
    assert {e.qid for e in data.splits["test"]} == {"h0", "h1", "h2", "h3"}
    assert {len(data.splits["train"]), len(data.splits["validation"])} == {3, 2}
    assert data.card["duplicates_dropped"] == 1


def test_a_broken_hub_row_is_named(parquet, hotpot):
    rows = [columns(r) for r in hotpot]
    rows[2]["answer"] = " "
    parquet(validation=rows)
    with pytest.raises(DataError, match=r"hotpot_qa \[validation\]: record 3 .*field 'answer'"):
        load_dataset(DataSpec("hotpotqa", hub=True))


def test_graphrag_bench_comes_whole_from_the_hub(parquet, write, monkeypatch):
    """Ids repeat from novel to novel: the source tells them apart."""
    row = {"question": "What is a cell?", "answer": "A thing.", "question_type": "Fact Retrieval"}
    rows = [{**row, "id": "N-1", "source": name} for name in ("Novel-1", "Novel-2")]
    rows[1]["question"] = "What is a ship?"
    parquet(train=[*rows, {**row, "id": "N-2", "source": "Novel-2", "question": "Who?"}])
    corpus = write([{"corpus_name": "Novel-1", "context": "A cell is a thing."}])
    asked = []
    monkeypatch.setattr(hub, "fetch_file", lambda *where: asked.append(where) or corpus)
    data = load_dataset(DataSpec("graphrag_bench", hub=True, hub_config="novel"))
    assert by_id(data).keys() == {"Novel-1::N-1", "Novel-2::N-1", "N-2"}
    assert asked == [("GraphRAG-Bench/GraphRAG-Bench", "Datasets/Corpus/novel.json")]


def test_any_repository_of_the_hub_with_its_fields_named(parquet, write):
    rows = [{"nr": i, "text": f"Question {i}?", "gold": {"value": i}} for i in range(9)]
    parquet(train=rows[:4], validation=rows[4:6], test=rows[6:])
    fields = (("id", "nr"), ("question", "text"), ("answer", "gold.value"))
    corpus = write([{"title": "T", "text": "X."}], "corpus.json")
    spec = DataSpec("jsonl", hub=True, hub_repo="me/mine", fields=fields, corpus_file=corpus)
    data = load_dataset(spec)
    assert {name: len(part) for name, part in data.splits.items()} == {
        "train": 4,
        "validation": 2,
        "test": 3,
    }
    assert by_id(data)["7"]["answers"] == ["7"]
    with pytest.raises(DataError, match="has no field 'query'; it has gold, nr, text"):
        load_dataset(replace(spec, fields=(("question", "query"),)))


@pytest.mark.parametrize("repo", ["Zly0523/linear-rag", "Ayanami0730/rag_test"])
def test_files_of_a_repository_in_a_known_layout(repo, monkeypatch, write):
    asked = []

    def fetch(repo: str, name: str) -> Path:
        asked.append(f"{repo}/{name}")
        content = [{"id": "1", "question": "Who?", "answer": "x"}]
        return write(["0:x did it."] if "chunks" in name else content, Path(name).name)

    monkeypatch.setattr(hub, "fetch_file", fetch)
    other = None if repo.startswith("Zly") else repo
    data = load_dataset(DataSpec("arag", hub=True, hub_repo=other, hub_config="medical"))
    assert len(data.corpus) == 1
    assert asked == [f"{repo}/medical/chunks.json", f"{repo}/medical/questions.json"]


@pytest.mark.parametrize("name", ["hotpotqa", "arag"])
def test_an_unreachable_hub_is_one_line_at_once(name, monkeypatch, tmp_path):
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise httpx.ConnectError("Name or service not known")

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", refuse)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    before = huggingface_hub.constants.HF_HUB_OFFLINE
    start = time.monotonic()
    with pytest.raises(DataError, match="--data-file") as caught:
        load_dataset(DataSpec(name, hub=True))
    assert "\n" not in str(caught.value)
    assert time.monotonic() - start < 10  # the client's own retries take more than 20 s
    assert huggingface_hub.constants.HF_HUB_OFFLINE is before
