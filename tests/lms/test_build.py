"""The server that `ragbench models build` has compiled: how it is run, what is said without it."""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from ragbench.errors import ModelError
from ragbench.lms.local import (
    build,
    build_server,
    built_server,
    remove_built,
    server,
    server_version,
)
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


BACKEND = """
from pathlib import Path
def prepare_metadata_for_build_wheel(folder, settings=None):
    Path({ran!r}).touch()
    info = Path(folder, "llama_cpp_python-0.3.36.dist-info")
    info.mkdir()
    text = "Metadata-Version: 2.1\\nName: llama-cpp-python\\nVersion: 0.3.36\\n"
    (info / "METADATA").write_text(text)
    return info.name
"""
PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""


def source_package(folder: Path, *, member: str) -> Path:
    """A source package as pip takes it, with one file beside the tree of llama.cpp."""
    folder.mkdir()
    root, path = "llama_cpp_python-0.3.36", folder / "llama_cpp_python-0.3.36.tar.gz"
    texts = {
        "PKG-INFO": "Metadata-Version: 2.1\nName: llama-cpp-python\nVersion: 0.3.36\n",
        "pyproject.toml": PROJECT,
        "backend.py": BACKEND.format(ran=str(folder / "ran")),
        "vendor/llama.cpp/CMakeLists.txt": "",
        member: "x",
    }
    with tarfile.open(path, "w:gz") as package:
        for name, text in texts.items():
            entry = tarfile.TarInfo(f"{root}/{name}")
            entry.size = len(text)
            package.addfile(entry, io.BytesIO(text.encode()))
    return path


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder, and what a build wants to find, none of which does anything."""
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "cache"))
    for name in ("cmake", "c++"):
        program = tmp_path / "tools" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text("#!/bin/sh\nexit 1\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'tools'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "packages"))
    return tmp_path / "cache" / "llama.cpp"


@pytest.mark.parametrize("harm", ["changed", "cut", "another"])
def test_a_source_package_with_other_bytes_is_refused_unread(
    tmp_path: Path, tools: Path, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    path = source_package(tmp_path / "packages", member="more.txt")
    good = path.read_bytes()
    if harm != "another":  # else the hash is that of the real package
        monkeypatch.setattr(build, "_SHA256", hashlib.sha256(good).hexdigest())
        path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]) if harm == "changed" else good[:-100])
    with pytest.raises(ModelError, match=r"pip could not download .*the wheel serves on") as error:
        build_server()
    assert "\n" not in str(error.value)
    assert "DO NOT MATCH THE HASHES" in (tools / "build.log").read_text()
    assert [each.name for each in tools.iterdir()] == ["build.log"]
    assert not (tmp_path / "packages" / "ran").exists()  # nothing of it was run
    assert built_server() is None


def test_a_source_package_that_would_write_elsewhere_is_refused(
    tmp_path: Path, tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = source_package(tmp_path / "packages", member="vendor/llama.cpp/" + "../" * 8 + "harm")
    monkeypatch.setattr(build, "_SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    with pytest.raises(ModelError, match=r"cannot be unpacked: .*harm.* outside") as error:
        build._unpack(path, tmp_path / "source")
    assert "\n" not in str(error.value)
    with pytest.raises(ModelError, match=r"cannot be unpacked|could not download"):
        build_server()
    assert not list(tmp_path.rglob("harm"))
    assert [each.name for each in tools.iterdir()] == ["build.log"]


@pytest.mark.parametrize(
    ("flags", "settings"),
    [("avx512f avx512_vnni", {"LLAMA_ARG_REPACK": "0"}), ("avx2 fma", {}), (None, {})],
    ids=["vnni", "no vnni", "not Linux"],
)
def test_a_built_server_takes_weights_as_they_are_where_that_is_faster(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    flags: str | None,
    settings: dict[str, str],
) -> None:
    processor = tmp_path / "cpuinfo"
    if flags is not None:
        processor.write_text(f"flags\t\t: {flags}\n")
    program = tmp_path / "llama-server"
    program.touch()
    monkeypatch.setattr(build, "_CPU", processor)
    monkeypatch.setattr(build, "_folder", lambda: tmp_path)
    monkeypatch.setattr(server, "built_server", build.built_server)
    monkeypatch.delenv("LLAMA_ARG_REPACK", raising=False)
    given = server._environment("key")
    assert {n: v for n, v in given.items() if n.startswith("LLAMA_ARG")} == settings
    monkeypatch.setenv("LLAMA_ARG_REPACK", "1")
    assert server._environment("key")["LLAMA_ARG_REPACK"] == "1"
    program.unlink()
    monkeypatch.delenv("LLAMA_ARG_REPACK")
    assert "LLAMA_ARG_REPACK" not in server._environment("key")
