"""Hub data sets: the parquet schemas of the hub, from local files, through the same parsers."""

import hashlib
import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import pytest

from ragbench.data import DataSpec, load_dataset
from ragbench.errors import DataError
from ragbench.paths import cache_root

READ = datasets.load_dataset


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Puts rows by split into parquet files and lets the hub's place be taken by them."""

    number = iter(range(9))  # a place of its own each time: files are written again

    def serve(**splits: list[dict[str, Any]]) -> None:
        files = {}
        at = tmp_path / f"hub{next(number)}"
        for split, rows in splits.items():
            files[split] = str(at / f"{split}.parquet")
            datasets.Dataset.from_list(rows).to_parquet(files[split])
        local = READ("parquet", data_files=files, cache_dir=str(at))
        monkeypatch.setenv("RAGBENCH_CACHE", str(at / "ours"))
        monkeypatch.setattr(datasets, "load_dataset", lambda repo, config: local)
        monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda *a, **k: None)

    return serve


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """What single files of the hub are: a local path by "repository/file"."""
    known: dict[str, Path] = {}

    def download(repo: str, name: str, repo_type: str) -> str:
        return str(known[f"{repo}/{name}"])

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda *a, **k: None)
    return known


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


def test_the_official_evaluation_part_is_the_test_split(parquet, hotpot):
    rows = [columns(r) for r in hotpot]
    rows[9]["question"] = rows[0]["question"]  # the train part repeats a held-out question
    parquet(train=rows[4:], validation=rows[:4], test=[{**rows[0], "answer": ""}])
    data = load_dataset(DataSpec("hotpotqa", hub=True))
    assert {e.qid for e in data.splits["test"]} == {"h0", "h1", "h2", "h3"}
    assert {len(data.splits["train"]), len(data.splits["validation"])} == {3, 2}
    assert data.card["duplicates_dropped"] == 1


def test_graphrag_bench_comes_whole_from_the_hub(parquet, write, files):
    """Ids repeat from novel to novel: the source tells them apart."""
    row = {"question": "What is a cell?", "answer": "A thing.", "question_type": "Fact Retrieval"}
    rows = [{**row, "id": "N-1", "source": name} for name in ("Novel-1", "Novel-2")]
    rows[1]["question"] = "What is a ship?"
    parquet(train=[*rows, {**row, "id": "N-2", "source": "Novel-2", "question": "Who?"}])
    corpus = write([{"corpus_name": "Novel-1", "context": "A cell is a thing."}])
    files["GraphRAG-Bench/GraphRAG-Bench/Datasets/Corpus/novel.json"] = corpus
    data = load_dataset(DataSpec("graphrag_bench", hub=True, hub_config="novel"))
    assert by_id(data).keys() == {"Novel-1::N-1", "Novel-2::N-1", "N-2"}
    assert len(data.corpus) == 1


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


# -- ragbench data get, against a server on this machine


class Hub(http.server.ThreadingHTTPServer):
    """The part of the hub's protocol that its client uses for one public data set."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.files = files


class _Answer(http.server.BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *args: Any) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path, commit = self.path.partition("?")[0], "a" * 40
        if "/tree/" in path:
            folders = sorted({name.partition("/")[0] for name in self.server.files if "/" in name})
            wanted = path.partition("/tree/")[2].partition("/")[2]
            rows = [{"type": "directory", "path": name, "oid": "c" * 40} for name in folders]
            rows = [] if wanted else rows
            for name, content in self.server.files.items():
                if name.rpartition("/")[0] == wanted:
                    rows.append({"type": "file", "path": name, "size": len(content), "oid": "b"})
            self._send(json.dumps(rows).encode())
        elif path.startswith("/api/datasets/"):
            siblings = [{"rfilename": name} for name in self.server.files]
            about = {"id": "x/y", "sha": commit, "private": False, "siblings": siblings}
            self._send(json.dumps(about).encode())
        elif (name := path.partition("/resolve/")[2].partition("/")[2]) in self.server.files:
            content = self.server.files[name]
            self._send(content, etag=f'"{hashlib.sha1(content).hexdigest()}"', commit=commit)
        else:
            self._send(b"", status=404)

    def _send(self, content: bytes, status: int = 200, etag: str = "", commit: str = "") -> None:
        self.send_response(status)
        headers = {"ETag": etag, "X-Repo-Commit": commit, "Content-Length": str(len(content))}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)


@pytest.fixture
def served(tmp_path: Path, hotpot: list[dict[str, Any]]) -> Iterator[Hub]:
    """HotpotQA on a hub of this machine, in the hub's own layout."""
    files = {
        "README.md": b"---\nconfigs:\n- config_name: distractor\n  data_files:\n"
        b"  - {split: train, path: distractor/train-*}\n"
        b"  - {split: validation, path: distractor/validation-*}\n---\n"
    }
    for part, rows in (("train", hotpot[4:]), ("validation", hotpot[:4])):
        path = tmp_path / f"{part}.parquet"
        datasets.Dataset.from_list([columns(row) for row in rows]).to_parquet(path)
        files[f"distractor/{part}-00000-of-00001.parquet"] = path.read_bytes()
    with Hub(files) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def get(address: str, *names: str) -> subprocess.CompletedProcess[str]:
    home = {"HF_ENDPOINT": address, "HF_HOME": str(cache_root() / "hf")}
    command = [sys.executable, "-m", "ragbench", "data", "get", *names]
    return subprocess.run(
        command, env={**os.environ, **home}, capture_output=True, text=True, check=False
    )


def test_get_fetches_once_records_what_came_and_notices_a_change(served: Hub) -> None:
    first = get(f"http://127.0.0.1:{served.server_port}", "hotpotqa")
    assert first.returncode == 0, first.stderr
    folder = cache_root() / "data" / "hotpotqa--hotpot_qa" / "distractor"
    parts = [folder / "train.jsonl", folder / "validation.jsonl"]
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}" for path in parts]
    assert (folder / "SHA256SUMS").read_text().splitlines() == sums
    assert all(str(path) in first.stdout for path in parts)
    # From now on the hub is not needed, for a second `get` and for reading.
    again = get("http://127.0.0.1:9", "hotpotqa")
    assert (again.returncode, again.stdout) == (0, first.stdout)
    spec = DataSpec("hotpotqa", hub=True)
    assert {e.qid for e in load_dataset(spec).splits["test"]} == {"h0", "h1", "h2", "h3"}
    parts[1].write_bytes(parts[1].read_bytes().replace(b"Maker 0", b"Maker 9"))
    with pytest.raises(DataError, match=r"validation\.jsonl is not what was fetched"):
        load_dataset(spec)
    assert get("http://127.0.0.1:9", "hotpotqa").returncode == 2


def test_without_a_network_get_says_what_to_put_where_and_takes_it_from_there(hotpot) -> None:
    done = get("http://127.0.0.1:9", "2wiki")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    folder = cache_root() / "data" / "framolfese--2WikiMultihopQA" / "default"
    assert f"data_ids_april7.zip, of it train.json and dev.json, into {folder}" in done.stderr
    folder.mkdir()
    for name, rows in (("train", hotpot[4:]), ("dev", hotpot[:4])):
        (folder / f"{name}.json").write_text(json.dumps(rows))
    done = get("http://127.0.0.1:9", "2wiki")
    assert (done.returncode, done.stdout.count("as recorded")) == (0, 2)
    data = load_dataset(DataSpec("2wikimultihopqa", hub=True))
    assert {e.qid for e in data.splits["test"]} == {"h0", "h1", "h2", "h3"}
