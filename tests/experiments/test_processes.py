"""Questions spread over worker processes: the records, limits and end of a run in one process.

The workers are real processes, and the LM is a real HTTP server on loopback whose replies and
faults are functions of the prompt.
"""

from __future__ import annotations

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
from zlib import crc32

import pytest

from ragbench.errors import ConfigError, MissingExtraError
from ragbench.experiments.config import make_config
from ragbench.experiments.records import SENT, read_records
from ragbench.experiments.records.prompts import PROMPTS
from ragbench.experiments.runs import Evaluation, evaluate, limited, write_summary
from ragbench.experiments.runs.summary import SUMMARY
from ragbench.lms.calls import Limits
from ragbench.logs import log_to
from ragbench.record import Record
from tests.experiments.towns import write_towns
from tests.fake_server import FakeServer, Fault, Hit, plausible

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked: Linux alone")

Run = Callable[..., Evaluation]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `ircot` over some towns, into the folder `name`."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    return runs_in(tmp_path, monkeypatch)


def runs_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """What runs `ircot` over some towns with a log, into a folder in `folder`."""
    monkeypatch.setenv("RAGBENCH_CACHE", str(folder / "cache"))
    questions = write_towns(folder)

    def make(
        server: FakeServer, name: str, limits: Limits | None = None, **fields: object
    ) -> Evaluation:
        config = make_config(
            {
                "program": "ircot", "dataset": "jsonl", "data_file": questions, "split": "all",
                "limit": 10, "lm": "openai/fake", "api_base": server.url, "workers": 4,
                "cache": False, "set": {"k": 1}, "out": folder / name, **fields,
            }
        )  # fmt: skip
        config.folder().mkdir(exist_ok=True)
        with limited(limits or Limits(), config.folder()), log_to(config.folder() / "log.jsonl"):
            return evaluate(config)

    return make


def told(record: Record) -> dict[str, object]:
    """What of a record does not depend on the time that anything took."""
    row = json.loads(json.dumps(record.to_dict()))
    for place in (row, row["ledger"]["path"], *row["searches"], *row["ledger"]["calls"]):
        for name in ("latency_s", "cached_s"):
            place.pop(name, None)
    row.pop("stages", None)
    return row


class Failing:
    """Fails the first attempts of some prompts, and one prompt for good."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __call__(self, hit: Hit) -> str | Fault:
        with self._lock:
            self._seen[hit.prompt] += 1
            first = self._seen[hit.prompt] == 1
        kind = crc32(hit.prompt.encode()) % 5
        if "town number 7 " in hit.prompt:
            return Fault("400")
        if first and kind == 0:
            return Fault("429", retry_after=0.01)
        if first and kind == 1:
            return Fault("no_usage")
        return plausible(hit)


def test_the_records_are_those_of_one_process(run: Run, tmp_path: Path) -> None:
    kept, texts = [], []
    for processes in (1, 2):
        with FakeServer(Failing()) as server:
            found = run(server, f"run{processes}", processes=processes)
            address = server.url.split("/")[2]
        rows = json.dumps([told(found.records[qid]) for qid in sorted(found.records)])
        kept.append(json.loads(rows.replace(address, "server")))
        texts.append(sorted((tmp_path / f"run{processes}" / PROMPTS).read_text().splitlines()))
        assert found.progress.complete
        assert found.progress.failed == 1
        assert not (tmp_path / f"run{processes}" / SENT).exists()
    assert kept[1] == kept[0]
    assert texts[1] == texts[0]
    assert any("rate_limited" in row["counts"] for row in kept[0])


@pytest.mark.parametrize("limits", [Limits(calls=14), Limits(tokens=6_000)])
def test_a_limit_of_spending_is_one_for_all(run: Run, limits: Limits) -> None:
    for processes in (1, 3):
        with FakeServer() as server:
            found = run(server, f"run{processes}", limits, processes=processes)
            spent = sum(hit.prompt_tokens + hit.completion_tokens for hit in server.hits)
            sent = len(server.hits)
        assert found.stopped_by == limits.option("calls" if limits.calls else "tokens")
        assert found.summary.billed.calls + found.lost.calls == sent
        if limits.calls:
            assert sent == limits.calls
        else:
            assert 0 < spent <= (limits.tokens or 0)
        assert not found.progress.complete


def test_requests_that_are_the_same_are_sent_once(run: Run, tmp_path: Path) -> None:
    same = tmp_path / "same.jsonl"
    row = {"question": "Which town?", "answer": "x", "context": [{"title": "T", "text": "A town."}]}
    same.write_text("".join(json.dumps({"id": f"q{i}", **row}) + "\n" for i in range(8)))
    settings = {"data_file": same, "workers": 8, "cache": True, "limit": 8}
    with FakeServer(latency_s=0.2) as server:
        found = run(server, "run", processes=2, **settings)
        bodies = [json.dumps(hit.body, sort_keys=True) for hit in server.hits]
    assert len(bodies) == len(set(bodies)) > 0
    assert found.progress.answered == 8
    assert found.summary.billed.calls == len(bodies)


@contextmanager
def started(folder: Path, server: FakeServer) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """`ragbench eval` with two workers that have asked something, and the workers' ids."""
    key = {"OPENAI_API_KEY": "none", "RAGBENCH_CACHE": str(folder / "cache")}
    command = [
        sys.executable, "-m", "ragbench", "eval", "--program", "direct", "--dataset", "jsonl",
        "--data-file", str(write_towns(folder)), "--no-cache", "--lm", "openai/fake",
        "--api-base", server.url, "--out", str(folder / "run"), "--workers", "6",
        "--processes", "2",
    ]  # fmt: skip
    with subprocess.Popen(
        command, env={**os.environ, **key}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    ) as process:  # fmt: skip
        deadline = time.monotonic() + 120
        while len(server.hits) < 8 and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.01)
        listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        try:
            yield process, [int(pid) for pid in listed.split()]
        finally:
            process.kill()


def ended(pid: int) -> bool:
    """Whether the process ends in time; one that nobody waited for counts as ended."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.02)
    return False


def test_a_killed_worker_costs_what_it_was_doing(tmp_path: Path) -> None:
    with FakeServer(latency_s=0.1) as server:
        with started(tmp_path, server) as (process, workers):
            assert len(workers) == 2
            os.kill(workers[0], signal.SIGKILL)
            _, err = process.communicate(timeout=120)
            assert process.returncode == 0, err
        records = read_records(tmp_path / "run").records
        assert len(records) == 40
        assert not any(record.failed for record in records.values())
        again = [text for text, n in Counter(hit.prompt for hit in server.hits).items() if n > 1]
        assert len(again) <= 3  # its threads


def test_a_question_that_workers_die_of_is_failed_alone(run: Run, tmp_path: Path) -> None:
    deadly = tmp_path / "deadly.py"
    deadly.write_text(
        "import os\nimport signal\nimport dspy\n"
        "class Deadly(dspy.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.draft = dspy.Predict('question -> answer')\n"
        "    def forward(self, question):\n"
        "        answer = self.draft(question=question).answer\n"
        "        if 'number 3 ' in question:\n"
        "            os.kill(os.getpid(), signal.SIGKILL)\n"
        "        return dspy.Prediction(answer=answer)\n"
    )
    with FakeServer() as server:
        found = run(server, "run", processes=3, workers=3, program=f"{deadly}:Deadly", set={})
        sent = len(server.hits)
    failed = [record for record in found.records.values() if record.failed]
    assert [record.qid for record in failed] == ["q3"]
    assert failed[0].failure
    assert failed[0].failure.error == "WorkerDiedError"
    assert len(found.records) == 10
    assert found.summary.billed.calls + found.lost.calls == sent


def test_a_package_that_a_worker_misses_is_one_line(run: Run, tmp_path: Path) -> None:
    missing = tmp_path / "missing.py"
    missing.write_text(
        "import dspy\nfrom ragbench.errors import MissingExtraError\n"
        "class Missing(dspy.Module):\n"
        "    def forward(self, question):\n"
        "        raise MissingExtraError('this needs x; run pip install y')\n"
    )
    with FakeServer() as server, pytest.raises(MissingExtraError, match="pip install y"):
        run(server, "run", processes=2, program=f"{missing}:Missing", set={})


def test_workers_end_with_their_parent(tmp_path: Path) -> None:
    with FakeServer(latency_s=0.3) as server, started(tmp_path, server) as (process, workers):
        process.kill()
        assert len(workers) == 2
        assert all(map(ended, workers))


def test_where_all_workers_die_the_run_says_so(tmp_path: Path) -> None:
    with FakeServer(latency_s=0.3) as server, started(tmp_path, server) as (process, workers):
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        _, err = process.communicate(timeout=120)
        assert process.returncode == 2, err
        assert "all worker processes ended" in err
        assert "Traceback" not in err
    assert read_records(tmp_path / "run").corrupt == []


def test_ctrl_c_ends_workers_too(tmp_path: Path) -> None:
    def hung(hit: Hit) -> str | Fault:
        return Fault("hang", seconds=60) if hit.number > 6 else plausible(hit)

    with FakeServer(hung) as server, started(tmp_path, server) as (process, workers):
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
        assert process.returncode == 130, err
        assert "Traceback" not in err
        assert err.count("the same command continues") == 1
        assert all(map(ended, workers))
    run = tmp_path / "run"
    assert read_records(run).corrupt == []
    write_summary(run)
    assert (run / SUMMARY).exists()


@pytest.mark.parametrize(
    ("fields", "named"),
    [({"lm": "local", "api_base": None}, "local model"),
     ({"retriever": "dense", "retriever_set": {"embedder": "local"}}, "LocalEmbedder")],
)  # fmt: skip
def test_what_cannot_be_spread_is_refused(run: Run, fields: dict[str, object], named: str) -> None:
    with FakeServer() as server, pytest.raises(ConfigError, match=named) as refused:
        run(server, "run", processes=2, **fields)
    assert "leave --processes out" in str(refused.value)
    assert not server.hits
