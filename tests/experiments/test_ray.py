"""Questions and cells spread over a Ray cluster: records, limits and end as on one machine.

The cluster is real: three nodes, each with processes of its own, on this machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ragbench.errors import ConfigError
from ragbench.experiments.config import make_config
from ragbench.experiments.records import SENT, read_records
from ragbench.experiments.records.prompts import PROMPTS
from ragbench.experiments.runs import limited, ready
from ragbench.experiments.sweep import load_sweep, run_sweep
from ragbench.lms.calls import Limits
from tests.experiments.test_processes import Failing, Run, runs_in, told
from tests.experiments.test_sweep import Quiet
from tests.experiments.towns import write_towns
from tests.fake_server import FakeServer

ray = pytest.importorskip("ray", reason="needs the extra ray")

pytestmark = [
    pytest.mark.xdist_group("ray"),
    # What Ray itself leaves open or calls.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning",
                               "ignore::FutureWarning"),
]  # fmt: skip

NODES = 3


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A cluster of one processor per node, which this process has joined."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", "none")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        small = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
        made = Cluster(initialize_head=True, head_node_args={**small, "include_dashboard": False})
        for _ in range(NODES - 1):
            made.add_node(**small)
        ray.init(address=made.address, log_to_driver=False, logging_level="warning")
        yield made
        ray.shutdown()
        made.shutdown()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `ircot` over some towns, into the folder `name`; two questions at once on each node."""
    return partial(runs_in(tmp_path, monkeypatch), workers=2 * NODES)


def test_without_a_cluster_there_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    if ray.is_initialized():
        pytest.skip("this process has joined a cluster")
    monkeypatch.setenv("RAY_ADDRESS", "no-such-place")
    with FakeServer() as server, pytest.raises(ConfigError, match="no Ray cluster at no-such") as e:
        run(server, "run", engine="ray")
    assert "ray start --head" in str(e.value)
    assert "\n" not in str(e.value)
    assert not server.hits


def test_the_records_are_those_of_one_machine(cluster: Any, run: Run, tmp_path: Path) -> None:
    kept, texts, events = [], [], []
    for engine in ("local", "ray"):
        with FakeServer(Failing()) as server:
            found = run(server, engine, engine=engine)
            address = server.url.split("/")[2]
        rows = json.dumps([told(found.records[qid]) for qid in sorted(found.records)])
        kept.append(json.loads(rows.replace(address, "server")))
        texts.append(sorted((tmp_path / engine / PROMPTS).read_text().splitlines()))
        lines = [json.loads(x) for x in (tmp_path / engine / "log.jsonl").read_text().splitlines()]
        events.append(Counter((line["event"], line.get("qid")) for line in lines))
        assert found.progress.complete
        assert found.progress.failed == 1
        assert not (tmp_path / engine / SENT).exists()
    assert kept[1] == kept[0]
    assert texts[1] == texts[0]
    assert events[1] == events[0]


@pytest.mark.parametrize("limits", [Limits(calls=14), Limits(tokens=6_000)])
def test_a_limit_of_spending_is_one_for_all_nodes(cluster: Any, run: Run, limits: Limits) -> None:
    with FakeServer() as server:
        found = run(server, "run", limits, engine="ray")
        spent = sum(hit.prompt_tokens + hit.completion_tokens for hit in server.hits)
        sent = len(server.hits)
    assert found.stopped_by == limits.option("calls" if limits.calls else "tokens")
    assert found.summary.billed.calls + found.lost.calls == sent
    assert sent == limits.calls if limits.calls else 0 < spent <= (limits.tokens or 0)
    assert not found.progress.complete


def test_the_command_ends_as_without(cluster: Any, run: Run, tmp_path: Path) -> None:
    with FakeServer() as server:
        command = [
            sys.executable, "-m", "ragbench", "eval", "--program", "direct", "--dataset", "jsonl",
            "--data-file", str(tmp_path / "questions.jsonl"), "--lm", "openai/fake", "--engine",
            "ray", "--api-base", server.url, "--out", str(tmp_path / "run"), "--no-cache",
        ]  # fmt: skip
        environment = {**os.environ, "RAY_ADDRESS": cluster.address}
        ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "core_worker" not in ended.stderr
    assert len(read_records(tmp_path / "run").records) == 40


def test_a_program_of_ones_own_goes_along(cluster: Any, run: Run, tmp_path: Path) -> None:
    own = tmp_path / "own_for_ray.py"
    own.write_text(
        "import dspy\nWORD = 'Oslo'\n"
        "class Own(dspy.Module):\n"
        "    def forward(self, question):\n"
        "        return dspy.Prediction(answer=WORD)\n"
    )
    with FakeServer() as server:
        found = run(server, "run", engine="ray", program=f"{own}:Own", set={})
    assert {record.answer for record in found.records.values()} == {"Oslo"}
    assert len(found.records) == 10


def test_a_sweep_goes_on_where_a_node_dies(cluster: Any, run: Run, tmp_path: Path) -> None:
    sweep = tmp_path / "sweep.json"
    kept, asked = [], []
    for engine in ("local", "ray"):
        with FakeServer(latency_s=0.25) as server:
            fields = {
                "dataset": "jsonl", "data_file": str(tmp_path / "questions.jsonl"), "split": "all",
                "limit": 30, "lm": "openai/fake", "api_base": server.url, "workers": 6,
                "cache": False, "set": {"k": 1}, "engine": engine,
                "matrix": {"program": ["vanilla", "direct"]},
            }  # fmt: skip
            sweep.write_text(json.dumps(fields))
            loaded = load_sweep(sweep, out=tmp_path / engine)
            if engine == "ray":
                killer = threading.Thread(target=kill_a_node, args=(cluster, server, 12))
                killer.start()
            with limited(Limits(), loaded.folder):
                swept = run_sweep(loaded, Quiet())
            if engine == "ray":
                killer.join()
                assert sum(node["Alive"] for node in ray.nodes()) == NODES - 1
            asked.append(Counter(hit.prompt for hit in server.hits))
            address = server.url.split("/")[2]
        assert [outcome.state for outcome in swept.outcomes] == ["done", "done"]
        rows = {
            cell.label: sorted(
                (told(r) for r in read_records(cell.folder).records.values()),
                key=lambda row: str(row["qid"]),
            )
            for cell in loaded.cells
        }
        kept.append(json.loads(json.dumps(rows).replace(address, "server")))
    assert kept[1] == kept[0]
    assert asked[1].keys() == asked[0].keys()
    again = [prompt for prompt, n in asked[1].items() if n > asked[0][prompt]]
    assert len(again) <= 2, "only what the node was doing is asked again: it had two threads"
    cluster.add_node(num_cpus=1, object_store_memory=80 * 2**20)


def kill_a_node(cluster: Any, server: FakeServer, after: int) -> None:
    """Kill all processes of the last node when the server has so many requests."""
    while len(server.hits) < after:
        time.sleep(0.01)
    cluster.remove_node(list(cluster.worker_nodes)[-1], allow_graceful=False)


def test_no_key_leaves_the_process(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ragbench.experiments.runs.spread.cluster import _packed
    from ragbench.experiments.runs.spread.worker import Worker

    key = "sk-" + "secret0123" * 4
    monkeypatch.setenv("OPENAI_API_KEY", key)
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "cache"))
    questions = write_towns(tmp_path)
    with FakeServer() as server:
        config = make_config(
            {
                "program": "vanilla", "dataset": "jsonl", "data_file": questions, "split": "all",
                "lm": "openai/fake", "api_base": server.url, "retriever": "dense", "limit": 4,
                "retriever_set": {"embedder": "openai/small"}, "out": tmp_path / "run",
            }
        )  # fmt: skip
        run_context = ready(config)
        run_context.lm("a question")  # the client has made what it keeps
        assert key.encode() not in _packed(Worker(run_context, ("127.0.0.1", 1), b"secret"))
