"""The real local model, by the store, the server and the metered LM."""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal
from urllib.error import HTTPError

import dspy
import pytest

from ragbench.errors import LMSetupError
from ragbench.ledger import open_ledger
from ragbench.lms import RagbenchLM, make_adapter, make_lm
from ragbench.lms.calls.other_clients import LocalClient
from ragbench.lms.local import LocalServer

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
        for passage in ("Paris is the capital of France.", "", "!!!"):
            out = dspy.Predict(Judge)(question="What is the capital of France?", passage=passage)
            assert out.relevance in ("relevant", "irrelevant")
            assert isinstance(out.confidence, float)
    assert "Paris" in answer.answer
    call = ledger.calls[0]
    assert call.model.startswith("llamacpp/qwen2.5-coder-0.5b-instruct-q4_k_m@")
    assert (call.prompt_tokens > 50, 0 < call.completion_tokens < 512) == (True, True)
    assert (call.cost_usd, call.latency_s > 0) == (0.0, True)
    assert [call.fallback for call in ledger.calls] == [False] * 4


def test_an_overlong_prompt_is_a_context_window_error(local_lm: RagbenchLM) -> None:
    with (
        dspy.context(lm=local_lm),
        open_ledger() as ledger,
        pytest.raises(dspy.ContextWindowExceededError),
    ):
        dspy.Predict("question -> answer")(question="hello there " * 9000)
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
    port = int(url.rpartition(":")[2])
    sockets = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
    listening = [row.split()[1] for row in sockets.splitlines() if row.split()[3:4] == ["0A"]]
    assert [address for address in listening if address.endswith(f":{port:04X}")] == [
        f"0100007F:{port:04X}"
    ]


def test_a_server_that_was_killed_is_started_again_and_calls_wait_for_a_slot(
    local_lm: RagbenchLM,
) -> None:
    server = server_of(local_lm)
    server.url()
    assert server.pid is not None
    old = server.pid
    os.kill(old, signal.SIGKILL)
    assert gone(old)
    n = 3 * server.slots
    lm = local_lm.copy(max_tokens=8)
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
server = shared_server(LocalSpec("qwen2.5-coder-0.5b"), slots=1, context=512)
url = server.url()
if sys.argv[1] == "fork":
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
print(server.pid, flush=True)
if sys.argv[1] == "exit":
    sys.exit()
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("mode", "sent"), [("exit", None), ("wait", signal.SIGKILL), ("fork", signal.SIGKILL)]
)
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_server_ends_with_its_parent(mode: str, sent: signal.Signals | None) -> None:
    command = [sys.executable, "-c", PARENT, mode]
    quiet: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=ROOT, start_new_session=True, **quiet) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert Path(f"/proc/{pid}").exists() or mode == "exit"
        if sent is not None:
            parent.send_signal(sent)
        try:
            assert gone(pid)
        finally:
            os.killpg(parent.pid, signal.SIGKILL) if mode == "fork" else parent.kill()
