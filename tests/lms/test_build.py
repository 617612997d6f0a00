"""The server that `ragbench models build` has compiled: how it is run, what is said without it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ragbench.errors import ModelError
from ragbench.lms.local import build_server, built_server, remove_built, server_version
from ragbench.lms.local.serve import KEY_VARIABLE

SERVER = """#!{python}
import json, os, sys, time
print("loading", flush=True)
seen = dict(arguments=sys.argv[1:], key=os.environ.get("LLAMA_API_KEY"), pid=os.getpid())
open({out!r}, "w").write(json.dumps(seen))
if {broken}:
    sys.exit("no such model")
print("srv  llama_server: listening on http://127.0.0.1:4242", flush=True)
time.sleep(600)
"""


def serve(folder: Path, *, broken: bool = False) -> subprocess.Popen[bytes]:
    program, out = folder / "llama-server", folder / "seen.json"
    program.write_text(SERVER.format(python=sys.executable, out=str(out), broken=broken))
    program.chmod(0o755)
    options = dict(model="m.gguf", alias="m", binary=program, port=0, slots=3, context=512)
    options |= {"threads": 2, "cache-mib": 64}
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "ragbench.lms.local.serve"]
        + [f"--{name}={value}" for name, value in options.items()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, KEY_VARIABLE: "secret"},
    )


def ended(pid: int) -> bool:
    for _ in range(600):
        state = Path(f"/proc/{pid}/stat")
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.1)
    return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize("way", ["closed", "killed"])
def test_compiled_server_ends_with_its_parent(tmp_path: Path, way: str) -> None:
    with serve(tmp_path) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert json.loads(process.stdout.readline()) == {"url": "http://127.0.0.1:4242"}
        seen = json.loads((tmp_path / "seen.json").read_text())
        assert seen["key"] == "secret"
        assert "secret" not in " ".join(seen["arguments"])
        given = dict(zip(seen["arguments"][::2], seen["arguments"][1::2], strict=False))
        assert given["--ctx-size"] == "1536"  # 512 for each of the three slots
        if way == "killed":
            process.send_signal(signal.SIGKILL)
        else:
            process.stdin.close()
        assert ended(seen["pid"])


def test_compiled_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    with serve(tmp_path, broken=True) as process:
        out, errors = process.communicate(timeout=120)
    assert (process.returncode, out) == (1, b"")
    assert b"no such model" in errors


def test_build_without_a_compiler_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ModelError, match="needs cmake and a C"):
        build_server()
    assert not list(tmp_path.iterdir())


def test_a_built_server_is_part_of_the_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path))
    wheel = server_version()
    assert not remove_built()
    (tmp_path / "llama.cpp").mkdir()
    (tmp_path / "llama.cpp" / "llama-server").touch()
    assert built_server()
    assert server_version() not in (wheel, "")
    assert remove_built()
    assert server_version() == wheel
