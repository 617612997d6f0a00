"""Local servers beside each other and beside strangers: a small program stands in for llama.cpp.

It speaks the same protocol, wants the key and says where it listens, as `llama-server` does.
"""

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ragbench.errors import LMSetupError
from ragbench.ledger import open_ledger
from ragbench.lms import RagbenchLM, make_lm
from ragbench.lms.calls import LocalClient
from ragbench.lms.local.server import LocalServer, ServerSettings
from tests.fake_server import FakeServer
from tests.kills import start, write_questions
from tests.lms.test_local import ROOT, gone
from tests.runs import record_rows

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

SERVER = f"""#!{sys.executable}
import os, sys, time
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
from tests.fake_server import FakeServer
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
log = Path(__file__).with_name(f"{{os.getpid()}}.log")
try:
    server = FakeServer(
        port=int(given["--port"]), key=os.environ["LLAMA_API_KEY"], log=log, latency_s=0.02
    )
except OSError:
    sys.exit("couldn't bind HTTP server socket")
with server:
    print("server is listening on", server.url.removesuffix("/v1"), flush=True)
    time.sleep(600)
"""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A model file that the stand-in serves; no process of it is left afterwards."""
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "cache"))
    program = servers(tmp_path) / "llama-server"
    program.parent.mkdir(parents=True)
    program.write_text(SERVER)
    program.chmod(0o755)
    monkeypatch.setenv("RAGBENCH_LLAMA_SERVER", str(program))
    path = tmp_path / "small.gguf"
    path.write_bytes(b"GGUF")
    yield path
    assert [pid for pid in pids(tmp_path) if not gone(pid)] == []


def servers(folder: Path) -> Path:
    return folder / "servers"


def pids(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in servers(folder).glob("*.log"))


def keys(folder: Path, pid: int) -> set[str]:
    """The keys that were shown to a server."""
    lines = (servers(folder) / f"{pid}.log").read_text().splitlines()
    return {json.loads(line)["key"] for line in lines}


@pytest.fixture
def lm(model: Path) -> Iterator[RagbenchLM]:
    made = make_lm(f"local:{model}", cache=False)
    yield made
    made.close()


def server_of(lm: RagbenchLM) -> LocalServer:
    client = lm.metered.client
    assert isinstance(client, LocalClient)
    return client.server


def serves(folder: Path, n: int) -> list[int]:
    """The servers, once there are `n`, and each has been asked."""
    end = time.monotonic() + 120
    while len(asked := [pid for pid in pids(folder) if keys(folder, pid)]) < n:
        assert time.monotonic() < end
        time.sleep(0.02)
    return asked


def stranger_at(port: int) -> FakeServer:
    """Another server, at the port of one that was killed, as soon as that has let go of it."""
    end = time.monotonic() + 60
    while True:
        try:
            return FakeServer(lambda hit: "of a stranger", port=port)
        except OSError:
            assert time.monotonic() < end
            time.sleep(0.01)


@pytest.mark.parametrize("killed", [False, True])
def test_two_runs_at_once_on_one_model_have_a_server_each(
    tmp_path: Path, model: Path, killed: bool
) -> None:
    data = str(write_questions(tmp_path, 20))
    argv = ["eval", "--program", "vanilla", "--k", "1", "--dataset", "jsonl", "--data-file", data]
    argv += ["--limit", "0", "--no-cache", "--workers", "2", "--lm", f"local:{model}"]
    runs = [tmp_path / "one", tmp_path / "two"]
    processes = [
        start([*argv, "--out", str(run)], tmp_path / f"{run.name}.txt", tmp_path / "cache")
        for run in runs
    ]
    if killed:
        for pid in serves(tmp_path, 2):
            os.kill(pid, signal.SIGKILL)
    for process in processes:
        process.join(300)
    said = [(tmp_path / f"{run.name}.txt").read_text() for run in runs]
    assert [process.exitcode for process in processes] == [0, 0], said
    for run in runs:
        records = record_rows(run)
        assert sum(record["failure"] is None for record in records) == 20
    found = pids(tmp_path)
    assert len(found) == (4 if killed else 2)
    assert len(set().union(*(keys(tmp_path, pid) for pid in found))) == 2
    assert all(len(keys(tmp_path, pid)) == 1 for pid in found)


def test_nothing_is_taken_from_a_process_that_took_the_port_over(
    tmp_path: Path, lm: RagbenchLM
) -> None:
    server = server_of(lm)
    url, parent = server.url(), server.pid
    assert parent is not None
    lm("first")
    (first,) = pids(tmp_path)
    os.kill(parent, signal.SIGSTOP)  # it does not tell that what it started is gone
    os.kill(first, signal.SIGKILL)
    assert gone(first)
    with stranger_at(int(url.rpartition(":")[2])) as stranger, open_ledger() as ledger:
        replies = lm("second")
    assert stranger.hits == []
    assert "stranger" not in str(replies)
    assert ledger.calls[0].error is None
    assert len(pids(tmp_path)) == 2


def test_a_server_that_has_ended_runs_nowhere(tmp_path: Path, lm: RagbenchLM) -> None:
    server = server_of(lm)
    url = server.url()
    assert server.runs_at(url)
    assert not server.runs_at("http://127.0.0.1:9")
    (pid,) = pids(tmp_path)
    os.kill(pid, signal.SIGKILL)
    assert gone(pid)
    end = time.monotonic() + 60
    while server.runs_at(url) and time.monotonic() < end:
        time.sleep(0.01)
    assert not server.runs_at(url)


def test_a_port_that_is_taken_is_one_line(model: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        server = LocalServer(ServerSettings(model, "small", port=port))
        with pytest.raises(LMSetupError, match=f"port {port} cannot be had: .* or 0 for a free"):
            server.url()
    assert server.url() == f"http://127.0.0.1:{port}"
    other = LocalServer(ServerSettings(model, "small", port=port))
    with pytest.raises(LMSetupError, match="cannot be had"):
        other.url()
    server.stop()
    assert other.url() == f"http://127.0.0.1:{port}"
    other.stop()


def test_of_two_servers_started_at_once_on_one_port_one_serves(model: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    argv = ["models", "serve", f"local:{model}", "--port", str(port)]
    logs = [model.with_name(name) for name in ("one.txt", "two.txt")]
    processes = [start(argv, log, model.parent / "cache") for log in logs]
    end = time.monotonic() + 120
    while all(process.is_alive() for process in processes) and time.monotonic() < end:
        time.sleep(0.05)
    said = [log.read_text() for log in logs]
    assert sorted(process.exitcode or 0 for process in processes) == [0, 2], said
    lost = next(text for p, text in zip(processes, said, strict=True) if p.exitcode == 2)
    assert f"error: port {port} cannot be had" in lost
    assert "Traceback" not in lost
    for process in processes:
        process.kill()
        process.join()


def test_the_program_is_part_of_the_name_and_must_exist(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = make_lm(f"local:{model}").model
    program = Path(os.environ["RAGBENCH_LLAMA_SERVER"])
    program.write_text(f"{SERVER}# another build")
    assert "@llama-server-" in name
    assert make_lm(f"local:{model}").model != name
    monkeypatch.delenv("RAGBENCH_LLAMA_SERVER")
    assert "llama-server" not in make_lm(f"local:{model}").model
    monkeypatch.setenv("RAGBENCH_LLAMA_SERVER", str(model))  # a file that cannot be run
    with pytest.raises(LMSetupError, match="no program that can be run; give the path"):
        make_lm(f"local:{model}")


def test_a_program_that_does_not_start_says_why(model: Path) -> None:
    program = Path(os.environ["RAGBENCH_LLAMA_SERVER"])
    program.write_text(f"#!{sys.executable}\nimport sys\nsys.exit('no such model')\n")
    server = LocalServer(ServerSettings(model, "small"))
    with pytest.raises(LMSetupError, match=r"cannot serve .*: no such model; give a GGUF"):
        server.url()
    server.stop()


@pytest.mark.parametrize("way", [signal.SIGKILL, None])
def test_the_program_ends_with_its_parent(
    tmp_path: Path, model: Path, way: signal.Signals | None
) -> None:
    server = LocalServer(ServerSettings(model, "small", slots=3, context=512))
    server.url()
    (pid,) = pids(tmp_path)
    arguments = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    assert arguments[arguments.index("--ctx-size") + 1] == "1536"  # 512 for each of the slots
    assert server.key not in arguments
    if way is not None:
        assert server.pid is not None
        os.kill(server.pid, way)
    server.stop()
    assert gone(pid)
