"""Local models: the store (whole and verified, or not there), the server, and the metered LM."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Literal
from urllib.error import HTTPError

import dspy
import httpx
import pytest
from click.testing import CliRunner, Result

from ragbench.cli.listing import fetch_command, list_command
from ragbench.errors import LMSetupError, ModelError, UnknownNameError
from ragbench.ledger import open_ledger
from ragbench.lms import local
from ragbench.lms.adapters import make_adapter
from ragbench.lms.calls.other_clients import LocalClient
from ragbench.lms.factory import make_lm
from ragbench.lms.lm import RagbenchLM
from ragbench.lms.local import CATALOGUE, SLOTS, LocalServer, Model, ModelFile

ROOT = Path(__file__).parents[2]


class Judge(dspy.Signature):
    """Decide whether the passage answers the question."""

    question: str = dspy.InputField()
    passage: str = dspy.InputField()
    relevance: Literal["relevant", "irrelevant"] = dspy.OutputField()
    confidence: float = dspy.OutputField(desc="0 to 1")


def server_of(lm: RagbenchLM) -> LocalServer:
    client = lm.metered.client
    assert isinstance(client, LocalClient)
    return client.server


def gone(pid: int) -> bool:
    """Whether the process ends within ten seconds; one that its parent has not asked has ended."""
    end = time.monotonic() + 10
    status = Path(f"/proc/{pid}/stat")
    while time.monotonic() < end:
        with suppress(FileNotFoundError):
            if status.read_text().rpartition(")")[2].split()[0] != "Z":
                time.sleep(0.1)
                continue
        return True
    return False


def test_it_answers_and_decoding_is_held_to_the_schema(local_lm: RagbenchLM) -> None:
    with dspy.context(lm=local_lm, adapter=make_adapter("auto", local_lm)), open_ledger() as ledger:
        answer = dspy.Predict("question -> answer")(question="What is the capital of France?")
        out = dspy.Predict(Judge)(question="What is the capital of France?", passage="!!!")
    assert out.relevance in ("relevant", "irrelevant")
    assert isinstance(out.confidence, float)
    assert "Paris" in answer.answer
    call = ledger.calls[0]
    assert call.model.startswith("llamacpp/qwen2.5-coder-0.5b-instruct-q4_k_m@")
    assert (call.prompt_tokens > 50, 0 < call.completion_tokens < 512) == (True, True)
    assert (call.cost_usd, call.latency_s > 0) == (0.0, True)
    assert [call.fallback for call in ledger.calls] == [False] * 2


def test_an_overlong_prompt_is_a_context_window_error(local_lm: RagbenchLM) -> None:
    overlong = pytest.raises(dspy.ContextWindowExceededError)
    with open_ledger() as ledger, overlong:
        local_lm("hello there " * 9000)
    assert (ledger.calls[0].error, ledger.calls[0].attempts) == ("ContextWindowExceededError", 1)


def test_the_server_listens_on_loopback_only_with_a_key_that_is_in_no_argument(
    local_lm: RagbenchLM,
) -> None:
    server = server_of(local_lm)
    url = server.url()
    assert url.startswith("http://127.0.0.1:")
    with pytest.raises(HTTPError) as refused:
        urllib.request.urlopen(f"{url}/v1/models", timeout=5)
    refused.value.close()
    assert refused.value.code == 401
    assert server.key not in Path(f"/proc/{server.pid}/cmdline").read_text()
    at = f":{int(url.rpartition(':')[2]):04X}"
    sockets = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
    listening = [row.split()[1] for row in sockets.splitlines() if row.split()[3:4] == ["0A"]]
    assert [address for address in listening if address.endswith(at)] == [f"0100007F{at}"]


def test_a_server_that_was_killed_is_started_again_and_calls_wait_for_a_slot(
    local_lm: RagbenchLM,
) -> None:
    server = server_of(local_lm)
    server.url()
    assert server.pid is not None
    old = server.pid
    os.kill(old, signal.SIGKILL)
    assert gone(old)
    n = SLOTS + 1
    lm = local_lm.copy(max_tokens=4)
    with ThreadPoolExecutor(n) as pool:
        assert len(list(pool.map(lambda number: lm(f"Count to {number}."), range(n)))) == n
    assert server.pid not in (None, old)


def test_a_gguf_of_ones_own_is_told_apart_by_its_bytes_and_may_be_none(tmp_path: Path) -> None:
    path = tmp_path / "mine.gguf"
    path.write_bytes(b"one")
    first = make_lm(f"local:{path}").model
    path.write_bytes(b"GGUF" + b"\0" * 100)
    lm = make_lm(f"local:{path}")
    assert first.startswith("llamacpp/mine-")
    assert lm.model != first
    for _ in range(2):
        with pytest.raises(LMSetupError, match="cannot serve") as caught:
            lm.check()
        assert "\n" not in str(caught.value)
    lm.close()


PARENT = """
import os, sys, time
from ragbench.lms.local import LocalSpec, shared_server
server = shared_server(LocalSpec("qwen2.5-coder-0.5b"))
url = server.url()
if os.fork() == 0:
    time.sleep(60)
    os._exit(0)
print(server.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_server_if_its_parent_is_killed_ends_though_a_fork_of_the_parent_lives() -> None:
    command = [sys.executable, "-c", PARENT]
    quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=ROOT, start_new_session=True, **quiet) as parent:  # type: ignore[call-overload]
        pid = int(parent.stdout.readline())
        parent.kill()
        try:
            assert gone(pid)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(parent.pid, signal.SIGKILL)


PIP = local._pip_download
PIECES = [b"one" * 1000, b"two" * 1000]
WHOLE = b"".join(PIECES)


def wheel(folder: Path, number: int, content: bytes) -> None:
    name = f"rb_part{number}"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}/data/part.bin", content)
        archive.writestr(f"{name}/__init__.py", "raise SystemExit('imported')")
        about = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
        archive.writestr(f"{name}-1.0.dist-info/METADATA", about)
        archive.writestr(f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{name}-1.0.dist-info/RECORD", "")


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that pip looks in, and a small model made of them; no hub."""
    for number, piece in enumerate(PIECES):
        wheel(tmp_path, number, piece)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "cache"))
    parts = tuple((f"rb-part{n}==1.0", f"rb_part{n}/data/part.bin") for n in range(2))
    file = ModelFile("gguf", "small.gguf", len(WHOLE), sha256(WHOLE).hexdigest(), parts)
    monkeypatch.setitem(CATALOGUE, "small", Model("small", "a test", (file,)))
    return tmp_path


@pytest.fixture
def without_pip(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, with the wheels taken from the folder at once: pip takes a second for each."""

    def wheel_of(requirement: str, folder: Path) -> Path:
        name = requirement.partition("==")[0].replace("-", "_")
        return wheels / f"{name}-1.0-py3-none-any.whl"

    monkeypatch.setattr(local, "_pip_download", wheel_of)
    return wheels


def with_hub(monkeypatch: pytest.MonkeyPatch, body: bytes | None) -> None:
    """Let the hub have the small model, with these bytes; None: it cannot be reached."""
    changed = replace(CATALOGUE["small"].files[0], hub="owner/repo")
    monkeypatch.setitem(CATALOGUE, "small", Model("small", "a test", (changed,)))

    def about(url: str, **settings: object) -> None:
        if body is None:
            raise httpx.ConnectError("no way there")

    def download(repo: str, name: str, *, local_dir: Path, token: bool) -> str:
        local_dir.mkdir()
        (local_dir / name).write_bytes(body or b"")
        return str(local_dir / name)

    monkeypatch.setattr("huggingface_hub.get_hf_file_metadata", about)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)


def stored() -> list[str]:
    folder = local.cache_root() / "models" / "small"
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


def models(*arguments: str) -> Result:
    command = list_command if arguments[0] == "models" else fetch_command
    return CliRunner().invoke(command, arguments, catch_exceptions=False)


def test_parts_that_pip_downloads_are_joined_and_nothing_of_them_is_imported(
    wheels: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = json.loads(models("models", "--format", "json").stdout)[0]["rows"]
    assert {row["model"]: row["installed"] for row in rows} == dict.fromkeys(CATALOGUE, "no")
    assert "fetching small: small.gguf" in models("small").output
    path = local.ensure("small")["gguf"]
    assert (path.read_bytes(), stored()) == (WHOLE, ["small.gguf"])
    assert f"already installed, {path}" in models("small").output
    assert capsys.readouterr().err == ""


def test_two_that_pull_at_once_leave_one_whole_file_and_a_changed_byte_is_noticed(
    without_pip: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = threading.Barrier(2)

    def pull(_: int) -> bytes:
        both.wait(60)
        return local.ensure("small")["gguf"].read_bytes()

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(pull, range(2))) == [WHOLE, WHOLE]
    assert stored() == ["small.gguf"]
    assert capsys.readouterr().err.count("fetching small") == 1
    local.ensure("small")["gguf"].write_bytes(WHOLE.replace(b"two", b"tvo", 1))
    assert local.ensure("small")["gguf"].read_bytes() == WHOLE
    assert "was changed or damaged" in capsys.readouterr().err


def test_a_part_that_is_wrong_or_missing_is_one_line_and_installs_nothing(
    without_pip: Path,
) -> None:
    wheel(without_pip, 1, b"TWO" * 1000)
    with pytest.raises(ModelError, match=r"SHA-256 is .* nothing was installed"):
        local.ensure("small")
    assert not local.is_installed("small")
    with pytest.raises(ModelError, match=r"pip could not download rb-part9==1\.0") as caught:
        PIP("rb-part9==1.0", without_pip / "cache")
    assert "\n" not in str(caught.value)


def test_the_hub_is_asked_first_and_left_for_the_wheels_where_it_is_out_of_reach(
    without_pip: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_hub(monkeypatch, None)
    path = local.ensure("small")["gguf"]
    assert path.read_bytes() == WHOLE
    assert "hub: no way there; joining small.gguf from Python" in capsys.readouterr().err
    path.unlink()
    with_hub(monkeypatch, WHOLE)
    monkeypatch.setattr(local, "_pip_download", lambda *a: pytest.fail("pip was asked"))
    assert local.ensure("small")["gguf"].read_bytes() == WHOLE
    path.unlink()
    with_hub(monkeypatch, WHOLE[:100])
    with pytest.raises(ModelError, match="SHA-256"):
        local.ensure("small")
    assert stored() == []


def test_names_and_folders_that_cannot_be(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownNameError, match="did you mean minilm-int8"):
        models("small", "minilm")
    assert not local.is_installed("small")
    (wheels / "file").write_text("")
    monkeypatch.setenv("RAGBENCH_CACHE", str(wheels / "file"))
    with pytest.raises(ModelError, match="set RAGBENCH_CACHE"):
        local.ensure("minilm-int8")
