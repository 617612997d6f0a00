"""Runs over several processes and over a Ray cluster: the records, limits and end of one process.

The processes are real, and the LM is a real HTTP server on loopback whose replies and faults are
functions of the prompt.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ragbench.errors import ConfigError
from ragbench.experiments.config import make_config
from ragbench.experiments.progress import SILENT, ProgressListener
from ragbench.experiments.runs.context import limited
from ragbench.experiments.runs.runner import evaluate
from ragbench.experiments.runs.summary import Evaluation, reopen
from ragbench.experiments.store import read_records
from ragbench.lms.calls import Limits
from ragbench.record import Record
from tests.experiments.towns import write_towns
from tests.fake_server import FakeServer, Fault, Hit, plausible

Run = Callable[..., Evaluation]


class Seen(ProgressListener):
    """Notes the records that it is told of."""

    def __init__(self, seen: list[tuple[str, int, int]]) -> None:
        self._seen = seen

    def update(self, record: Record, done: int, todo: int) -> None:
        self._seen.append((record.qid, done, todo))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs `ircot` over some towns, into the folder `name`."""
    questions = write_towns(tmp_path)

    def make(
        server: FakeServer, name: str, limits: Limits | None = None, **fields: Any
    ) -> Evaluation:
        watch = fields.pop("watch", SILENT)
        config = make_config(
            {
                "program": "ircot", "dataset": "jsonl", "data_file": questions, "split": "all",
                "limit": 10, "lm": "openai/fake", "api_base": server.url, "workers": 4,
                "cache": False, "set": {"k": 1}, "out": tmp_path / name, **fields,
            }
        )  # fmt: skip
        with limited(limits or Limits(), config.folder()):
            return evaluate(config, watch=watch)

    return make


def told(found: Evaluation, server: FakeServer) -> str:
    """What of the records does not depend on the time that anything took, or on the address."""
    rows = [json.loads(json.dumps(found.records[qid].to_dict())) for qid in sorted(found.records)]
    for row in rows:
        for place in (row, row["ledger"]["path"], *row["searches"], *row["ledger"]["calls"]):
            for name in ("latency_s", "cached_s", "started_s"):
                place.pop(name, None)
    return json.dumps(rows).replace(server.url.split("/")[2], "server")


def failing(hit: Hit) -> str | Fault:
    """Fails one question for good."""
    return Fault("filter_400") if "town number 7 " in hit.prompt else plausible(hit)


def test_the_records_are_those_of_one_process(run: Run, tmp_path: Path) -> None:
    kept = []
    for processes in (1, 3):
        seen: list[tuple[str, int, int]] = []
        with FakeServer(failing) as server:
            found = run(server, f"run{processes}", processes=processes, watch=Seen(seen))
            kept.append(told(found, server))
        progress = found.progress
        assert (progress.complete, progress.failed, found.lost.calls) == (True, 1, 0)
        assert sorted(qid for qid, _, _ in seen) == sorted(found.records)
        assert [(done, n) for _, done, n in seen] == [(done, 10) for done in range(1, 11)]
        log = (tmp_path / f"run{processes}" / "log.jsonl").read_text().splitlines()
        assert sum(json.loads(line)["event"] == "question ended" for line in log) == 10
    assert kept[1] == kept[0]


def test_a_limit_of_spending_is_one_for_all(run: Run) -> None:
    with FakeServer() as server:
        found = run(server, "run", Limits(calls=14), processes=3)
    assert found.stopped_by == "--max-calls 14"
    assert found.summary.billed.calls + found.lost.calls == len(server.hits) == 14
    assert not found.progress.complete


def test_prints_of_a_program_in_shards_reach_stderr(server: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "say.py").write_text(
        "import dspy\n\n\nclass Say(dspy.Module):\n    def forward(self, question):\n"
        "        print('asked:', question)\n        return dspy.Prediction(answer='x')\n"
    )
    words = "eval --program say.py:Say --limit 6 --workers 2 --processes 2 --lm openai/fake"
    command = [sys.executable, "-m", "ragbench", *words.split(), "--api-base", server.url]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.count("asked: ")) == (0, 6), done.stderr


def listed(option: str, pid: int) -> list[int]:
    """Processes that `pgrep` finds."""
    found = subprocess.run(["pgrep", option, str(pid)], capture_output=True, text=True)
    return list(map(int, found.stdout.split()))


@contextmanager
def started(
    folder: Path, server: FakeServer, hits: int = 8
) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """`ragbench eval` with two shards that have asked so often, and the ids of their processes."""
    command = [
        sys.executable, "-m", "ragbench", "eval", "--program", "direct", "--dataset", "jsonl",
        "--data-file", str(write_towns(folder)), "--no-cache", "--lm", "openai/fake",
        "--api-base", server.url, "--out", str(folder / "run"), "--workers", "6",
        "--processes", "2",
    ]  # fmt: skip
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        deadline = time.monotonic() + 120
        while len(server.hits) < hits and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.01)
        (first,) = listed("-P", process.pid)  # It leads the group of those that it forked.
        try:
            yield process, listed("-g", first)
        finally:
            process.kill()


def ended(pid: int) -> bool:
    """Whether the process ends in time."""
    deadline = time.monotonic() + 30
    stat = Path(f"/proc/{pid}/stat")
    while time.monotonic() < deadline and stat.exists():
        with contextlib.suppress(OSError):
            if stat.read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        time.sleep(0.02)
    return not stat.exists()


@pytest.mark.slow
@pytest.mark.parametrize(("whole", "most"), [(False, 3), (True, 6)])  # those under way
def test_a_kill_loses_nothing(whole: bool, most: int, run: Run, tmp_path: Path) -> None:
    with FakeServer(latency_s=0.2) as server:
        with started(tmp_path, server, 16) as (process, shards):
            assert len(shards) == 2
            os.kill(process.pid if whole else shards[0], signal.SIGKILL)
            _, err = process.communicate(timeout=120)
            assert whole or process.returncode == 0, err
            assert all(map(ended, shards))
        if whole:
            run(server, "run", program="direct", limit=None, set={}, processes=2, workers=6)
        again = sum(n > 1 for n in Counter(hit.prompt for hit in server.hits).values())
        assert again <= most
    records = read_records(tmp_path / "run")
    assert len(records) == 40
    assert not any(record.failed for record in records.values())


def test_ctrl_c_ends_the_shards_and_keeps_what_they_have(tmp_path: Path) -> None:
    def hung(hit: Hit) -> str | Fault:
        return Fault("hang", seconds=60) if hit.number > 6 else plausible(hit)

    # Twelve: each of the six threads hangs in its next question, after its record was written.
    with FakeServer(hung) as server, started(tmp_path, server, 12) as (process, shards):
        assert len(shards) == 2
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 130, err
        assert "Traceback" not in err
        assert err.count("the same command continues") == 1
        assert all(map(ended, shards))
    found = reopen(tmp_path / "run")
    assert len(found.records) == 6


def test_a_local_model_serves_one_process(run: Run) -> None:
    with FakeServer() as server, pytest.raises(ConfigError, match="leave --processes out"):
        run(server, "run", processes=2, lm="local", api_base=None)


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A Ray cluster of two nodes on this machine, which this process has joined."""
    ray = pytest.importorskip("ray", reason="needs the extra ray")
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        small = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
        made = Cluster(initialize_head=True, head_node_args={**small, "include_dashboard": False})
        made.add_node(**small)
        ray.init(address=made.address, log_to_driver=False, logging_level="warning")
        yield made
        ray.shutdown()
        made.shutdown()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning",
                            "ignore::FutureWarning")  # fmt: skip
def test_a_cluster_asks_as_one_machine_though_a_node_dies(cluster: Any, run: Run) -> None:
    with FakeServer(failing) as server:
        expected = told(run(server, "here", limit=20), server)
    with FakeServer(failing, latency_s=0.2) as server:

        def kill() -> None:
            while len(server.hits) < 8:
                time.sleep(0.01)
            cluster.remove_node(list(cluster.worker_nodes)[-1], allow_graceful=False)

        killer = threading.Thread(target=kill)
        killer.start()
        found = run(server, "there", engine="ray", limit=20)
        killer.join()
        assert told(found, server) == expected
